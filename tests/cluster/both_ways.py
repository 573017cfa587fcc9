"""A chain that is watched by a driver, or not, and whose every step waits for a sign of the test."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from cluster.detached import detached, slurm_logs, submit, wait_for_jobs
from cluster.lab import Cluster
from support.workdir import Driver, WorkDir, overlaps
from support.workdir import until as until_patiently

from unbroken.store.history import Attempt, EndKind

# Counts one step a job; step 3 of run a waits for the file go/a/3 or go/all.
STEPS = """\
import os, pathlib, time
save, resume = pathlib.Path(os.environ["UNBROKEN_SAVE"]), os.environ.get("UNBROKEN_RESUME")
done = 1 + (int((pathlib.Path(resume) / "state").read_text()) if resume else 0)
goal = int(pathlib.Path(f"goal_{os.environ['UNBROKEN_RUN']}").read_text())
go = pathlib.Path(os.environ["GO_FOLDER"])
(go / "reached").mkdir(exist_ok=True)
(go / "reached" / str(done)).touch()
while not (go / str(done)).exists() and not (go / "all").exists():
    time.sleep(0.1)
(save / "state").write_text(str(done))
(save / "progress.json").write_text(f'{{"done": {done}, "goal": {goal}, "unit": "steps"}}')
raise SystemExit(0 if done >= goal else 85)
"""
# A driver that asks Slurm soon about jobs that left no record.
DRIVEN = ("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "2", "--latency-wait", "5")
# A job starts, a driver says something; and all of a chain is done.
SOON_SECONDS, PATIENCE_SECONDS = 100.0, 240.0
BOTH_WAYS = pytest.mark.parametrize("is_attached", [True, False], ids=["attached", "detached"])


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds, which takes no longer than the start of a job."""
    until_patiently(condition, SOON_SECONDS)


def steps(goal: int, segments: int = 0, **more: object) -> dict[str, object]:
    """Return a run that counts one step a job, with as many segments as steps unless more are named."""
    settings = {"script": "steps.py", "goal": goal}
    return {"engine": "torch", "segments": segments or goal, "segment_minutes": 4, "settings": settings, **more}


@dataclass
class Chain:
    """The chains of a folder and, if `is_attached`, a driver that watches them."""

    work: WorkDir
    cluster: Cluster
    is_attached: bool
    text: str = ""  # of drivers that have ended
    drivers: list[Driver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work.write("steps.py", STEPS)
        self.go_folder.mkdir(exist_ok=True)
        self.work.added_environment |= {"GO_FOLDER": str(self.go_folder)}
        self.write_goals()
        if not self.is_attached:
            detached(self.work)

    def write_goals(self) -> None:
        """Let the programs know the goals of the config: an argument would belong to what defines a run."""
        for run, values in yaml.safe_load((self.work.root / "config/config.yaml").read_text())["runs"].items():
            self.work.write(f"goal_{run}", str(values["settings"]["goal"]))

    @property
    def go_folder(self) -> Path:
        return self.work.root / "go"

    def start(self, *words: str) -> None:
        """Start snakemake; without a driver wait until everything is submitted."""
        self.write_goals()
        if self.is_attached:
            self.drivers.append(self.work.start(*DRIVEN, *words))
        else:
            self.text += submit(self.work, *words)

    def reaches(self, step: int) -> None:
        """Wait until a job works on this step."""
        until(lambda: (self.go_folder / "reached" / str(step)).exists())

    def let(self, step: int | str) -> None:
        """Let a step be done, or all of them."""
        (self.go_folder / str(step)).touch()

    def hold_again(self) -> None:
        """Let each step wait for its sign again."""
        shutil.rmtree(self.go_folder)
        self.go_folder.mkdir()

    def restart(self, *words: str) -> None:
        """Kill the driver, if there is one, and start snakemake again."""
        for driver in self.drivers:
            driver.kill()
            self.text += driver.text
        self.drivers.clear()
        self.start(*words)

    def end(self, code: int = 0) -> str:
        """Wait for the end of everything, and return what drivers and jobs have said."""
        for driver in self.drivers:
            done = driver.wait(PATIENCE_SECONDS)
            self.text += done.text
            assert done.code == code, self.text
        self.drivers.clear()
        wait_for_jobs(self.cluster, PATIENCE_SECONDS)
        return self.said

    @property
    def said(self) -> str:
        return self.text + "".join(driver.text for driver in self.drivers) + slurm_logs(self.work)

    def waiting(self) -> list[str]:
        """Return the tasks that wait."""
        return self.cluster.jobs("pending")

    def working(self) -> str:
        """Return the task at work."""
        (task,) = self.cluster.jobs("running")
        return task

    def asked(self, letter: str) -> list[str]:
        """Return what waiting tasks ask for, each thing once, by squeue's letter for it."""
        rows = self.cluster.run("squeue", "--noheader", "--array", "--states=pending", f"--format=%{letter}")
        return sorted(set(rows.split()))


def assert_done_once(work: WorkDir, segments: int, run: str = "a") -> list[Attempt]:
    """Check that each segment was done once, by one writer after the other, up to the goal; return the history."""
    history = work.history(run)
    assert list(overlaps([attempt for attempt in history if not attempt.kind.is_before_work])) == []
    assert [attempt.segment for attempt in history if attempt.kind.settles] == list(range(1, segments + 1))
    assert history[-1].kind is EndKind.FINISHED
    assert work.passports(run)[-1].progress.done == segments
    return history


def arrays(history: list[Attempt]) -> list[str]:
    """Return the numbers of the arrays, or single jobs, that did a run, in the order of their work."""
    return list(dict.fromkeys(attempt.slurm_job.partition("_")[0] for attempt in history))
