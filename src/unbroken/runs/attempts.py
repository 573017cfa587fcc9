"""How the attempts at a run ended, as its history, its lease and Slurm tell together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.errors import FormatError, LeaseError, UnbrokenError
from unbroken.runs import begun, driver_start, lease
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.claim import Claim, claim_path
from unbroken.runs.history import Attempt, History
from unbroken.runs.imported import SEGMENT as IMPORTED
from unbroken.runs.killed_stop import with_killed_stop
from unbroken.runs.layout import RunFolder
from unbroken.runs.segment_end import EndCause, EndKind, SegmentEnd
from unbroken.runs.store import Store
from unbroken.runs.times import FILE_NAME as TIMES
from unbroken.runs.times import Times, read_times
from unbroken.slurm.job_end import EndState, JobEnd, ended
from unbroken.system.clock import unix_seconds, utc_now

# A node is avoided after so many attempts that failed there without progress ...
FAILURES_OF_A_NODE = 2
# ... but a program that fails everywhere must not exclude a whole cluster.
MOST_NODES = 3
# Whoever repaired a node a week ago wants it to be used.
REMEMBERED_ATTEMPTS = 20


def died_attempt(claim: Claim, store: Store, attempts: Sequence[Attempt], until_utc: str = "") -> Attempt:
    """The line of history that a killed holder could not write any more, with what Slurm says of its job.

    `until_utc` is when the next one began, which may have published the last state of this one.
    """
    made = [checkpoint for checkpoint in store.readable() if checkpoint.passport.token == claim.token]
    end = how_slurm_ended(claim.slurm_job, claim.started_utc, claim.slurm_cluster)
    died = _died(claim, made, attempts, end)
    places = RunFolder(store.root.parent.name, store=store.root.parent)
    died = replace(died, times=_times_of_killed(claim, places, died, end.at_unix if end else None))
    died = with_killed_stop(died, _noted(claim, places))
    return replace(died, ended_utc=max(died.started_utc, min(died.ended_utc, until_utc or died.ended_utc)))


def attempt_at_work(places: RunFolder, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that works now as a line of history would begin: its times have no end; None if none does.

    None also where the lease does not say.  Its kind is that of one that is no failure.
    """
    try:
        claim, why_free = lease.current_claim(places.lease)
    except (LeaseError, OSError):
        return None
    if claim is None or why_free or claim.segment == IMPORTED or any(each.token == claim.token for each in attempts):
        return None
    noted = _noted(claim, places)
    times = replace(noted, job_started=noted.job_started or unix_seconds(claim.started_utc))
    return replace(_died(claim, [], attempts, None), kind=EndKind.INTERRUPTED, message="", times=times)


def note_died(history: History, previous: Claim, store: Store, until_utc: str) -> Attempt | None:
    """Adds the line of a holder that was killed: it did not release, and cannot write it any more.

    None if it has a line, or needs none.  `until_utc` as above.
    """
    attempts = history.attempts()
    if (
        previous.released_utc
        or previous.segment == IMPORTED
        or any(attempt.token == previous.token for attempt in attempts)
    ):
        return None
    attempt = died_attempt(previous, store, attempts, until_utc)
    history.append(attempt)
    return attempt


def before_work(last: Attempt | None, segment: int, end: SegmentEnd, **job: Any) -> Attempt:
    """Return the line of history of an attempt that ended before its work; `job` are fields of the attempt.

    `last` is the attempt before, from whose progress the run would have resumed.
    """
    now = utc_now()
    first, *more = end.message.splitlines() or [""]
    done, unit = (last.progress_to, last.unit) if last else (0.0, "")
    message = f"{first} (and {len(more)} more)" if more else first
    end = replace(end, message=message, progress_from=done, progress_to=done, unit=unit)
    known = {"token": 0, "segment": segment, "started_utc": now, "ended_utc": now, "start": driver_start.current()}
    return Attempt.of(end, **{**known, **job})


