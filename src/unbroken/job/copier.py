"""Copy what a segment publishes to the run's replica, in a thread in the background.

No segment reads the replica: `unbroken restore` does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from unbroken.copies.outputs import OutputPlace, OutputTransfer, shortened
from unbroken.copies.replica import Replica, said
from unbroken.copies.transfer import Transfer
from unbroken.engines.base import Engine
from unbroken.errors import CheckpointError, ConfigError, FencedError, UnbrokenError
from unbroken.job.attempt import Alarm, Job
from unbroken.job.deadline import deadline_for
from unbroken.slurm.this_job import job_around_us
from unbroken.store.checkpoint import Checkpoint, age_by_name, describe_done, only_parts, read_passport
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunOutput
from unbroken.store.lease import Lease
from unbroken.store.run import CopySettings
from unbroken.system import disk, fs
from unbroken.system.clock import unix_seconds

logger = logging.getLogger(__name__)

# What the thread of the copies is told.
_ROUND, _END = True, False
# How long the end of a segment waits for a copy under way, which the next job continues.
ENDING_SECONDS = 30.0
# And where there is no next job, at the end of the run.
LAST_ENDING_SECONDS = 600.0
# What stays before Slurm ends the job by force.
RESERVE_SECONDS = 10.0
# How long a thread that was asked to stop may take for its present step.
CUTTING_SECONDS = 2.0
# The program comes first: a larger number yields more.
_NICENESS = 10


class _CutOffError(Exception):
    """The segment is over."""


class Copier:
    """Copy while the `with` block lasts.

    Whatever is wrong with the replica costs one line: the run continues, and the next checkpoint is tried again.
    """

    def __init__(self, job: Job, settings: CopySettings, held: Lease, alarm: Alarm, engine: Engine) -> None:
        self._job, self._settings, self._held, self._alarm, self._engine = job, settings, held, alarm, engine
        self._store, self._replica = Store(job.places.checkpoints), Replica(job.base / settings.folder / job.run.name)
        there = self._replica.store
        self._to_store = Transfer(there.root, self._check, self._confirm)
        self._to_archive = Transfer(there.archive, self._check, self._confirm)
        self._outputs = OutputTransfer(OutputPlace(job.places.root, self._working), self._replica.root, self._check)
        self.busy = ""  # the checkpoint that is being copied: not to be pruned
        self.is_last = False  # the run is finished: no later job continues the copy
        self._rounds, self._cut = queue.SimpleQueue[bool](), threading.Event()  # another round, or the end
        self._bad, self._has_failed = set[str](), False
        self._thread = threading.Thread(target=self._live, name="copies", daemon=True)

    def wake(self) -> None:
        """Copy a new checkpoint."""
        if self._rounds.empty():  # else one that begins later copies it
            self._rounds.put(_ROUND)

    def __enter__(self) -> Copier:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rounds.put(_ROUND)
        self._rounds.put(_END)
        self._wait()
        self._cut.set()
        self._thread.join(CUTTING_SECONDS)
        if self._thread.is_alive() or self.busy:
            rest = "it is not complete" if self.is_last else "the next job continues it"
            self._tell(f"the copy of {self.busy or 'the last checkpoint'} was cut off; {rest}")

    def _wait(self) -> None:
        """Wait for a copy under way as long as Slurm leaves time for it, and nothing interrupts the job."""
        self._thread.join(min(1.0, ENDING_SECONDS))
        job = job_around_us() if self._thread.is_alive() else None
        forced = deadline_for(0.0, job).forced
        longest = LAST_ENDING_SECONDS if self.is_last else ENDING_SECONDS
        give_up = min(time.monotonic() + longest, forced - RESERVE_SECONDS)
        while self._thread.is_alive() and time.monotonic() < give_up and self._alarm.interruption is None:
            self._thread.join(0.1)

    def _tell(self, line: str) -> None:
        logger.info(f"copies: {line}")

    # --- the thread --------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        with contextlib.suppress(OSError):  # where a container forbids it, or threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with contextlib.suppress(_CutOffError):  # `busy` says of what
            while self._tried() and self._rounds.get():
                continue

    def _tried(self) -> bool:
        """Copy what is due; return False if this attempt must copy nothing more."""
        is_of_use = True
        try:
            self._update()
        except (ConfigError, FencedError) as error:
            self._tell(f"{error}; this job copies nothing more")
            is_of_use = False
        except (UnbrokenError, OSError) as error:
            if isinstance(error, OSError) and disk.is_full(
                error
            ):  # what does not fit must not fill the disk for others
                with contextlib.suppress(UnbrokenError, OSError):
                    self._tidy()
            if not self._has_failed:
                self._tell(f"{said(error)}; the run continues, and the next checkpoint is tried again")
            self._has_failed = True
        self.busy = ""
        return is_of_use

    def _update(self) -> None:
        self._check()
        self._replica.take_up(self._job.places)
        self._mirror()
        self._copy_pieces()
        while (checkpoint := self._due()) is not None:
            self.busy = checkpoint.name
            self._copy(checkpoint)
            self.busy = ""
            self._mirror()

    def _check(self) -> None:
        if self._cut.is_set():
            raise _CutOffError
        self._held.confirm()

    def _confirm(self) -> None:
        self._check()
        self._replica.confirm(self._job.places)

    def _mirror(self) -> None:
        """Copy history, records and what was accepted, unless the copy has the size and, in whole seconds, the time."""
        self._confirm()
        run, replica = self._job.places, self._replica.folder
        replica.segments.mkdir(exist_ok=True)
        for path in (run.history, run.accepted, *sorted(run.segments.glob("[0-9]*.json"))):
            target = replica.root / path.relative_to(run.root)
            if path.exists() and _stamp(path) != _stamp(target):
                self._check()
                found = path.stat()
                fs.write_atomic(target, path.read_text(errors="replace"))
                os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))

    def _copy_pieces(self) -> None:
        """Copy the parts of earlier checkpoints that the replica has neither alone nor with their checkpoint."""
        there = {*self._replica.store.archived(), *self._replica.store.names(), *self._bad}
        # The store before its archive: what is pruned meanwhile is then seen twice, and not never.
        here = sorted({*self._store.names(), *self._store.archived()}, key=age_by_name)
        for name in (name for name in here[:-1] if name not in there):
            folder = self._store.root / name
            folder = folder if folder.is_dir() else self._store.archive / name
            with self._leaving_out(folder):
                checkpoint = Checkpoint(folder, read_passport(folder))
                if checkpoint.parts:
                    self._to_archive.copy(only_parts(checkpoint))

    def _due(self) -> Checkpoint | None:
        """Return a checkpoint whose copy was cut off; else the newest, unless the last copy is too young for it."""
        store = self._replica.store
        there, known = store.readable(), {*store.names(), *self._bad}
        begun = {*self._to_store.unfinished()} - known
        everything = self._store.readable()
        if half := [each for each in everything if each.name in begun]:
            return half[-1]
        newest = everything[-1] if everything else None
        if newest is None or newest.name in known:
            return None
        if not there or newest.passport.is_finished:
            return newest
        age = unix_seconds(newest.passport.created_utc) - unix_seconds(there[-1].passport.created_utc)
        # A negative age is due: the last one was made on a node whose clock is ahead.
        return None if 0 <= age < self._settings.every_minutes * 60 else newest

    def _copy(self, checkpoint: Checkpoint) -> None:
        began = time.monotonic()
        self._confirm()
        self._to_store.drop_unfinished(but=checkpoint.name)
        with self._leaving_out(checkpoint.folder):
            shown = self._outputs_of(self._replica.store.readable())
            if lacking := self._outputs.copy(self._outputs_of([checkpoint]), shown):
                self._tell(f"{checkpoint.name}: gone, or written again before they were copied: {shortened(lacking)}")
            self._to_store.copy(checkpoint)
            copied = f"{checkpoint.name} ({describe_done(checkpoint)}) copied to {self._replica.root}"
            self._tell(f"{copied} in {time.monotonic() - began:.2f} s")
            self._has_failed = False
        self._tidy()

    @contextlib.contextmanager
    def _leaving_out(self, folder: Path) -> Iterator[None]:
        """Try a bad checkpoint no more in this attempt; one that was pruned in this moment is found in the archive."""
        try:
            yield
        except CheckpointError as error:
            if folder.is_dir():
                self._bad.add(folder.name)
                self._tell(f"{folder.name} is not copied: {error}")

    def _tidy(self) -> None:
        """Remove what killed writers left, old copies, and what belonged to them."""
        self._confirm()
        self._to_store.drop_unfinished()
        self._to_archive.drop_unfinished()
        self._replica.store.remove_leftovers()
        for folder in (self._replica.root, self._replica.folder.segments):
            fs.remove_drafts(folder, fs.DRAFT_SECONDS)
        for why in self._replica.store.prune(self._settings.keep, 0, confirm=self._confirm):
            self._tell(f"an old copy is not removed yet ({why})")
        self._outputs.drop_unneeded(self._outputs_of(self._replica.store.readable()), self._confirm)

    def _outputs_of(self, checkpoints: Iterable[Checkpoint]) -> list[RunOutput]:
        """Return what belongs to them and lies outside of them; of a bad one nothing, `Transfer` finds it out."""
        found: list[RunOutput] = []
        for each in checkpoints:
            with contextlib.suppress(CheckpointError):
                found += self._engine.outputs(each)
        return found

    def _working(self) -> Iterable[Path]:
        """Return the program's folder in that of each attempt, the newest first."""
        name = self._engine.output_folder
        return sorted(self._job.places.work.glob(f"*/{name}"), reverse=True) if name else ()


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_size, int(found.st_mtime)
    return None
