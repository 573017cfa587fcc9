"""Read what a run has on disk at a start: if it is finished, which records to make again, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unbroken.errors import ForeignFolderError, FormatError
from unbroken.job import spec
from unbroken.job.attempt import Assignment
from unbroken.program import environment
from unbroken.program.environment_changes import changes
from unbroken.program.environment_changes import refusal as environment_refusal
from unbroken.runs.before_work import refuse_newer
from unbroken.runs.identity import identity_of, usable_identities
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.record import Record, read_record
from unbroken.runs.results import SUMMARY
from unbroken.runs.run import RunSpec
from unbroken.runs.segment_end import EndKind
from unbroken.runs.select import refusal
from unbroken.runs.store import Store


def last_record(folder: RunFolder) -> Record | None:
    """Return the record of the last segment that has one."""
    paths = _record_paths(folder)
    return read_record(paths[-1]) if paths else None


def has_finished(folder: RunFolder, run: RunSpec) -> bool:
    """Return True if the run has reached what its config asks for, and its results are there."""
    last = last_record(folder)
    is_done = last is not None and last.kind is EndKind.FINISHED and run.is_content_with(last.progress)
    return is_done and (folder.final / SUMMARY).is_file()


def outdated_records(run: RunSpec, folder: RunFolder) -> list[Path]:
    """Return the records that block what is still to do; segments make them again in under a second.

    Those that only passed a finish on, if the goal was raised since; the last one, if the results are gone or the goal
    was lowered to what is done.
    """
    last = last_record(folder)
    if last is None or has_finished(folder, run):
        return []
    if last.kind is not EndKind.FINISHED:
        is_lowered = last.segment >= run.segments and run.is_past_goal(last.progress)
        return [folder.record(run.segments)] if is_lowered else []
    if run.is_content_with(last.progress):
        return [folder.record(min(last.segment, run.segments))]
    records = ((path, read_record(path)) for path in _record_paths(folder))
    return [path for path, record in records if record is not None and not record.has_worked]


def newer(run: RunSpec, base: Path) -> str:
    """Return the refusal of a run if a newer unbroken wrote one of its files; empty if none did.

    Only the end of a finished run is read, since nothing of it will be touched.
    """
    folder = RunFolder(run.name, base)
    try:
        if not has_finished(folder, run):
            refuse_newer(folder)
        spec.refuse_newer(run.name, base)
    except FormatError as error:
        return f"runs.{run.name}: {error}"
    return ""


def not_its_own(assignment: Assignment, base: Path) -> Iterator[str]:
    """Yield the refusals of a run whose folder or checkpoints are not its own."""
    run = assignment.run
    folder = RunFolder(run.name, base)
    if not has_finished(folder, run):
        try:
            confirm_all_own(folder.own)
        except ForeignFolderError as error:
            yield f"runs.{run.name}: {error}"
            return
    store = Store(folder.checkpoints)
    checkpoints = store.readable()[-1:] if store.names() else []
    if not checkpoints:
        return
    identity = identity_of(run, assignment.keys, base)
    if checkpoints[0].passport.identity not in usable_identities(identity, folder.accepted, checkpoints):
        yield f"runs.{run.name}: {refusal(run.name, checkpoints[0], identity)}"
    elif run.environment.is_strict and not has_finished(folder, run):
        now = environment.on_disk(run, base)
        if found := changes(checkpoints[0].passport, now, environment.unread(run, now) | environment.NOT_ON_DISK):
            yield environment_refusal(run.name, found)


def _record_paths(folder: RunFolder) -> list[Path]:
    found = folder.segments.glob("*.json") if folder.segments.is_dir() else []
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))
