"""Run the script of a training case whole, and in segments that are stopped and killed, and compare the results."""

import difflib
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import yaml
from support.prefork import Started, start_script
from support.toyrun import PYTHONPATH

from unbroken.engines.testing.chain import Case as EngineCase

CASES = Path(__file__).parents[1] / "training_cases" / "cases"
PROCESS = Path(__file__).with_name("training_case_process.py")
LOADED = (
    "torch",
    "torch.utils.data",
    "torch.optim",
    "torch._dynamo",
    "numpy",
    "sklearn.datasets",
    "unbroken.training.torch",
)
LAUNCHER = "unbroken.training.launch.ranks"  # as torchrun, but it exits as the ranks did
PATIENCE_SECONDS = 300.0
PAUSED = 85
STOPS = ("USR1", "TERM", "file")
# What a framework logs of the time since it was started: the Trainer's at the end of an evaluation and of the training.
_OF_A_SEGMENT = re.compile(r"_runtime$|_per_second$|^train_loss$")
# Also of several trainings of one script, each in a folder of its own; in summary.json are times.
_RESULTS = re.compile(r"([\w-]+/)?(final/(?!summary\.json).*|live/metrics\.jsonl)")


@dataclass
class Case:
    """One case as its case.yaml describes it: tests/training_cases/README.md."""

    name: str
    title: str
    source: str  # URL of the public script
    framework: str
    hard: str  # what of it is hard to resume
    change: str  # how the lines changed
    expected: str = "equal"
    message: str = ""  # the beginning of the line of a refusal
    computes: dict[str, str] = field(default_factory=dict)  # files of final/ that before.py makes too, and their names
    broken: list[str] = field(default_factory=lambda: ["optimizer"])  # what the control does not restore
    save_steps: int = 4
    kills: int = 3
    engine: dict[str, Any] = field(default_factory=dict)  # goal and goal_unit, if it is run under the engine too
    ranks: int = 1
    needs: list[str] = field(default_factory=list)  # modules
    before_needs: list[str] = field(default_factory=list)  # modules of before.py alone
    loaded: list[str] = field(default_factory=list)  # further modules that take long to import
    modules: list[str] = field(default_factory=lambda: ["unbroken.training.torch.training"])  # imported by train.py
    counted: str = ""  # the method whose calls are the steps, where no optimizer of torch makes them
    marks: list[str] = field(default_factory=list)  # of pytest
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return CASES / self.name

    @property
    def is_refused(self) -> bool:
        return self.expected == "refused"

    @property
    def is_of_torch(self) -> bool:
        """Return False where another framework trains, perhaps in an environment without torch."""
        return not self.counted

    @property
    def all_loaded(self) -> tuple[str, ...]:
        return (*(LOADED if self.is_of_torch else ()), *self.loaded)

    def changed_lines(self) -> tuple[int, int]:
        """Return how many lines of before.py went, and how many came."""
        before, after = ((self.folder / name).read_text().splitlines() for name in ("before.py", "train.py"))
        lines = [
            line[:1] for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:3] not in ("---", "+++")
        ]
        return lines.count("-"), lines.count("+")


def read_case(name: str) -> Case:
    return Case(name=name, **yaml.safe_load((CASES / name / "case.yaml").read_text()))


