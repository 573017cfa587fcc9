"""What a start refuses about a run on disk: files of a newer unbroken, from the future, or of another run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from unbroken.errors import ForeignFolderError, FormatError
from unbroken.job import spec
from unbroken.plan.outdated import has_finished
from unbroken.program import environment
from unbroken.runs.environment import changes
from unbroken.runs.environment import refusal as environment_refusal
from unbroken.runs.identity import content_files, identity_of, usable_identities
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.run import Run
from unbroken.runs.select import refusal
from unbroken.runs.store import Store
from unbroken.segment.job import Assignment

# File servers' clocks differ by a little, and no segment is over so soon.
FUTURE_SECONDS = 2.0


def newer(run: Run, base: Path) -> str:
    """That a newer unbroken wrote a file of the run; empty if none did.

    Of a finished run only its end is asked, since nothing of it will be touched.
    """
    places = RunFolder(run.name, base)
    try:
        if not has_finished(places, run):
            refuse_newer(places)
        spec.refuse_newer(run.name, base)
    except FormatError as error:
        return f"runs.{run.name}: {error}"
    return ""


def future_files(assignment: Assignment, base: Path) -> Iterator[str]:
    """Snakemake calls a job failed whose input is newer than its output, also for `ancient` inputs."""
    for key, name in content_files(assignment.run, assignment.keys):
        ahead = (base / name).stat().st_mtime - time.time()
        if ahead > FUTURE_SECONDS:
            found = f"{name} was changed {ahead:.0f} s in the future, says its time stamp"
            yield f"runs.{assignment.run.name}.settings.{key}: {found}; type: touch {name}"


def not_its_own(assignment: Assignment, base: Path) -> Iterator[str]:
    """That its folder or its checkpoints are not those of this run."""
    run = assignment.run
    places = RunFolder(run.name, base)
    if not has_finished(places, run):
        try:
            confirm_all_own(places.own)
        except ForeignFolderError as error:
            yield f"runs.{run.name}: {error}"
            return
    store = Store(places.checkpoints)
    checkpoints = store.readable()[-1:] if store.names() else []
    if not checkpoints:
        return
    identity = identity_of(run, assignment.keys, base)
    accepted = usable_identities(identity, places.accepted, checkpoints)
    if checkpoints[0].passport.identity not in accepted:
        yield refusal(run.name, checkpoints[0], identity)
    elif run.is_strict and not has_finished(places, run):
        now = environment.on_disk(run, base)
        if found := changes(checkpoints[0].passport, now, environment.unread(run, now) | environment.NOT_ON_DISK):
            yield environment_refusal(run.name, found)
