"""Files of a run as another unbroken leaves them: written by today's writers, with the next number or old tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from support.making import ATTEMPT
from support.toyrun import rewrite_passport

from unbroken.job import spec
from unbroken.job.spec import JobSpec
from unbroken.runs import claim, history, lease, record
from unbroken.runs.checkpoint import FORMAT, OLD_TABLES, folder_name
from unbroken.runs.formats import Format
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import FileDigest
from unbroken.runs.store import FORMAT_FILE, Store


def later(written: Format) -> Format:
    return replace(written, newest=written.newest + 1)


def newer_passport(places: RunFolder) -> Path:
    """A checkpoint above the others, whole but for a key that nobody here knows."""
    newest = Store(places.checkpoints).readable()[-1]
    passport = replace(newest.passport, sequence=newest.passport.sequence + 1)
    folder = places.checkpoints / folder_name(passport)
    shutil.copytree(newest.folder, folder)
    rewrite_passport(folder, schema_version=FORMAT.newest + 1, sequence=passport.sequence, chunks=["ab12"])
    return folder / "manifest.json"


def newer_archived_passport(places: RunFolder) -> Path:
    """That of the newest checkpoint which was pruned to its parts."""
    folder = places.archive / Store(places.checkpoints).archived()[-1]
    rewrite_passport(folder, schema_version=FORMAT.newest + 1)
    return folder / "manifest.json"


def old_tables(places: RunFolder) -> Path:
    """Return a checkpoint above the others that has tables in it, as the first unbroken wrote them."""
    newest = Store(places.checkpoints).readable()[-1]
    files = {**newest.passport.files, OLD_TABLES: FileDigest(2, "")}
    passport = replace(newest.passport, sequence=newest.passport.sequence + 1, files=files)
    folder = places.checkpoints / folder_name(passport)
    folder.mkdir()
    path = folder / "manifest.json"
    path.write_text(passport.to_text())
    return path


def newer_record(places: RunFolder) -> Path:
    """Of the last segment that has one."""
    path = sorted(places.segments.glob("*.json"))[-1]
    found = record.read_record(path)
    assert found is not None
    with patch.object(record, "FORMAT", later(record.FORMAT)):
        found.write(path)
    return path


def newer_line(places: RunFolder) -> Path:
    """The last one of the history."""
    attempt = replace(ATTEMPT, token=90, segment=len(History(places.history).attempts()) + 1)
    with patch.object(history, "FORMAT", later(history.FORMAT)):
        History(places.history).append(attempt)
    return places.history


def newer_claim(places: RunFolder) -> Path:
    """That of a holder who gave the run back."""
    with patch.object(claim, "FORMAT", later(claim.FORMAT)), lease.take(places.lease, 1, 0.0, print):
        pass
    return sorted(places.lease.glob("*.json"))[-1]


def newer_store(places: RunFolder) -> Path:
    """The folder of checkpoints as a whole."""
    path = places.checkpoints / FORMAT_FILE
    path.write_text('{"format": 2}\n')
    return path


def newer_spec(written: JobSpec, base: Path) -> Path:
    """What the next jobs need to know."""
    with patch.object(spec, "FORMAT", later(spec.FORMAT)):
        return base / written.write(base)


# What lies in a run's folder, and what a copy of a run has too.
NEWER: dict[str, Callable[[RunFolder], Path]] = {
    "passport": newer_passport,
    "archived passport": newer_archived_passport,
    "tables": old_tables,
    "record": newer_record,
    "history": newer_line,
    "store": newer_store,
    "claim": newer_claim,
}
