"""Files of a run as another unbroken leaves them: written by today's writers, with the next number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from support.making import ATTEMPT
from support.toyrun import rewrite_passport

from unbroken.job import spec
from unbroken.job.spec import JobSpec
from unbroken.store import claim, history, lease, record
from unbroken.store.checkpoint import FORMAT, folder_name
from unbroken.store.checkpoints import Store
from unbroken.store.history import History
from unbroken.store.layout import Format, RunFolder


def later(written: Format) -> Format:
    return replace(written, newest=written.newest + 1)


def number_later(path: Path, written: Format) -> None:
    path.write_text(json.dumps(written.read(path) | {written.key: written.newest + 1}))


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
    with lease.take(places.lease, 1, 0.0):
        pass
    path = sorted(places.lease.glob("*.json"))[-1]
    number_later(path, claim.FORMAT)
    return path


def newer_spec(written: JobSpec, base: Path) -> Path:
    """What the next jobs need to know."""
    path = base / written.write(base)
    number_later(path, spec.FORMAT)
    return path


# What lies in a run's folder, and what a copy of a run has too.
NEWER: dict[str, Callable[[RunFolder], Path]] = {
    "passport": newer_passport,
    "archived passport": newer_archived_passport,
    "record": newer_record,
    "history": newer_line,
    "claim": newer_claim,
}