def reached(end: SegmentEnd, origin: Checkpoint | None, last: Checkpoint | None) -> SegmentEnd:
    """Return the end with where the attempt began and how far it came."""
    progress = last.passport.progress if last else None
    return replace(
        end,
        from_checkpoint=origin.name if origin else None,
        to_checkpoint=last.name if last is not None and has_newer(last, origin) else None,
        progress_from=origin.passport.progress.done if origin else 0.0,
        progress_to=progress.done if progress else 0.0,
        unit=progress.unit if progress else "",
    )


def has_newer(last: Checkpoint, origin: Checkpoint | None) -> bool:
    """Return True if the attempt brought the run forward; a checkpoint at the same place is no progress."""
    return origin is None or last.passport.progress.done > origin.passport.progress.done


def note(places: RunFolder, attempt: Attempt, tell: Callable[[str], None]) -> bool:
    """Adds the line of an attempt that never held the lease; False if it cannot be written, or somebody is at work."""
    if begun.is_missing(places):
        return False
    try:
        with lease.take(places.lease, attempt.segment, 0.0, tell) as held:
            held.confirm()
            History(places.history).append(replace(attempt, token=held.claim.token))
    except (UnbrokenError, OSError):
        return False
    return True


def all_attempts(places: RunFolder, newest: int | None = None) -> list[Attempt]:
    """Return the history, or about so many of its newest attempts, oldest first.

    At its end stands also the attempt of a killed job that nobody has written down yet.
    """
    attempts = History(places.history).attempts(newest)
    try:
        claim, why_free = lease.current_claim(places.lease)
    except (LeaseError, OSError):
        return attempts
    is_over = claim is None or claim.released_utc or claim.segment == IMPORTED
    if claim is None or is_over or any(attempt.token == claim.token for attempt in attempts):
        return attempts
    if not why_free and how_slurm_ended(claim.slurm_job, claim.started_utc, claim.slurm_cluster) is None:
        return attempts  # it lives
    return [*attempts, died_attempt(claim, Store(places.checkpoints), attempts)]


def began_unix(places: RunFolder, segment: int) -> float | None:
    """Return when the work on a segment began that settled it; None if its history does not say."""
    with suppress(OSError, FormatError):
        for attempt in reversed(History(places.history).attempts()):
            if attempt.segment == segment and not attempt.kind.is_before_work:
                return attempt.times.job_started or unix_seconds(attempt.started_utc)
    return None


def with_cause(attempt: Attempt) -> Attempt:
    """The same with what Slurm says of its job, if the attempt itself could not know it: it was told to leave."""
    if attempt.job_state or attempt.kind.settles or not attempt.slurm_job:
        return attempt
    found = how_slurm_ended(attempt.slurm_job, attempt.started_utc, attempt.slurm_cluster)
    return replace(attempt, job_state=found.ending) if found else attempt


