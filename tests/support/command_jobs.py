"""Segments of the command engine in a test's own folder, in this process or as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from support.toyrun import PYTHONPATH, SegmentProcess

from unbroken.engines.base import Task
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.program.contract import AttemptFolder
from unbroken.store.record import Record
from unbroken.store.run import RunSpec

WALKER = Path(__file__).with_name("walker.py")
_STYLES: dict[str, dict[str, object]] = {
    "numbered": {"files": ["walk.{progress}.json"], "saved_by": "next"},
    "rename": {"saved_by": "rename"},
    "marker": {"saved_by": "marker", "saved_marker": "walk.done"},
}


def walker_settings(**options: object) -> dict[str, object]:
    """Settings for walker.py; `exit_paused` is one of the engine, all others are options of the program."""
    engine = {name: options.pop(name) for name in ("exit_paused",) if name in options}
    style = str(options.get("style", "numbered"))
    one_file = {"files": ["walk.json"], "progress_file": "walk.json", "progress_pattern": r'"step": (\d+)'}
    words = [word for name, value in {"limit": "{seconds}", **options}.items() for word in _option(name, value)]
    start = [sys.executable, "-I", "-S", str(WALKER), "--goal", "{goal}", "--stop", "{stop}", *words]
    return {
        "start": start,
        "resume": [*start, "--resume", "{file}"],
        "goal": 200,
        **(one_file if style != "numbered" else {}),
        **_STYLES[style],
        "outputs": {"trace.csv": "rows"},
        "exit_paused": [3],
        **engine,
    }


def _option(name: str, value: object) -> list[str]:
    word = f"--{name.replace('_', '-')}"
    return [word] if value is True else [word, str(value)]


def command_run(run_keys: Mapping[str, object] = {}, base: Path = Path(), **settings: object) -> RunSpec:
    """A run of one core."""
    run = {"engine": "command", "segments": 9, "segment_minutes": 1, "save_minutes": 0.003, **run_keys}
    return read_checked_runs({"runs": {"demo": {**run, "settings": settings}}}, base)[0]


def command_job(
    base: Path, settings: Mapping[str, object], segment: int = 1, attempt: int = 1, **run_keys: object
) -> Job:
    """A job as Snakemake would hand it over, its log folder made."""
    run = command_run(run_keys, base, **settings)
    job = Job(run, known_schemas().engines["command"].identity, segment, attempt, base)
    job.places.log(segment).parent.mkdir(parents=True, exist_ok=True)
    return job


def command_segment(
    base: Path, settings: Mapping[str, object], segment: int = 1, attempt: int = 1, **run_keys: object
) -> Record:
    """One segment in this process."""
    return run_segment(command_job(base, settings, segment, attempt, **run_keys), CommandEngine(base))


def start_command_segment(base: Path, settings: Mapping[str, object], **run_keys: object) -> SegmentProcess:
    """One segment as a process of its own, whose program dies with it."""
    what = json.dumps({"base": str(base), "settings": settings, "run_keys": run_keys})
    process = subprocess.Popen(
        [sys.executable, __file__, what],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return SegmentProcess(process, base)


def task_at(job: Job) -> Task:
    """A first attempt, its folder prepared, that nobody works at."""
    attempt_folder = AttemptFolder(job.places.work / "000001")
    attempt_folder.prepare()
    return Task(job.run, job.segment, None, attempt_folder, time.time() + 60)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    command_segment(Path(asked["base"]), asked["settings"], **asked["run_keys"])
