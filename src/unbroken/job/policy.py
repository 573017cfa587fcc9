"""Decide what follows in a run: one policy for the segment, for its job on Slurm, and for a driver.

Pure: the attempts so far in, the next action out; `next_action_now` alone looks at disk and Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from unbroken.slurm.job import NOT_TO_BLAME, EndState
from unbroken.store.checkpoints import Store
from unbroken.store.history import FIX, Attempt, EndCause, EndKind
from unbroken.store.layout import RunFolder

# So many jobs in a row that could not reach their disk or their files stop a run.
UNAVAILABLE_IN_A_ROW = 2
# Slurm took the job away, or the end is unknown: the segment did nothing wrong.
TAKEN_AWAY = frozenset(state for state in EndState if state.is_interruption) | {EndState.UNKNOWN}
# What says nothing against the checkpoint from which an attempt resumed.
_OF_OTHERS = {EndCause.STORAGE, EndCause.KILLED_STOPPING, EndCause.NO_RESULTS}


class Next(Enum):
    """Name the next action."""

    RESUME = "go on from the newest checkpoint"  # no retry is used up
    MORE_MEMORY = "try again with more memory"
    RETRY = "try again"
    FALL_BACK = "go on from the checkpoint before the newest"
    WAIT = "go on after the job that works on the run"  # no retry is used up
    STOP = "make no further attempt"


@dataclass(frozen=True)
class NextAction:
    """Say what follows, what was found (by the last attempt, unless the run stops), and what to do after a stop."""

    kind: Next
    found: str = ""
    todo: str = ""

    @property
    def why(self) -> str:
        """Return why, in one line that says what to type."""
        return f"{self.found}; {self.todo}, then start snakemake again" if self.todo else self.found

    @property
    def stops(self) -> bool:
        """Return True if no further attempt is made."""
        return self.kind is Next.STOP


@dataclass(frozen=True)
class Rules:
    """Hold what a run allows; `retries` is None where Snakemake itself counts them."""

    attempts_without_progress: int
    retries: int | None = None


@dataclass(frozen=True)
class Situation:
    """Hold the other facts: the segment to be done, the checkpoints, and the nodes where the run could be tried."""

    segment: int
    newest: str = ""  # names of checkpoints
    older: str = ""  # the one before it
    other_nodes: int = 0  # in addition to those of the attempts
    log: object = ""  # where to read on, if the last attempt does not say it


def of_start(attempts: Sequence[Attempt], start: str) -> list[Attempt]:
    """Return the attempts since the user started snakemake, when counting begins: the first of that start and on."""
    first = next((place for place, attempt in enumerate(attempts) if attempt.start == start), len(attempts))
    return list(attempts[first:])


def canceled(slurm_job: str) -> str:
    """Return why a run stops whose job was canceled."""
    return f"Slurm job {slurm_job} was canceled; to go on, start snakemake again"


def next_action(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> NextAction:
    """Return what follows these attempts of one start of snakemake, oldest first, with their causes."""
    if stop := _stop(attempts, rules, now):
        return stop
    if _goes_back(attempts, rules, now):
        return NextAction(Next.FALL_BACK)
    if not attempts or attempts[-1].kind.settles:
        return NextAction(Next.RESUME)
    last = attempts[-1]
    if last.ran_out_of_memory:
        return NextAction(Next.MORE_MEMORY, last.line())
    is_its_own = last.kind is EndKind.FAILED or last.kind.is_before_work
    has_failed = is_its_own and not last.gets_more_margin and last.job_state not in TAKEN_AWAY
    return NextAction(Next.RETRY if has_failed else Next.RESUME, last.line())


def next_action_now(
    folder: RunFolder,
    attempts: Sequence[Attempt],
    rules: Rules,
    *,
    segment: int,
    spare_nodes: Callable[[], int],
    log: object = "",
) -> NextAction:
    """Ask `next_action` with what the disk and Slurm say of a run now.

    `spare_nodes` says how many nodes there are in addition to those that a job of the run needs; Slurm is asked only
    where that decides.
    """
    names = Store(folder.checkpoints).names()[-2:] if folder.checkpoints.is_dir() else []
    older, newest = ["", "", *names][-2:]
    now = Situation(segment, newest, older, log=log)
    action = next_action(attempts, rules, now)
    if action.kind in (Next.STOP, Next.FALL_BACK):
        tried = {attempt.slurm_node for attempt in attempts} - {""}
        # None where no node is known, as outside Slurm.
        now = replace(now, other_nodes=max(0, spare_nodes() - len(tried) + 1) if tried else 0)
        action = next_action(attempts, rules, now)
    return action


def _stop(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> NextAction | None:
    """Return why no further attempt is made; None if one is made."""
    if not attempts:
        return None
    last = attempts[-1]
    if last.job_state is EndState.CANCELLED:
        return NextAction(Next.STOP, canceled(last.slurm_job))
    if last.cause is EndCause.DIVERGED or last.kind is EndKind.REFUSED:
        return NextAction(Next.STOP, f"no further attempt is made: {last.line()}", last.todo or FIX)
    absent = _unavailable_in_a_row(attempts)
    if len(absent) >= UNAVAILABLE_IN_A_ROW:
        return _stop_by(last, now, f"{len(absent)} attempts in a row ended before their work{_on_nodes(absent)}")
    failures = failures_in_a_row(attempts, now.segment)
    if rules.retries is not None and failures > rules.retries:
        return _stop_by(last, now, f"segment {now.segment} failed {failures} times")
    idle = idle_attempts(attempts, now.segment)
    # Want of memory is no reason to stop: the next attempt gets more.
    if last.ran_out_of_memory or not _is_enough(idle, rules, now) or _goes_back(attempts, rules, now):
        return None
    what = f"{len(idle)} attempts without progress{_on_nodes(idle)}, no further one is made"
    return _stop_by(idle[-1], now, f"{what}{_from_both(idle, now)}")


def _stop_by(last: Attempt, now: Situation, what: str) -> NextAction:
    return NextAction(Next.STOP, f"{what}; last: {last.line(now.log)}", last.todo or FIX)


def _goes_back(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> bool:
    """Return True if the next attempt must resume from the checkpoint before the newest, which may be corrupt.

    This happens once: after as many attempts from the newest as a run is allowed, if all of them began their work.
    """
    idle = idle_attempts(attempts, now.segment)
    is_due = _is_enough(idle, rules, now) and not _is_enough(idle[:-1], rules, now)
    return is_due and now.older != "" and all(_speaks_against(now.newest, attempt) for attempt in idle)


def _speaks_against(checkpoint: str, attempt: Attempt) -> bool:
    of_others = attempt.kind.is_before_work or attempt.ran_out_of_memory or attempt.cause in _OF_OTHERS
    return not of_others and attempt.from_checkpoint == checkpoint


def failures_in_a_row(attempts: Sequence[Attempt], segment: int) -> int:
    """Return how often in a row the segment failed by its own fault.

    An attempt killed while stopping is no failure as long as the next one is asked to stop earlier.
    """
    count = 0
    for attempt in reversed(list(_once_an_array(attempts))):
        if attempt.segment == segment and attempt.gets_more_margin:
            continue
        if attempt.segment != segment or not attempt.kind.is_failure or attempt.kind is EndKind.DIED:
            break
        count += 1
    return count


def idle_attempts(attempts: Sequence[Attempt], segment: int) -> list[Attempt]:
    """Return the attempts at the segment since it last advanced, oldest first.

    Leave out those that lost the machine or the disk, which say nothing about the program, and those that were killed
    while stopping if the next one is asked to stop earlier.
    """
    idle: list[Attempt] = []
    best = -math.inf
    for attempt in _once_an_array(attempts):
        # One that went on from an earlier checkpoint is a step forward only where it comes further than those before.
        is_behind = attempt.progress_from < best and attempt.progress_to <= best
        if attempt.segment != segment or attempt.kind.settles or (attempt.has_advanced and not is_behind):
            idle = []
        elif _says_something(attempt):
            idle.append(attempt)
        best = max(best, attempt.progress_to)
    return idle


def _once_an_array(attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    """Yield the attempts; of an array's tasks that died on one node within seconds, with nothing run, the first."""
    before: tuple[str, str] | None = None
    for attempt in attempts:
        array, _, task = attempt.slurm_job.partition("_")
        never_ran = task and attempt.kind is EndKind.NEVER_RAN
        place = (array, attempt.slurm_node) if never_ran else None
        if place is None or place != before:
            yield attempt
        before = place


