"""Where a run stands at a start that has nothing to do for it, and what to type."""

from __future__ import annotations

from pathlib import Path

from unbroken.plan.outdated import has_finished, last_record
from unbroken.runs.attempts import all_attempts
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import amount
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind


def standing(run: Run, base: Path) -> str:
    """One line on a run that is not finished, empty for one that is."""
    places = RunFolder(run.name, base)
    last, attempts = last_record(places), all_attempts(places)
    if has_finished(places, run):
        return ""
    if attempts and not attempts[-1].kind.settles:
        return f"{run.name}: {_stopped(attempts[-1], run)}"
    if last is None:
        return f"{run.name}: not started{_log_of(places, 1)}"
    progress = last.progress
    done = _how_far(progress.done, run.goal or progress.goal, progress.unit)
    if last.segment >= run.segments:
        more = run.segments + needed_segments(last, run)
        return f"{run.name}: {done}, all {run.segments} segments used; set segments: {more} and start again"
    log = _log_of(places, last.segment + 1)
    return f"{run.name}: {done} after segment {last.segment} of {run.segments}{log}; start again to go on"


def needed_segments(last: Record, run: Run) -> int:
    """How many more segments a run needs at the pace it had, at least one."""
    goal = run.goal or last.progress.goal
    if goal is None or last.progress.done <= 0:
        return 1
    per_segment = last.progress.done / last.segment
    return max(1, -int(-(goal - last.progress.done) // per_segment))


def _stopped(attempt: Attempt, run: Run) -> str:
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


def _log_of(places: RunFolder, segment: int) -> str:
    """Where to read on, if the segment has been tried."""
    log = places.log(segment)
    return f"; log: {RunFolder(places.name).log(segment)}" if log.exists() else ""
