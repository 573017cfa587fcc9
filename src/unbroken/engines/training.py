"""Start the user's own Python script of a training, in one process or several: what all frameworks share."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.engines.base import Engine, Task
from unbroken.engines.exports import export_training, is_of_library
from unbroken.engines.script_edit import Script
from unbroken.engines.starter import Starter, as_yaml, files_like, given_file, not_installed, run_name
from unbroken.presets.preset import presets
from unbroken.slurm.this_job import restart_count
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import METRICS_FILE, TIMING_FILE, RunFolder
from unbroken.store.run import RunSpec

# The user's Python must find unbroken, as the script must that uses unbroken.training.
LAUNCHER = "unbroken.training.launch.ranks"
# How far to train where the script does not say it.
_GOALS = {"epochs": 10, "steps": 1000}


@dataclass(frozen=True)
class Advice:
    """Say what a script needs to resume, by a diff or by lines to type, and how far it trains by itself."""

    diff: str
    todo: tuple[str, ...]
    goal: float | None
    unit: str = "epochs"


class TrainingEngine(Engine):
    """Run a script that keeps the environment contract, by `unbroken.training` or by itself.

    `processes` is the setting that says how many of them each task starts, empty for an engine that starts one;
    `options` are those of the launcher then.
    """

    processes: str = ""
    options: tuple[str, ...] = ()
    may_log_to_trackers = True

    @abstractmethod
    def trains(self, script: Script) -> bool:
        """Return True if the script trains by the framework of this engine."""

    @abstractmethod
    def advice(self, script: Script) -> Advice:
        """Return what a script needs to resume."""

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        """Yield one for each training script of the folder, or for the file that was named."""
        is_script = bool(words) and words[0].endswith(".py") and not self._is_program(words[0])
        is_file = is_named or is_script
        given = given_file(self.name, self.base, words) if is_file else None
        for path in [given] if given else files_like(self.base, "*.py"):
            script = Script.read(path)
            if script is not None and ((given and is_named) or self.trains(script)):
                yield self._starter(script, words[1:])

    def _is_program(self, name: str) -> bool:
        """Return True for a program with a preset that is called like a script, such as spades.py."""
        known = presets(self.base).values()
        return not (self.base / name).exists() and any(each.place_of_program([name]) is not None for each in known)

    def _starter(self, script: Script, args: Sequence[str]) -> Starter:
        advice = self.advice(script)
        goal, unit = advice.goal or _GOALS[advice.unit], advice.unit
        settings = [f"script: {as_yaml(str(script.path.relative_to(self.base)))}"]
        settings += [f"args: {as_yaml(list(args))}"] if args else []
        settings += [f"goal: {goal:.10g}  # {unit}; raise it later and start again"]
        settings += ["goal_unit: steps"] if unit == "steps" else []
        todo = (*advice.todo, *not_installed(self.name))
        name = run_name(script.path.stem, "train")
        return Starter(name, script.path.name, tuple(settings), uses_gpu=True, todo=todo, diff=advice.diff)

    def export(self, run: RunSpec, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Fill the folder of a training that is started by hand; of a script without the library as any by contract."""
        if not is_of_library(checkpoint):
            return super().export(run, checkpoint, folder)
        threads = threads_of_each(run, self.processes)
        return export_training(
            run, self.base, checkpoint, command=self.training_command(run), threads=threads, folder=folder
        )

    def command(self, task: Task) -> list[str]:
        return self.training_command(task.run)

    def training_command(self, run: RunSpec) -> list[str]:
        """Return the user's Python, script and arguments; of several processes, what starts so many of them."""
        settings: Any = run.settings
        python = str(settings["python"] or ("python3" if run.environment.has_python else sys.executable))
        command = [python, str(settings["script"]), *map(str, settings["args"])]
        ranks, tasks = settings.get(self.processes, 1), run.resources.tasks
        if ranks * tasks == 1:
            return command
        return [python, "-m", LAUNCHER, "--ranks", str(ranks), "--tasks", str(tasks), *self.options, *command]

    def environment(self, task: Task) -> dict[str, str]:
        threads = threads_of_each(task.run, self.processes)
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads)}

    def remarks(self, task: Task) -> list[str]:
        starts = restart_count()
        if task.origin is not None or not starts:
            return []
        loud = f"WARNING: Slurm has started this job {starts + 1} times, and there is NO checkpoint"
        return [f"{loud}: all work before is lost; read the earlier logs, and save more often (save_minutes)"]


def threads_of_each(run: RunSpec, key: str) -> int:
    """Return the threads of a task, shared by as many processes as the setting `key` says, if there is one."""
    settings: Any = run.settings
    return max(1, run.resources.threads // int(settings.get(key, 1)))


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots in the Snakemake report: of the runs that have logged metrics and times by now."""
    folders = [RunFolder(run.name) for run in runs]
    files = (METRICS_FILE, TIMING_FILE)
    noted = [each for each in folders if all((base / each.live / name).is_file() for name in files)]
    return [str(each.root / "report" / "metrics.svg") for each in noted]
