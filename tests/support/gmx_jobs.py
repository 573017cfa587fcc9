"""Segments of GROMACS runs in a test's own folder, in this process or as processes of their own, without Snakemake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.toyrun import PYTHONPATH, until

from unbroken.engines.base import Task
from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.errors import UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.program.process import Child
from unbroken.store.history import EndKind
from unbroken.store.record import Record
from unbroken.store.run import RunSpec

RUN = "demo"


def gmx_run(base: Path, **keys: object) -> RunSpec:
    """A run of one core; keys of the run as they are, all others are settings."""
    run: dict[str, object] = {"engine": "gromacs", "segments": 9, "segment_minutes": 5, "save_minutes": 0.002}
    names = {
        "segments",
        "segment_minutes",
        "save_minutes",
        "threads",
        "tasks",
        "keep",
        "modules",
        "enter",
        "container",
        "container_options",
        "stall_minutes",
    }
    run.update({name: value for name, value in keys.items() if name in names})
    settings = {name: value for name, value in keys.items() if name not in names}
    return read_checked_runs({"runs": {RUN: {**run, "settings": settings}}}, base)[0]


def gmx_job(base: Path, segment: int = 1, attempt: int = 1, **keys: object) -> Job:
    """A job as Snakemake would hand it over, its log folder made."""
    job = Job(gmx_run(base, **keys), known_schemas().engines["gromacs"].identity, segment, attempt, base)
    job.places.log(segment).parent.mkdir(parents=True, exist_ok=True)
    return job


def gmx_segment(base: Path, segment: int = 1, attempt: int = 1, **keys: object) -> Record:
    """One segment in this process."""
    return run_segment(gmx_job(base, segment, attempt, **keys), GromacsEngine(base))


FIRST_STEPS = 4000


class CutOff(GromacsEngine):
    """Ends mdrun at a step, however fast the machine is: a limit of time is met late here, and after the goal there."""

    def command(self, task: Task) -> list[str]:
        return [*super().command(task), "-nsteps", str(FIRST_STEPS)]


class Deaf(GromacsEngine):
    """Never tells mdrun to stop."""

    def ask_to_stop(self, task: Task, child: Child) -> None:
        pass


def first_piece(base: Path, **keys: object) -> Record:
    """The first segment, cut off before its goal."""
    record = run_segment(gmx_job(base, **keys), CutOff(base))
    assert (record.kind, record.progress.done) == (EndKind.PAUSED, FIRST_STEPS)
    return record


def start_segment(base: Path, segment: int = 1, **keys: object) -> subprocess.Popen[str]:
    """One segment as a process of its own, whose mdrun dies with it."""
    what = json.dumps({"base": str(base), "segment": segment, "keys": keys}, default=str)
    return subprocess.Popen(
        [sys.executable, __file__, what],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stderr=subprocess.PIPE,
        text=True,
    )


def live_desk(job: Job) -> Path:
    """mdrun's folder of the attempt that works now, or died last."""
    return max(job.places.work.iterdir(), default=job.places.work) / "mdrun"


def saved_steps(folder: Path, replicas: Sequence[str] = ("",)) -> list[int]:
    """The step of each simulation's newest checkpoint; 0 where there is none, as between two renames of mdrun."""
    found = []
    for replica in replicas:
        try:
            found.append(read_cpt(folder / replica / "md.cpt").step)
        except UnbrokenError:
            found.append(0)
    return found


def kill_at(process: subprocess.Popen[str], job: Job, step: int, replicas: Sequence[str] = ("",)) -> Path:
    """KILL to the segment once all have saved a step as late as this; returns mdrun's folder, now still."""

    def has_saved() -> bool:
        assert process.poll() is None, process.communicate()
        return job.places.work.is_dir() and min(saved_steps(live_desk(job), replicas)) >= step

    until(has_saved)
    folder = live_desk(job)
    process.kill()
    process.communicate()
    until(lambda: not [rank for replica in replicas for rank in writers(folder / replica)])
    return folder


def writers(folder: Path) -> list[int]:
    """Living processes that work in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def rows_of(table: Path) -> list[str]:
    """Its numbers; the head says when and by which command it was made."""
    return [line for line in table.read_text().splitlines() if line[:1] not in "#@"]


def passport_of(record: Record, job: Job) -> Mapping[str, object]:
    """The passport of the checkpoint that a record names."""
    return json.loads((job.places.checkpoints / record.checkpoint / "manifest.json").read_text())  # type: ignore[no-any-return]


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    gmx_segment(Path(told["base"]), told["segment"], **told["keys"])