def _says_something(attempt: Attempt) -> bool:
    """Return True unless the machine or the disk was taken away, or the program got too little time to stop."""
    is_taken = attempt.job_state in NOT_TO_BLAME or attempt.kind is EndKind.UNAVAILABLE
    return not is_taken and not attempt.gets_more_margin


def _is_enough(idle: Sequence[Attempt], rules: Rules, now: Situation) -> bool:
    """Return True if these attempts are enough to stop the run.

    A broken node must not stop a run that advances on another one, so all on one node count half as much while there
    are others.  No other node helps attempts that are killed while stopping.
    """
    allowed = rules.attempts_without_progress
    if len(idle) < allowed:
        return False
    if all(attempt.was_killed_stopping for attempt in idle[-allowed:]):
        return True
    nodes = {attempt.slurm_node for attempt in idle[-allowed:]}
    return len(nodes) > 1 or now.other_nodes <= 0 or len(idle) >= 2 * allowed


def _from_both(idle: Sequence[Attempt], now: Situation) -> str:
    tried = {attempt.from_checkpoint for attempt in idle}
    if not now.older or now.newest not in tried or idle[-1].from_checkpoint != now.older:
        return ""
    return f", neither from {now.newest} nor from {now.older}, the checkpoint before; both stay where they are"


def _unavailable_in_a_row(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the last attempt of each job in the final row of unavailable ones; each job tries for a while itself."""
    jobs: list[Attempt] = []
    for attempt in reversed(attempts):
        if attempt.kind is not EndKind.UNAVAILABLE:
            break
        if not jobs or not attempt.slurm_job or attempt.slurm_job != jobs[-1].slurm_job:
            jobs.append(attempt)
    return jobs[::-1]


def _on_nodes(attempts: Sequence[Attempt]) -> str:
    blamed = (attempt.slurm_node for attempt in attempts if not attempt.was_killed_stopping)
    nodes = list(dict.fromkeys(node for node in blamed if node))
    return f" on {', '.join(nodes)}" if nodes else ""
