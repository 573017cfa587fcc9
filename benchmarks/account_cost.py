"""What the account costs a segment: its moments as they happen, and its longer line of history.

A segment with `--saves` saves notes when its job and program began, its first step, each save and how long the program
stood still for it, the stop, and the ends.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.histories import PLAIN

from unbroken.store.history import Attempt, History
from unbroken.store.times import NO_TIMES, Moments, Times


def noted(path: Path, saves: int) -> Times:
    """All that one segment notes."""
    moments = Moments(path, None, 0.0)
    moments.begin(time.time())
    moments.note("program_started")
    moments.note("first_step")
    for _ in range(saves):
        moments.note_save(0.0, 0.1)
    moments.note("stop_asked")
    moments.note("program_ended")
    return moments.times()


def line_seconds(path: Path, attempt: Attempt) -> float:
    """What one more line of the history takes, flushed to the disk."""
    began = time.perf_counter()
    History(path).append(attempt)
    return time.perf_counter() - began


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--saves", type=int, default=10)
    asked.add_argument("--rounds", type=int, default=200)
    options = asked.parse_args()
    found: dict[str, list[float]] = {name: [] for name in ("moments", "line with times", "line without")}
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        for _ in range(options.rounds):
            began = time.perf_counter()
            times = noted(folder / "times.json", options.saves)
            found["moments"].append(time.perf_counter() - began)
            found["line with times"].append(line_seconds(folder / "with.jsonl", replace(PLAIN, times=times)))
            found["line without"].append(line_seconds(folder / "without.jsonl", replace(PLAIN, times=NO_TIMES)))
    print("| of a segment | median | 95 % | most |")
    print("|---|---:|---:|---:|")
    for what, seconds in found.items():
        ordered = sorted(1000 * each for each in seconds)
        least = statistics.median(ordered)
        print(f"| {what} | {least:.2f} ms | {ordered[len(ordered) * 95 // 100]:.2f} ms | {ordered[-1]:.2f} ms |")


if __name__ == "__main__":
    main()
