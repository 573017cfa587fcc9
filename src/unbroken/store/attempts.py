"""Find how the attempts at a run ended, from its history, its lease and Slurm together."""

from __future__ import annotations

import itertools
import logging
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.errors import FormatError, LeaseError, UnbrokenError
from unbroken.slurm.job import NOT_TO_BLAME, EndState, ListedJob
from unbroken.slurm.queue import ended
from unbroken.slurm.this_job import current_job
from unbroken.store import driver_start, lease
from unbroken.store.checkpoint import IMPORT_SEGMENT, Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.claim import Claim, claim_path
from unbroken.store.driver_start import is_missing
from unbroken.store.history import Attempt, EndCause, EndKind, History, SegmentEnd
from unbroken.store.layout import RunFolder
from unbroken.store.lease import Lease
from unbroken.store.times import FILE_NAME as NOTE
from unbroken.store.times import FORMAT, Times, killed_words, read_times
from unbroken.system.clock import unix_seconds, utc_now
from unbroken.system.memory import out_of_memory_kills

logger = logging.getLogger(__name__)
# In the note of an import: what is imported.
_IMPORTING = "importing"
# Ends of a job that say why it was killed: not because its time was up.
_OTHER_REASONS = NOT_TO_BLAME | {EndState.CANCELLED, EndState.OUT_OF_MEMORY}


def died_attempt(claim: Claim, store: Store, attempts: Sequence[Attempt], until_utc: str = "") -> Attempt:
    """Return the line of history that a killed owner could not write any more, with what Slurm says of its job.

    `until_utc` is when the next one began, which may have published the last state of this one.
    """
    made = [checkpoint for checkpoint in store.readable() if checkpoint.passport.token == claim.token]
    end = how_slurm_ended(claim.slurm_job, claim.started_utc, claim.slurm_cluster)
    folder = RunFolder(store.root.parent.name, store=store.root.parent)
    noted = _noted(claim, folder)
    died = _died(claim, made, attempts, end.ending if end else _end_in_own_job(claim))
    died = replace(died, times=_times_of_killed(claim, folder, died, noted, end.end_unix if end else None))
    if _was_stopping(died, noted):
        seconds = round(max(0.0, (died.times.ended or 0.0) - (noted.stop_asked or 0.0)), 3)
        message = f"{died.message}; {killed_words(seconds, noted)}"
        died = replace(died, message=message, cause=EndCause.KILLED_STOPPING, killed_after_seconds=seconds)
    return replace(died, ended_utc=max(died.started_utc, min(died.ended_utc, until_utc or died.ended_utc)))


