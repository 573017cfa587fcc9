"""A published checkpoint: its folder's name, its passport (`manifest.json`), and whether it is as it was published."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unbroken import __version__
from unbroken.errors import CheckpointError, OutageError, StorageError
from unbroken.store.layout import Format
from unbroken.store.progress import FileDigest, Handover, Progress, how_far, parse_progress
from unbroken.system import disk
from unbroken.system.clock import folder_stamp, utc_now
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.system.host import this_host

FILE_NAME = "manifest.json"
# The file is not what it was; every other error says something about the disk, the file server, or us.
_BAD_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
_FOLDER = re.compile(r"(?P<sequence>\d{6,})_.+?(?:_t(?P<token>\d+))?")
# So much of a unit is in a folder's name, which has 255 characters at most.
_LONGEST_UNIT = 40
# What a checkpoint's folder of this name holds is a piece of the result, and outlives the checkpoint.
PARTS = "parts"


FORMAT = Format(2, "schema_version")


# The segment of an imported checkpoint; those of the run begin at 1.
IMPORT_SEGMENT = 0


@dataclass(frozen=True)
class Imported:
    """Say where a run's first checkpoint came from; part of the manifest of that one and of all later ones.

    Where the user typed how far it is, `path` names the user's file in that first checkpoint, "." for the folder.
    """

    source: str
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    path: str = ""
    epoch: int = 0  # so many are finished
    step: int = 0


@dataclass(frozen=True)
class Passport:
    """Everything about one checkpoint; written once, last, and never changed."""

    run: str
    engine: str
    segment: int
    sequence: int
    token: int
    parent: str | None
    parent_digest: str | None
    progress: Progress
    is_finished: bool
    is_best: bool
    algorithm: str
    files: Mapping[str, FileDigest]
    identity: str
    identity_parts: Mapping[str, str]
    versions: Mapping[str, str]
    host: Mapping[str, object]
    slurm_job: Mapping[str, object] | None
    attempt_started_utc: str
    created_utc: str
    work_seconds: float
    save_seconds: float | None
    note: str = ""
    is_milestone: bool = False
    environment: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    imported: Imported | None = None
    digest: str = field(default="", compare=False)

    def to_text(self) -> str:
        """Return the JSON text, closed by a digest over everything else in it."""
        data = self._data()
        return FORMAT.text({**data, "digest": data_digest(data)})

    def _data(self) -> dict[str, object]:
        data = {key: dict(value) if isinstance(value, Mapping) else value for key, value in vars(self).items()}
        del data["digest"]
        data["imported"] = vars(self.imported) if self.imported else None
        data["progress"] = self.progress.to_json()
        data["files"] = {name: vars(entry) for name, entry in self.files.items()}
        return {FORMAT.key: FORMAT.newest, **data}


def passport_of(handover: Handover, parent: Checkpoint | None, **known: Any) -> Passport:
    """Return the passport of a state that is handed over now and was made from `parent`; `known` are other fields."""
    return Passport(
        parent=parent.name if parent else None,
        parent_digest=parent.passport.digest if parent else None,
        progress=handover.progress,
        is_finished=handover.is_finished,
        is_best=handover.is_best,
        is_milestone=handover.is_milestone,
        algorithm=handover.algorithm or preferred_algorithm(),
        files=handover.digests,
        save_seconds=handover.save_seconds,
        versions={"unbroken": __version__, **known.pop("versions", {}), **handover.versions},
        host=this_host().to_json(),
        created_utc=utc_now(),
        **known,
    )


def data_digest(data: object) -> str:
    """Return the sha256 over the canonical JSON of `data` (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_passport(folder: Path) -> Passport:
    """Return a checkpoint folder's passport; raise CheckpointError if it is bad, FormatError if of another version."""
    path = folder / FILE_NAME
    with reading(path):
        try:
            return _parsed(FORMAT.read(path), str(path))
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: there is no passport") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: the passport cannot be read ({error})") from error


def read_import(resume: Path | None) -> Imported | None:
    """Return what a training must know of a checkpoint that holds the user's files alone; None of any other."""
    if resume is None or not (resume / FILE_NAME).exists():
        return None
    passport = read_passport(resume)
    found = passport.imported if passport.segment == IMPORT_SEGMENT else None
    return found if found is not None and found.path else None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Distinguish a checkpoint that is bad (CheckpointError) from one that cannot be read.

    Raise OutageError if that may pass by itself, StorageError for everything else.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _BAD_ERRNOS:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        if error.errno in disk.OUTAGE_ERRNOS:
            raise OutageError(f"{path}: {error.strerror}; that says nothing about the checkpoint") from error
        raise StorageError(f"{path}: {error.strerror}", todo="make it readable") from error


