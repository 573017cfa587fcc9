"""Read what a run has on disk at a start: if it is finished, which records to make again, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from unbroken.errors import ForeignFolderError, FormatError
from unbroken.job import spec
from unbroken.job.attempt import Assignment
from unbroken.program import environment
from unbroken.program.environment_changes import changes
from unbroken.program.environment_changes import refusal as environment_refusal
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.store.own_folder import confirm_all_own
from unbroken.store.record import Record, read_record
from unbroken.store.results import SUMMARY
from unbroken.store.run import identity_of, usable_identities
from unbroken.store.select import refusal, refuse_newer


class RunOnDisk:
    """A run as it stands on disk; each file is read once, when it is needed first."""

    def __init__(self, assignment: Assignment, base: Path) -> None:
        self.run, self._keys, self._base = assignment.run, assignment.keys, base
        self.folder = RunFolder(self.run.name, base)

    @cached_property
    def last(self) -> Record | None:
        """Return the record of the last segment that has one."""
        return read_record(self._records[-1]) if self._records else None

    @cached_property
    def is_finished(self) -> bool:
        """Return True if the run has reached what its config asks for, and its results are there."""
        is_done = self.last is not None and self.last.kind is EndKind.FINISHED
        return is_done and self._is_content and (self.folder.final / SUMMARY).is_file()

    @cached_property
    def outdated(self) -> list[Path]:
        """Return the records that block what is still to do; segments make them again in under a second.

        Those that only passed a finish on, if the goal was raised since; the last one, if the results are gone or the
        goal was lowered to what is done.
        """
        if self.last is None or self.is_finished:
            return []
        if self.last.kind is not EndKind.FINISHED:
            is_lowered = self.last.segment >= self.run.segments and self.run.is_past_goal(self.last.progress)
            return [self.folder.record(self.run.segments)] if is_lowered else []
        if self._is_content:
            return [self.folder.record(min(self.last.segment, self.run.segments))]
        records = ((path, read_record(path)) for path in self._records)
        return [path for path, record in records if record is not None and not record.has_worked]

    def newer(self) -> str:
        """Return the refusal of a run if a newer unbroken wrote one of its files; empty if none did.

        Only the end of a finished run is read, since nothing of it will be touched.
        """
        try:
            if not self.is_finished:
                refuse_newer(self.folder)
            spec.refuse_newer(self.run.name, self._base)
        except FormatError as error:
            return f"runs.{self.run.name}: {error}"
        return ""

    def refusals(self) -> Iterator[str]:
        """Yield the refusals of a run whose folder or checkpoints are not its own."""
        run, where = self.run, f"runs.{self.run.name}"
        try:
            if not self.is_finished:
                confirm_all_own(self.folder.own)
        except ForeignFolderError as error:
            yield f"{where}: {error}"
            return
        store = Store(self.folder.checkpoints)
        checkpoints = store.readable()[-1:] if store.names() else []
        if not checkpoints:
            return
        identity = identity_of(run, self._keys, self._base)
        if checkpoints[0].passport.identity not in usable_identities(identity, self.folder.accepted, checkpoints):
            yield f"{where}: {refusal(run.name, checkpoints[0], identity)}"
        elif run.environment.is_strict and not self.is_finished:
            now = environment.on_disk(run, self._base)
            if found := changes(checkpoints[0].passport, now, environment.unread(run, now) | environment.NOT_ON_DISK):
                yield environment_refusal(run.name, found)

    @property
    def _is_content(self) -> bool:
        return self.last is not None and self.run.is_content_with(self.last.progress)

    @cached_property
    def _records(self) -> list[Path]:
        found = self.folder.segments.glob("*.json") if self.folder.segments.is_dir() else []
        return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))