def attempt_at_work(folder: RunFolder, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the running attempt as its line would begin, no failure and without an end; None if none runs."""
    claim, why_free = _current_claim(folder)
    if claim is None or why_free or not _lacks_line(claim, attempts):
        return None
    noted = _noted(claim, folder)
    times = replace(noted, job_started=noted.job_started or unix_seconds(claim.started_utc))
    return replace(_died(claim, [], attempts, None), kind=EndKind.INTERRUPTED, message="", times=times)


def note_died(history: History, held: Lease, store: Store) -> None:
    """Add, and log, the lines of the owners before that were killed and have none."""
    for claim, following in itertools.pairwise([*held.earlier_claims(), held.claim]):
        attempts = history.attempts()
        if _lacks_line(claim, attempts):
            died = died_attempt(claim, store, attempts, following.started_utc)
            history.append(died)
            logger.info("attempt %s (segment %s): %s", died.token, died.segment, died.message)


def _current_claim(folder: RunFolder) -> tuple[Claim | None, str]:
    """Return the owner of a run and why it is free, as the lease says; no owner where the lease does not say."""
    try:
        return lease.current_claim(folder.lease)
    except (LeaseError, OSError):
        return None, ""


def _lacks_line(claim: Claim, attempts: Sequence[Attempt]) -> bool:
    is_over = claim.released_utc or claim.segment == IMPORT_SEGMENT
    return not is_over and all(attempt.token != claim.token for attempt in attempts)


def before_work(last: Attempt | None, segment: int, end: SegmentEnd, **job: Any) -> Attempt:
    """Return the line of an attempt that ended before its work, after `last`; `job` are fields of the attempt."""
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


def note(folder: RunFolder, attempt: Attempt) -> bool:
    """Add the line of an attempt that never held the lease; False if it cannot be written, or an attempt is running."""
    if is_missing(folder):
        return False
    try:
        with lease.take(folder.lease, attempt.segment, 0.0) as held:
            held.confirm()
            History(folder.history).append(replace(attempt, token=held.claim.token))
    except (UnbrokenError, OSError):
        return False
    return True


def all_attempts(folder: RunFolder, newest: int | None = None) -> list[Attempt]:
    """Return the history, or about so many of its newest attempts, oldest first.

    The last one may be the attempt of a killed job that has no line yet.
    """
    attempts = History(folder.history).attempts(newest)
    claim, why_free = _current_claim(folder)
    if claim is None or not _lacks_line(claim, attempts):
        return attempts
    if not why_free and how_slurm_ended(claim.slurm_job, claim.started_utc, claim.slurm_cluster) is None:
        return attempts  # it lives
    return [*attempts, died_attempt(claim, Store(folder.checkpoints), attempts)]


def began_unix(folder: RunFolder, segment: int) -> float | None:
    """Return when the work on a segment began that settled it; None if its history does not say."""
    with suppress(OSError, FormatError):
        for attempt in reversed(History(folder.history).attempts()):
            if attempt.segment == segment and not attempt.kind.is_before_work:
                return attempt.times.job_started or unix_seconds(attempt.started_utc)
    return None


def with_causes(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts; those since the last that settled a segment with what Slurm says of their jobs."""
    settled = max((place for place, attempt in enumerate(attempts, 1) if attempt.kind.settles), default=0)
    return [*attempts[:settled], *map(_with_cause, attempts[settled:])]


def _with_cause(attempt: Attempt) -> Attempt:
    if attempt.job_state or not attempt.slurm_job:
        return attempt
    found = how_slurm_ended(attempt.slurm_job, attempt.started_utc, attempt.slurm_cluster)
    return replace(attempt, job_state=found.ending) if found else attempt


def how_slurm_ended(slurm_job: str, started_utc: str, slurm_cluster: str = "") -> ListedJob | None:
    """Return how Slurm ended a start of a job; None outside Slurm, while it lives, or if it is unknown."""
    return ended(slurm_job, unix_seconds(started_utc), slurm_cluster) if slurm_job else None


def _end_in_own_job(claim: Claim) -> EndState | None:
    """Return how Slurm will say that the job around this process ended, if a killed owner was in it; None if unknown.

    The kernel has killed a process of the job then, and Slurm says it when the job has left.
    """
    job = current_job()
    if job is None or (job.job_id, platform.node()) != (claim.slurm_job, claim.host):
        return None
    kills = out_of_memory_kills(job.number)
    return EndState.OUT_OF_MEMORY if kills.is_job and kills.count else None


def _times_of_killed(claim: Claim, folder: RunFolder, died: Attempt, noted: Times, job_ended: float | None) -> Times:
    """Return what the attempt had noted until it was killed, which Slurm says, or its last heartbeat."""
    began = unix_seconds(claim.started_utc)
    saved = noted.saved or (unix_seconds(died.ended_utc) if died.to_checkpoint else None)
    own = folder.attempt(claim.token)
    # That of a training alone lies in its folder.
    last_step = _changed_unix((own if own.is_dir() else folder.root) / "progress.json")
    heartbeat = _changed_unix(claim_path(folder.lease, claim.token))
    ended = max(moment for moment in (began, saved, last_step, heartbeat, job_ended) if moment is not None)
    return replace(
        noted,
        job_started=noted.job_started or began,
        saved=saved,
        last_step=last_step,
        ended=ended,
        job_ended=job_ended and ended,
    )


def _was_stopping(died: Attempt, noted: Times) -> bool:
    """Return True for an attempt that was killed in the middle of a stop; `noted` is what it had written down."""
    asked, saved = noted.stop_asked, noted.saved
    if asked is None or noted.stop_margin_seconds is None or died.job_state in _OTHER_REASONS:
        return False
    return saved is None or saved < asked


def _noted(claim: Claim, folder: RunFolder) -> Times:
    in_attempt = folder.attempt(claim.token) / NOTE
    return read_times(in_attempt if in_attempt.exists() else times_path(folder.lease, claim.token))


def times_path(lease_folder: Path, token: int) -> Path:
    """Return where a training alone notes its times: next to its claim, with which it is forgotten."""
    return claim_path(lease_folder, token).with_suffix(f".{NOTE}")


def _changed_unix(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _died(claim: Claim, made: list[Checkpoint], attempts: Sequence[Attempt], state: EndState | None) -> Attempt:
    last = made[-1] if made else None
    before = attempts[-1].progress_to if attempts else 0.0
    why = f" ({state})" if state else ""
    return Attempt(
        **claim.of_attempt,
        kind=EndKind.DIED,
        message=f"the job was killed{why}; what it had published counts",
        job_state=state,
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


# --- imports ---


def note_import(folder: Path, source: Path) -> None:
    """Note in the folder of an attempt what it imports, until that is done."""
    FORMAT.write(folder / NOTE, {_IMPORTING: os.fspath(source.resolve())})


def unfinished_imports(work: Path) -> dict[Path, str]:
    """Return the folders of imports that are under way, or were killed, with what each imports, oldest first."""
    found = {path.parent: _imported_by(path) for path in sorted(work.glob(f"[0-9]*/{NOTE}"))}
    return {folder: source for folder, source in found.items() if source}


def _imported_by(note: Path) -> str:
    """Return what an import's note names; '' for that of an attempt, which a kill may have torn."""
    try:
        return str(FORMAT.read(note).get(_IMPORTING, ""))
    except (FileNotFoundError, ValueError):
        return ""
