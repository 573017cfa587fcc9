"""Record an attempt of a training started by hand: a line of its folder's history, and the record of its job.

From these records, `executor: unbroken` distinguishes a pause from a failure: inside the job, Snakemake turns exit code
85 into 1.  This module needs the standard library alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from unbroken.errors import UnbrokenError
from unbroken.program.contract import EXIT_PAUSED
from unbroken.slurm.this_job import SlurmJob
from unbroken.store.attempts import reached, times_path
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.exec_note import ExecNote, note_path, write_note
from unbroken.store.history import Attempt, EndCause, EndKind, History, SegmentEnd
from unbroken.store.layout import RunFolder, top_folder
from unbroken.store.lease import Lease
from unbroken.store.progress import Handover
from unbroken.store.times import Moments
from unbroken.system.clock import utc_now
from unbroken.system.host import own_start_unix
from unbroken.training.core.environment import say

_SAYS = {EndKind.FINISHED: "finished at", EndKind.PAUSED: "paused at", EndKind.INTERRUPTED: "told to leave; saved at"}


class Account:
    """Keep the account of the one process that writes the folder; of several ends the first counts."""

    def __init__(self, places: RunFolder, held: Lease, slurm_job: SlurmJob | None) -> None:
        self._history, self._held = History(places.history), held
        self._segment = self._history.next_segment()
        self._slurm_job = slurm_job
        self._moments = Moments(times_path(places.lease, held.claim.token), slurm_job, held.clock_ahead_seconds)
        before = self._history.attempts()
        self._moments.begin(own_start_unix(), before[-1].job_without_end if before else None)
        self._started, self._started_utc = self._moments.watch.clock(), utc_now()
        self._saves, self._save_seconds, self._has_ended = 0, 0.0, False
        top = top_folder(Path.cwd())
        self._name, self._store = _name(places.root, top), places.root
        self._note = note_path(top, os.environ)
        self._write_note(None)

    def note(self, moment: str) -> None:
        """Note that this happens now (a name of `store.times.Times`)."""
        self._moments.note(moment)

    def note_save(self, handover: Handover, publish_seconds: float) -> None:
        """Note that a checkpoint was published, and how long that took."""
        self._saves += 1
        self._save_seconds += handover.save_seconds or 0.0
        stall = 0.0 if self._moments.has("stop_asked") else handover.stood_still_seconds
        self._moments.note_save(publish_seconds + handover.beside_seconds, stall)

    def end(
        self,
        kind: EndKind,
        origin: Checkpoint | None,
        last: Checkpoint | None,
        message: str = "",
        cause: EndCause | None = None,
    ) -> None:
        """Write how the attempt ended; a disk that takes no line ends no training whose checkpoint is saved."""
        if self._has_ended:
            return
        self._has_ended = True
        end = SegmentEnd(kind=kind, message=message or _said(kind, last), cause=cause, times=self._moments.times())
        attempt = self._attempt(reached(end, origin, last))
        try:
            self._held.confirm()
            self._history.append(attempt)
        except (OSError, UnbrokenError) as error:
            say(f"{self._history.path}: no line for this attempt ({error})")
        self._write_note(kind)

    def _write_note(self, kind: EndKind | None) -> None:
        write_note(self._note, ExecNote(self._name, str(self._store), kind, self._segment))

    def _attempt(self, end: SegmentEnd) -> Attempt:
        return Attempt.of(
            end,
            **self._held.claim.of_attempt,
            segment=self._segment,
            started_utc=self._started_utc,
            ended_utc=utc_now(),
            work_seconds=round(self._moments.watch.clock() - self._started, 3),
            saves=self._saves,
            save_seconds=round(self._save_seconds, 3),
            exit_code=EXIT_PAUSED if end.kind in (EndKind.PAUSED, EndKind.INTERRUPTED) else None,
            slurm_partition=self._slurm_job.partition if self._slurm_job else "",
        )


def _name(folder: Path, top: Path) -> str:
    """Return what a line on the screen calls the folder."""
    return str(folder.relative_to(top)) if folder.is_relative_to(top) and folder != top else str(folder)


def _said(kind: EndKind, last: Checkpoint | None) -> str:
    if kind in _SAYS:
        return f"{_SAYS[kind]} {describe_done(last)}" if last else kind
    error = getattr(sys, "last_value", None)  # what ends the process
    if error is None:
        return "the process ended before its training was finished"
    return f"{type(error).__name__}: {error}".splitlines()[0]