def with_causes(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The same for all attempts since the last one that settled a segment."""
    settled = max((place for place, attempt in enumerate(attempts, 1) if attempt.kind.settles), default=0)
    return [*attempts[:settled], *map(with_cause, attempts[settled:])]


def how_slurm_ended(slurm_job: str, started_utc: str, slurm_cluster: str = "") -> JobEnd | None:
    """How Slurm ended the start of a job that ran then; None outside Slurm, while it lives, or if nobody knows."""
    return ended(slurm_job, unix_seconds(started_utc), slurm_cluster) if slurm_job else None


def out_of_memory_kills_of(run: str, mem_mb: int, base: Path = Path()) -> int:
    """How often a run needed more memory than the `mem_mb` of its config; raising that starts anew from 0."""
    killed = [attempt for attempt in all_attempts(RunFolder(run, base)) if attempt.ran_out_of_memory]
    return sum(attempt.mem_mb >= mem_mb for attempt in killed)


def grown_memory(mem_mb: int, growth: float, times: int, most: int) -> int:
    """What to ask for after so many ends because of memory: at most what a node has, where that is known (not 0)."""
    wanted = round(mem_mb * growth**times)
    return max(mem_mb, min(wanted, most or wanted))


def nodes_to_avoid(run: str, base: Path = Path()) -> list[str]:
    """The nodes on which the run failed again and again without progress, those of the last failures first."""
    failures: Counter[str] = Counter()
    newest: dict[str, None] = {}
    for attempt in History(RunFolder(run, base).history).attempts(REMEMBERED_ATTEMPTS):
        node = attempt.slurm_node
        if attempt.has_advanced:
            failures.pop(node, None)
        elif node and _is_failure_of_node(attempt):
            failures[node] += 1
            newest.pop(node, None)
            newest[node] = None
    bad = [node for node in reversed(newest) if failures[node] >= FAILURES_OF_A_NODE]
    return bad[:MOST_NODES]


def _is_failure_of_node(attempt: Attempt) -> bool:
    """A program's own crash may be the node's fault too; running out of memory and somebody's scancel are not.

    Nor is a stop that was given too little time, and results that cannot be made of what was computed.
    """
    of_others = {EndState.OUT_OF_MEMORY, EndState.CANCELLED, EndState.PREEMPTED, EndState.REQUEUED}
    if attempt.kind is EndKind.REFUSED or attempt.cause in (EndCause.KILLED_STOPPING, EndCause.NO_RESULTS):
        return False
    return attempt.kind.is_failure and attempt.job_state not in of_others


def _times_of_killed(claim: Claim, places: RunFolder, died: Attempt, job_ended: float | None) -> Times:
    """What the attempt had noted until it was killed: when Slurm says that its job left, else its last heartbeat."""
    began = unix_seconds(claim.started_utc)
    noted = _noted(claim, places)
    saved = noted.saved or (unix_seconds(died.ended_utc) if died.to_checkpoint else None)
    last_step = _last_step(claim, places)
    known = [moment for moment in (began, saved, last_step) if moment is not None]
    ended = max([*known, _changed_unix(claim_path(places.lease, claim.token)) or began])
    ended = max(ended, job_ended or ended)
    return replace(
        noted,
        job_started=noted.job_started or began,
        saved=saved,
        last_step=last_step,
        ended=ended,
        job_ended=job_ended and ended,
    )


def _noted(claim: Claim, places: RunFolder) -> Times:
    in_attempt = places.work / f"{claim.token:06d}" / TIMES
    return read_times(in_attempt if in_attempt.exists() else times_path(places.lease, claim.token))


def _last_step(claim: Claim, places: RunFolder) -> float | None:
    """When its progress changed last; that of a training alone lies in its folder."""
    in_attempt = places.work / f"{claim.token:06d}"
    return _changed_unix((in_attempt if in_attempt.is_dir() else places.root) / "progress.json")


def times_path(lease_folder: Path, token: int) -> Path:
    """Where a training alone notes its times: beside its claim, with which it is forgotten."""
    return claim_path(lease_folder, token).with_suffix(f".{TIMES}")


def _changed_unix(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _died(claim: Claim, made: list[Checkpoint], attempts: Sequence[Attempt], found: JobEnd | None) -> Attempt:
    last = made[-1] if made else None
    before = attempts[-1].progress_to if attempts else 0.0
    why = f": {found.ending.in_words} ({found.ending.value})" if found else ""
    return Attempt(
        **claim.of_attempt,
        kind=EndKind.DIED,
        message=f"the job was killed{why}; what it had published counts",
        job_state=found.ending if found else None,
        segment=claim.segment,
        started_utc=claim.started_utc,
        ended_utc=last.passport.created_utc if last else claim.started_utc,
        from_checkpoint=next((attempt.to_checkpoint for attempt in reversed(attempts) if attempt.to_checkpoint), None),
        to_checkpoint=last.name if last else None,
        progress_from=before,
        progress_to=last.passport.progress.done if last else before,
        unit=last.passport.progress.unit if last else "",
        work_seconds=last.passport.work_seconds if last else 0.0,
        saves=len(made),
    )
