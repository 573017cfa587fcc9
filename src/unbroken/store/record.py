"""The record: the small file that a segment's rule emits, `results/<run>/segments/<segment>.json`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Checkpoint, age_by_name
from unbroken.store.formats import Format, known_fields
from unbroken.store.history import Attempt
from unbroken.store.progress import Progress, parse_progress
from unbroken.store.run import RunSpec
from unbroken.store.segment_end import EndKind
from unbroken.system.clock import utc_now

FORMAT = Format(2)


@dataclass(frozen=True)
class Record:
    """Record the checkpoint and the end of a segment; `has_worked` is false where it only passed a finish on."""

    run: str
    segment: int
    kind: EndKind
    has_worked: bool
    checkpoint: str
    progress: Progress
    written_utc: str

    def write(self, path: Path) -> None:
        """Publish the record in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMAT.write(path, {**vars(self), "progress": self.progress.to_json()})
        with contextlib.suppress(OSError):
            _let_no_older_one_be_newer(path, path.with_name(f"{self.segment - 1:03d}.json"))


def read_record(path: Path) -> Record | None:
    """Return the record at `path`, None without a valid one; raise FormatError if it is of another format."""
    data = FORMAT.found(path)
    try:
        progress = parse_progress(data["progress"], str(path))
        return Record(**{**known_fields(Record, data), "kind": EndKind(data["kind"]), "progress": progress})
    except (ValueError, TypeError, KeyError, CheckpointError):
        return None


# --- from the store ---


def record_if_done(
    run: RunSpec, segment: int, newest: Checkpoint, attempts: Callable[[], Sequence[Attempt]]
) -> Record | None:
    """Return the record of a segment whose work is done, by the newest checkpoint and the history; else None."""
    if is_finished(newest, run):
        return record_of(run, segment, EndKind.FINISHED, newest)
    is_passed = newest.passport.segment > segment
    if is_passed or any(each.segment == segment and _stands(each, newest) for each in attempts()):
        return record_of(run, segment, EndKind.PAUSED, newest)
    return None


def record_of(run: RunSpec, segment: int, kind: EndKind, left: Checkpoint) -> Record:
    """Return the record of a segment that ended so; `left` is the checkpoint it left, or an earlier one at the goal."""
    has_worked = kind is EndKind.PAUSED or segment <= left.passport.segment
    return Record(run.name, segment, kind, has_worked, left.name, left.passport.progress, utc_now())


def is_finished(checkpoint: Checkpoint | None, run: RunSpec | None) -> bool:
    """Return True if the checkpoint reached the goal as it is by now, raised or lowered; of an unknown run its own."""
    if checkpoint is None:
        return False
    passport = checkpoint.passport
    if run is None or not passport.is_finished:
        return passport.is_finished or (run is not None and run.is_past_goal(passport.progress))
    return run.is_content_with(passport.progress)


def _stands(attempt: Attempt, newest: Checkpoint) -> bool:
    """Return True if an attempt settled its segment and its work has not been lost to a bad checkpoint since."""
    left = attempt.to_checkpoint or attempt.from_checkpoint
    return attempt.kind.settles and left is not None and age_by_name(left)[0] <= newest.passport.sequence


def _let_no_older_one_be_newer(path: Path, before: Path) -> None:
    """Set the time of the record before to this one's if it is newer: Snakemake fails a job whose input is newer."""
    written = path.stat().st_mtime_ns
    if before.stat().st_mtime_ns > written:
        os.utime(before, ns=(written, written))
