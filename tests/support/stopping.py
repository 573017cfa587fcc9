"""Segments of a real program that are told to stop when it says that it is so far."""

import contextlib
import json
import sys
import threading
from pathlib import Path

from support.toyrun import ProgramEngine, toy_job

from unbroken.job.lifecycle import run_segment
from unbroken.store.record import Record


def script_segment(base: Path, number: int, goal: int, words: list[str], stop_at: float | None = None) -> Record:
    """One segment of a Python script in this process, long enough for any machine."""
    base.mkdir(exist_ok=True)
    job = toy_job(base, number, goal=goal, segment_minutes=9)
    is_over = threading.Event()

    def stop() -> None:
        while stop_at is not None and not is_over.wait(0.02):
            for path in job.places.work.glob("*/progress.json"):
                with contextlib.suppress(OSError, ValueError):
                    if json.loads(path.read_text())["done"] >= stop_at:
                        (path.parent / "stop").touch()
                        return

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        return run_segment(job, ProgramEngine([sys.executable, *words]))
    finally:
        is_over.set()
        stopper.join()
