"""The driver's own lines on its screen: how runs stand and what to type, which were not rehearsed, a full disk."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from unbroken.plan import elsewhere
from unbroken.plan.on_disk import RunOnDisk
from unbroken.store import driver_start
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt, EndKind
from unbroken.store.layout import NOTES, RESULTS, RunFolder
from unbroken.store.progress import amount
from unbroken.store.record import Record
from unbroken.store.rehearsal import Verdict, read_rehearsal
from unbroken.store.run import RunSpec
from unbroken.system import disk, log

_SNAKEMAKES_LOGGER = "snakemake.logging"
_BAD = (Verdict.DIFFERS, Verdict.FAILS, Verdict.LOSES_OUTPUT)
_MOST_NAMES = 3


def show(line: str) -> None:
    """Print a line of the driver's own on its screen, in its order among Snakemake's."""
    logging.getLogger(_SNAKEMAKES_LOGGER).info(f"unbroken: {elsewhere.from_where_it_was_typed(line)}")


@cache
def show_until_the_end() -> None:
    """Show the log of this process until it ends, once, also where a workflow imports unbroken twice."""
    screen = ExitStack()
    screen.enter_context(log.lines_to(show))
    atexit.register(screen.close)


def show_full_disk_at_exit(base: Path) -> None:
    """Print a line at the end of this process if a disk is full that Snakemake or the runs write to."""

    def show_last() -> None:
        if full := disk.first_full([(base / NOTES).parent, base / RESULTS]):
            sys.stderr.write(f"unbroken: {full}\n")

    atexit.register(show_last)


def unrehearsed(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return a line for all runs that begin now and were not rehearsed, and one for each whose rehearsal went badly."""
    new, told = [], []
    for run in runs:
        folder = RunFolder(run.name, base)
        if folder.history.exists() or folder.checkpoints.exists():
            continue
        made = read_rehearsal(run.name, base)
        if made is None:
            new.append(run.name)
        elif made.verdict in _BAD:
            told.append(f"{run.name}: {made.line()}; it starts all the same")
    if new:
        names = ", ".join(new[:_MOST_NAMES]) + (f" and {len(new) - _MOST_NAMES} more" if new[_MOST_NAMES:] else "")
        told.insert(0, f"not rehearsed: {names}; `unbroken rehearse {new[0]}` shows within minutes whether it resumes")
    return told


def standing(found: RunOnDisk) -> str:
    """Return one line on a run that is not finished: how far it is, and what to type; empty for one that is."""
    run, folder, last = found.run, found.folder, found.last
    attempts = all_attempts(folder)
    if found.is_finished or _is_told_by_console(attempts):
        return ""
    if attempts and not attempts[-1].kind.settles:
        return f"{run.name}: {_stopped(attempts[-1], run)}"
    if last is None:
        return f"{run.name}: not started{_log_of(folder, 1)}"
    goal = run.goal or last.progress.goal
    done = _how_far(last.progress.done, goal, last.progress.unit)
    if last.segment >= run.segments:
        more = run.segments + _segments_needed(last, goal)
        return f"{run.name}: {done}, all {run.segments} segments used; set segments: {more} and start again"
    log = _log_of(folder, last.segment + 1)
    return f"{run.name}: {done} after segment {last.segment} of {run.segments}{log}; start again to go on"


def _is_told_by_console(attempts: Sequence[Attempt]) -> bool:
    """Return True if the last attempt was interrupted under this driver, whose console has logged all about it."""
    last = attempts[-1] if attempts and driver_start.is_screen_taken() else None
    return last is not None and last.kind is EndKind.INTERRUPTED and last.start == driver_start.current()


def _segments_needed(last: Record, goal: float | None) -> int:
    """Return how many more segments a run needs at the pace it had, at least one."""
    if goal is None or last.progress.done <= 0:
        return 1
    per_segment = last.progress.done / last.segment
    return max(1, -int(-(goal - last.progress.done) // per_segment))


def _stopped(attempt: Attempt, run: RunSpec) -> str:
    """Say how far a run is whose last attempt settled nothing, why, and what to do."""
    if attempt.kind is EndKind.INTERRUPTED:
        return attempt.goes_on  # there is nothing to read
    done, log = _how_far(attempt.progress_to, run.goal, attempt.unit), RunFolder(run.name).log(attempt.segment)
    is_killed = attempt.kind is EndKind.DIED
    why = f"{attempt.line(log)}; start again to go on" if is_killed else attempt.advice(log)
    return f"{done}, stopped in segment {attempt.segment} of {run.segments}: {why}"


def _how_far(done: float, goal: float | None, unit: str) -> str:
    of_goal = f" of {goal:.10g}" if goal is not None else ""
    return f"{amount(done)}{of_goal} {unit}".rstrip()


def _log_of(folder: RunFolder, segment: int) -> str:
    """Return where to read on, if the segment has been tried."""
    return f"; log: {RunFolder(folder.name).log(segment)}" if folder.log(segment).exists() else ""