class TrainingRun:
    """The script of a case in a folder of its own, where it is started again and again."""

    def __init__(self, case: Case, root: Path, rng: random.Random, *, is_fresh: bool) -> None:
        self.case, self.root, self.rng, self.is_fresh = case, root, rng, is_fresh
        self.kills = self.kills_in_a_save = self.segments = 0
        self.log = root / "said.txt"
        root.mkdir(parents=True)
        for name in os.listdir(case.folder):
            if name != "case.yaml" and (case.folder / name).is_file():
                shutil.copyfile(case.folder / name, root / name)

    @property
    def folder(self) -> Path:
        """Where unbroken keeps the run."""
        return self.root / "run"

    def copied(self, root: Path) -> "TrainingRun":
        """Return the same run, as it stands now, in another folder."""
        made = TrainingRun(self.case, root, self.rng, is_fresh=self.is_fresh)
        shutil.copytree(self.folder, made.folder, symlinks=True)
        return made

    def start(self, script: str = "train.py", **plan: Any) -> Started:
        """Start the script; `plan` is what the process does to itself (training_case_process.py)."""
        self.segments += 1
        (self.root / "began").unlink(missing_ok=True)
        around = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "UNBROKEN_"))}
        plan = {
            "save_steps": self.case.save_steps,
            "modules": self.case.modules,
            "counted": self.case.counted,
            "began": str(self.root / "began"),
            "folder": str(self.folder),
            **plan,
        }
        environment = around | {
            "PYTHONPATH": PYTHONPATH,
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "UNBROKEN_FOLDER": str(self.folder),
            **self.case.environment,
        }
        words = [sys.executable, *(["-u"] if self.is_fresh else []), str(PROCESS), script]
        if self.case.ranks > 1:
            words = [sys.executable, "-m", LAUNCHER, "--ranks", str(self.case.ranks), *words]
            plan["rank"] = self.rng.randrange(self.case.ranks)
        environment["CASE_PLAN"] = json.dumps(plan)
        with self.log.open("ab") as log:
            return start_script(words, self.case.all_loaded, self.root, environment, log)

    def whole(self, script: str = "train.py") -> dict[str, float]:
        """Run to the end without a stop; return how many steps and file events there were, and the seconds of work."""
        self.ends(script, count=str(self.root / "counted.json"))
        return json.loads((self.root / "counted.json").read_text())

    def ends(self, script: str = "train.py", **plan: Any) -> None:
        code = self.start(script, **plan).wait(PATIENCE_SECONDS)
        assert code == 0, f"exit code {code}: {self.said()}"

    def stopped(self, how: str, step: int) -> None:
        """Ask one segment to stop in a step; it leaves with a checkpoint."""
        code = self.start(at={"step": step, "do": how}).wait(PATIENCE_SECONDS)
        assert code == PAUSED, f"exit code {code}: {self.said()}"

    def killed_at(self, **moment: int) -> bool:
        """Kill one segment at a step, or at an event of its files; return False if it had ended before."""
        code = self.start(at={**moment, "do": "KILL"}).wait(PATIENCE_SECONDS)
        assert code in (0, -signal.SIGKILL, 128 + signal.SIGKILL), f"exit code {code}: {self.said()}"
        self.kills += code != 0
        self.kills_in_a_save += code != 0 and "event" in moment
        return code != 0

    def killed_after(self, seconds: float) -> bool:
        """Kill one segment so long after its first step, from outside; return False if it had ended before."""
        process, give_up = self.start(), time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and not (self.root / "began").exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        give_up = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.002)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait(PATIENCE_SECONDS) == 0:
            return False
        self.kills += 1
        return True

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def engine_case(case: Case, folder: Path) -> EngineCase:
    """Return the case for a chain of segments of the engine torch; each step rests, so that there is time to kill."""
    folder.mkdir()
    plan = {"save_steps": case.save_steps, "began": str(folder / "began"), "folder": str(folder), "rest": 0.05}
    python = folder / "python"
    words = [sys.executable, str(PROCESS)]
    python.write_text(f'#!/bin/sh\nexport CASE_PLAN={shlex.quote(json.dumps(plan))}\nexec {shlex.join(words)} "$@"\n')
    python.chmod(0o755)
    settings = {"script": "train.py", "python": str(python), **case.engine}
    return EngineCase(
        engine="torch",
        settings=settings,
        segments=4,
        segment_minutes=20,
        save_minutes=0.005,
        final_files=("metrics.csv",),
        other_settings={},
        further_goal=None,
        files=(case.folder / "train.py",),
        kills=3,
    )


def differences(one: Path, other: Path) -> list[str]:
    """Return what differs between the results of two runs, and between the metrics of their steps."""
    sides = [_files(side) for side in (one, other)]
    assert sides[0], f"no results in {one}"
    found = [f"{name}: only in one" for name in sorted(sides[0].keys() ^ sides[1].keys())]
    common = sorted(sides[0].keys() & sides[1].keys())
    return found + [f"{name}: other content" for name in common if not are_equal(sides[0][name], sides[1][name])]


def are_equal(one: Path, other: Path) -> bool:
    """Return True for the same bytes, of weights the same bits under the same names."""
    if one.read_bytes() == other.read_bytes():
        return True
    if one.suffix == other.suffix == ".jsonl":
        return _metrics(one) == _metrics(other)
    if one.suffix == other.suffix == ".keras":
        return _weights_of_keras(one) == _weights_of_keras(other)
    if one.suffix == other.suffix == ".pt":
        from support.pieces_here import weights_in

        return weights_in(one) == weights_in(other)
    return False


def _weights_of_keras(path: Path) -> bytes:
    """Return the weights, also of the optimizer; next to them lie the time and addresses of Python's objects."""
    with zipfile.ZipFile(path) as archive:
        return archive.read("model.weights.h5")


def _metrics(path: Path) -> list[dict[str, float]]:
    """Return the metrics of the steps, without times and what a framework counts from its start on."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if not _OF_A_SEGMENT.search(name)} for line in lines]


def _files(folder: Path) -> dict[str, Path]:
    """Return the results of a training, and the metrics of its steps."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if _RESULTS.fullmatch(name)}


def _release(module: str) -> tuple[str, str]:
    """Return the package that brings a module, and its version."""
    package = packages_distributions().get(module, [module])[0]
    return package, version(package)


def note(case: Case, runs: Sequence[TrainingRun]) -> None:
    """Add a line to the file that UNBROKEN_TRAINING_RESULTS names."""
    if path := os.environ.get("UNBROKEN_TRAINING_RESULTS"):
        row = {
            "case": case.name,
            "result": case.expected,
            "kills": sum(each.kills for each in runs),
            "in_a_save": sum(each.kills_in_a_save for each in runs),
            "segments": sum(each.segments for each in runs),
            "versions": dict(map(_release, (*(["torch"] if case.is_of_torch else []), *case.needs))),
            "day": datetime.now(UTC).date().isoformat(),
        }
        with Path(path).open("a") as file:
            file.write(json.dumps(row) + "\n")