def _parsed(data: dict[str, Any], source: str) -> Passport:
    """Return the passport in an object; raise CheckpointError if a key is missing, unknown, mistyped or altered."""
    digest = data.pop("digest", None)
    if digest != data_digest(data):
        raise CheckpointError(f"{source}: the passport was altered (its own digest does not match)")
    del data[FORMAT.key]
    try:
        progress = parse_progress(data["progress"], source)
        files = {_inside(name, source): FileDigest(**entry) for name, entry in data["files"].items()}
        imported = _imported(data["imported"]) if data["imported"] is not None else None
        return Passport(**{**data, "progress": progress, "files": files, "imported": imported, "digest": digest})
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{source}: not a passport of unbroken ({error})") from error


def _imported(data: dict[str, Any]) -> Imported:
    fields: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in data.items()}
    return Imported(**fields)


def _inside(name: str, source: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise CheckpointError(f"{source}: the file name {name!r} points outside the checkpoint")
    return name


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint and its passport."""

    folder: Path
    passport: Passport

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def parts(self) -> dict[str, FileDigest]:
        """Return the files below `parts/`, which outlive the checkpoint."""
        return {name: entry for name, entry in self.passport.files.items() if name.startswith(f"{PARTS}/")}

    @property
    def age(self) -> tuple[int, int]:
        """Return what is greater of a newer one; the token decides between a writer and a zombie before it."""
        return self.passport.sequence, self.passport.token


def names_in(folder: Path) -> list[str]:
    """Return the names of what looks like a checkpoint, oldest first; nothing is opened."""
    if not folder.is_dir():
        return []
    found = (name for name in os.listdir(folder) if _FOLDER.fullmatch(name))
    return sorted(found, key=lambda name: (int(name.partition("_")[0]), name))


def age_by_name(name: str) -> tuple[int, int]:
    """Return the `Checkpoint.age` of one whose passport cannot be read."""
    match = _FOLDER.fullmatch(name)
    return (int(match["sequence"]), int(match["token"] or 0)) if match else (0, 0)


def folder_name(passport: Passport) -> str:
    """Return `000042_1200-steps_20261121T022642Z_t7`; the token tells two writers of the same number apart."""
    is_long = 1e6 <= abs(passport.progress.done) < 1e15
    done = f"{passport.progress.done:.0f}" if is_long else f"{passport.progress.done:.6g}"
    unit = re.sub(r"[^A-Za-z0-9]+", "-", passport.progress.unit)[:_LONGEST_UNIT].strip("-") or "steps"
    stamp = folder_stamp(passport.created_utc)
    return f"{passport.sequence:06d}_{done}-{unit}_{stamp}_t{passport.token}"


def verify_files(checkpoint: Checkpoint, seen: Callable[[int], None] = lambda count: None) -> None:
    """Read every file of a checkpoint again; CheckpointError names the first that is not as it was published.

    `seen` gets the bytes of each file that was found good, for a progress bar.
    """
    for name, entry in checkpoint.passport.files.items():
        path = checkpoint.folder / name
        with reading(path):
            _verify_file(path, entry, checkpoint.passport.algorithm)
        seen(entry.size_bytes)


def _verify_file(path: Path, entry: FileDigest, algorithm: str) -> None:
    try:
        state = path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{path}: missing") from error
    if not stat.S_ISREG(state.st_mode):
        raise CheckpointError(f"{path}: not a plain file any more")
    if state.st_size != entry.size_bytes:
        raise CheckpointError(f"{path}: {state.st_size} bytes, published with {entry.size_bytes}")
    if digest_file(path, algorithm) != entry.digest:
        raise CheckpointError(f"{path}: the content changed since it was published (digest)")


def describe_done(checkpoint: Checkpoint) -> str:
    """Return `1200 of 5000 steps`."""
    progress = checkpoint.passport.progress
    return how_far(progress.done, progress.goal, progress.unit)


def only_parts(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint as it is once it was pruned: its passport names the parts alone."""
    return replace(checkpoint, passport=replace(checkpoint.passport, files=checkpoint.parts))


def verified_parts(checkpoint: Checkpoint) -> list[Path]:
    """Return the files below `parts/` of a checkpoint; CheckpointError names one that is not as published."""
    verify_files(only_parts(checkpoint))
    return [checkpoint.folder / name for name in checkpoint.parts]
