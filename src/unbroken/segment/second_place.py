"""Copies what a segment publishes to the second place, beside its work: a thread that nobody waits for but at the end.

Nothing here is ever read back by a segment: the way back is `unbroken.copies.restore`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from unbroken.copies.outputs import OutputTransfer, shortened
from unbroken.copies.place import SecondPlace, number_of, place_of, said
from unbroken.copies.transfer import Transfer, drafts
from unbroken.engines.base import Engine
from unbroken.errors import CheckpointError, ConfigError, FencedError, ForeignFolderError, StorageError, UnbrokenError
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.lease import Lease
from unbroken.runs.lineage import only_parts
from unbroken.runs.passport import read_passport
from unbroken.runs.run_output import OutputPlace, RunOutput
from unbroken.runs.store import Store
from unbroken.segment.deadline import deadline_for
from unbroken.segment.job import Job
from unbroken.segment.signals import Alarm
from unbroken.slurm.this_job import job_around_us
from unbroken.system import fs
from unbroken.system.clock import unix_seconds

# How long a segment waits for the second place before it begins: whether it belongs to another run should be known.
OPENING_SECONDS = 20.0
# At its end, before anybody is asked how much time there is.
FIRST_ENDING_SECONDS = 1.0
# And for a copy that is under way; the next job goes on with it.  After a run's last segment there is none.
ENDING_SECONDS = 30.0
LAST_ENDING_SECONDS = 600.0
# What is left then for leaving, where Slurm ends the job by force.
RESERVE_SECONDS = 10.0
# So long a thread that was told to stop may take for the chunk that it is at.
CUTTING_SECONDS = 2.0
# So long a folder of outputs may be between two places.
MOVING_SECONDS = 1.0
# The program comes first: a larger number yields more.
_NICENESS = 10


class _CutOffError(Exception):
    """The segment is over."""


class SecondPlaceCopier:
    """Copies in the background while its `with` block lasts; does nothing for a run without `copies`.

    ConfigError on entering if the second place belongs to another run.  If it is out of reach, full, or not writable,
    one line says so and the run goes on; after each further checkpoint it is tried again.
    """

    def __init__(self, job: Job, held: Lease, alarm: Alarm, engine: Engine) -> None:
        self._job, self._held, self._alarm, self._engine = job, held, alarm, engine
        self._store = Store(job.places.checkpoints)
        self._place = place_of(job.run, job.base)
        source = OutputPlace(job.places.root, self._working)
        target = self._place.root if self._place else job.places.root
        self._outputs = OutputTransfer(source, target, self._check, MOVING_SECONDS)
        self._lacking = True  # the newest copy may lack outputs
        self.busy = ""  # the checkpoint that is just being copied: not to be pruned
        self.is_last = False  # the run is finished, so that no later job goes on with the copy
        self._awake, self._opened = threading.Event(), threading.Event()
        self._ending, self._cut = threading.Event(), threading.Event()
        self._refused: ConfigError | None = None
        self._told, self._bad, self._seen = "", set[str](), dict[Path, tuple[int, int]]()
        self._thread = threading.Thread(target=self._live, name="copies", daemon=True)

    def wake(self) -> None:
        """There is a new checkpoint."""
        self._awake.set()

    def __enter__(self) -> SecondPlaceCopier:
        if self._place is None:
            return self
        self._thread.start()
        self.wake()
        if not self._opened.wait(OPENING_SECONDS):
            self._tell(f"{self._place.root}: no answer in {OPENING_SECONDS:g} s")
        if self._refused is not None:
            raise self._refused
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is None:
            return
        self._ending.set()
        self.wake()
        self._thread.join(FIRST_ENDING_SECONDS)
        if self._thread.is_alive():
            self._wait_a_little()
        self._cut.set()
        self._thread.join(CUTTING_SECONDS)
        if self._thread.is_alive() or self.busy:
            rest = "it is not complete" if self.is_last else "the next job goes on with it"
            self._job.tell(f"copies: the copy of {self.busy or 'the last checkpoint'} was cut off; {rest}")

    def _wait_a_little(self) -> None:
        job = job_around_us()
        forced = deadline_for(0.0, job.asked() if job else None).forced
        longest = LAST_ENDING_SECONDS if self.is_last else ENDING_SECONDS
        give_up = min(time.monotonic() + longest, forced - RESERVE_SECONDS)
        # Told to leave, and nobody knows by when.
        while self._alarm.interruption is None and not (self._alarm.heard and math.isinf(forced)):
            if not self._thread.is_alive() or time.monotonic() >= give_up:
                return
            self._thread.join(0.1)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        with contextlib.suppress(OSError):  # where a container forbids it, or threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        is_over = False
        while not is_over:
            self._awake.wait()
            self._awake.clear()
            is_over = self._ending.is_set()
            is_over = not self._tried(self._place) or is_over
            self._opened.set()

    def _tried(self, place: SecondPlace | None) -> bool:
        """One round; False if there shall be no further one."""
        try:
            if place is not None:
                self._round(place)
        except _CutOffError:
            return False
        except FencedError:  # whoever has the run now copies it
            return False
        except ConfigError as error:
            if not self._opened.is_set():
                self._refused = error
            else:
                self._job.tell(f"copies: {error}; the run goes on without")
            return False
        except (UnbrokenError, OSError) as error:
            self._tell_error(error)
        self.busy = ""
        return True

    def _round(self, place: SecondPlace) -> None:
        place.open(self._job.run, self._job.base)
        self._opened.set()
        self._mirror(place)
        newest = next(reversed(place.store.readable()), None)
        if self._lacking and newest is not None:
            self._copy_outputs(place, newest)
        while (checkpoint := self._next(place)) is not None:
            self._copy(place, checkpoint)
            self._mirror(place)
        for folder in (place.store.root, place.store.archive):
            Transfer(folder, self._held.claim.token).drop_drafts()

    def _check(self) -> None:
        if self._cut.is_set():
            raise _CutOffError

    def _confirm(self, place: SecondPlace) -> Callable[[], None]:
        def confirm() -> None:
            self._check()
            self._held.confirm()
            place.confirm(number_of(self._job.places.root))

        return confirm

    def _next(self, place: SecondPlace) -> Checkpoint | None:
        """What to copy: one that was cut off, then the newest, unless the last copy is younger than it need be."""
        self._check()
        settings = self._job.run.copies
        everything = self._store.readable()
        there = {*place.store.names(), *self._bad}
        begun = {name for name, _ in drafts(place.store.root)} - there
        if half := [each for each in everything if each.name in begun]:
            return half[-1]
        newest = everything[-1] if everything else None
        if newest is None or newest.name in there or settings is None:
            return None
        last = next(reversed(place.store.readable()), None)
        if last is None or newest.passport.is_finished:
            return newest
        age = unix_seconds(newest.passport.created_utc) - unix_seconds(last.passport.created_utc)
        # A negative age is due: the last one was made on a node whose clock is ahead.
        return None if 0 <= age < settings.every_minutes * 60 else newest

    def _copy(self, place: SecondPlace, checkpoint: Checkpoint) -> None:
        self.busy = checkpoint.name
        began = time.monotonic()
        token, confirm = self._held.claim.token, self._confirm(place)
        confirm()
        to_store = Transfer(place.store.root, token, self._check, confirm)
        to_archive = Transfer(place.store.archive, token, self._check, confirm)
        to_store.drop_drafts(checkpoint.name)
        _must_have_room(place, checkpoint, self._outputs.missing_bytes(self._outputs_of([checkpoint])))
        try:
            for piece in self._pieces(place, checkpoint):
                self._copy_piece(to_archive, piece)
            self._copy_outputs(place, checkpoint)
            if not self._copy_one(to_store, checkpoint):
                return
        except OSError as error:
            if fs.is_full(error):  # what does not fit shall not fill the disk for others
                to_store.drop_drafts()
                to_archive.drop_drafts()
                self._outputs.drop_unneeded(self._outputs_of(place.store.readable()))
            raise
        finally:
            if not self._cut.is_set():
                self.busy = ""
        seconds = time.monotonic() - began
        self._job.tell(
            f"copies: {checkpoint.name} ({describe_done(checkpoint)}) copied to {place.root} in {seconds:.2f} s"
        )
        self._told = ""
        self._prune(place)

    def _copy_outputs(self, place: SecondPlace, checkpoint: Checkpoint) -> None:
        """Bring what belongs to a checkpoint and lies outside of it."""
        there = place.store.readable()
        number = there[-1].passport.sequence if there else 0
        lacking = self._outputs.copy(self._outputs_of([checkpoint]), self._outputs_of(there), number)
        self._lacking = bool(lacking)
        line = f"copies: {checkpoint.name}: gone, or written again before they were copied: {shortened(lacking)}"
        if lacking and line not in self._bad:
            self._bad.add(line)
            self._job.tell(line)

    def _outputs_of(self, checkpoints: Iterable[Checkpoint]) -> list[RunOutput]:
        """Return what belongs to them and lies outside of them; of a bad one, which is found out elsewhere, nothing."""
        found: list[RunOutput] = []
        for each in checkpoints:
            with contextlib.suppress(CheckpointError):
                found += self._engine.outputs(each)
        return found

    def _working(self) -> Iterable[Path]:
        """Where the program's folder is while an attempt works, the newest attempt first."""
        name = self._engine.output_folder
        return sorted(self._job.places.work.glob(f"*/{name}"), reverse=True) if name else ()

    def _copy_piece(self, transfer: Transfer, piece: Checkpoint) -> None:
        """From the archive, if its checkpoint is pruned in this moment."""
        archived = self._store.archive / piece.name
        if not self._copy_one(transfer, piece) and piece.folder != archived and archived.is_dir():
            self._bad.discard(piece.name)
            self._copy_one(transfer, replace(piece, folder=archived))

    def _copy_one(self, transfer: Transfer, checkpoint: Checkpoint) -> bool:
        """True if it is there now; a bad one is told once and never tried again by this attempt."""
        try:
            transfer.copy(checkpoint)
        except CheckpointError as error:
            self._bad.add(checkpoint.name)
            if checkpoint.folder.is_dir():  # not just pruned
                self._job.tell(f"copies: {checkpoint.name} is not copied: {error}")
            transfer.drop_drafts()
            return False
        return True

    def _pieces(self, place: SecondPlace, newest: Checkpoint) -> Iterator[Checkpoint]:
        """The parts of earlier checkpoints that the second place has neither alone nor with their checkpoint."""
        there = {*place.store.archived(), *place.store.names(), *self._bad}
        # The store before its archive: what is pruned meanwhile is then seen twice, and not never.
        kept = [each for each in self._store.readable() if each.parts and each.age < newest.age]
        archived = self._store.archived()
        for name in archived:
            if name not in there:
                folder = self._store.archive / name
                yield only_parts(Checkpoint(folder, read_passport(folder)))
        for each in kept:
            if each.name not in there and each.name not in archived:
                yield only_parts(each)

    def _prune(self, place: SecondPlace) -> None:
        settings = self._job.run.copies
        self._confirm(place)()
        if settings is not None:
            place.store.remove_leftovers()
            for folder in (place.root, place.segments):
                fs.remove_drafts(folder, fs.DRAFT_SECONDS)
            for why in place.store.prune(settings.keep, 0, confirm=self._confirm(place)):
                self._tell(f"an old copy is not removed yet ({why})")
            self._outputs.drop_unneeded(self._outputs_of(place.store.readable()), self._confirm(place))

    # --- the small files ---------------------------------------------------------------------------------------------

    def _mirror(self, place: SecondPlace) -> None:
        """History, records and what was accepted, as they are now."""
        self._confirm(place)()
        places = self._job.places
        self._copy_text(places.history, place.history)
        self._copy_text(places.accepted, place.accepted)
        place.segments.mkdir(exist_ok=True)
        for record in sorted(places.segments.glob("[0-9]*.json")):
            self._check()
            self._copy_text(record, place.segments / record.name)

    def _copy_text(self, source: Path, target: Path) -> None:
        try:
            state = source.stat()
            text = source.read_text(errors="replace")
        except FileNotFoundError:
            return
        stamp = (state.st_mtime_ns, state.st_size)
        if self._seen.get(source) == stamp:
            return
        if not target.exists() or target.read_text(errors="replace") != text:
            fs.write_atomic(target, text)
        self._seen[source] = stamp

    # --- words -------------------------------------------------------------------------------------------------------

    def _tell_error(self, error: Exception) -> None:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if isinstance(error, ForeignFolderError):  # says more than the errno by which it was found
            cause = error
        if isinstance(cause, OSError) and not cause.filename and self._place is not None:  # the kernel names no file
            cause = OSError(cause.errno, cause.strerror, str(self._place.root))
        self._tell(said(cause), cause.strerror if isinstance(cause, OSError) else None)

    def _tell(self, line: str, kind: str | None = None) -> None:
        """Once, as long as it is of the same kind."""
        kind = kind or re.sub(r"[\d,]+", "", line)
        if kind != self._told:
            self._told = kind
            self._job.tell(f"copies: {line}; the run goes on, and the next checkpoint is tried again")


def _must_have_room(place: SecondPlace, checkpoint: Checkpoint, others_bytes: int) -> None:
    needed = others_bytes + sum(entry.size_bytes for entry in checkpoint.passport.files.values())
    there = sum(fs.tree_bytes(path) for name, path in drafts(place.store.root) if name == checkpoint.name)
    free = fs.free_bytes(place.root)
    if needed - there > free:
        raise StorageError(f"{place.root}: no room for a copy, {needed - there:,} bytes needed, {free:,} free")
