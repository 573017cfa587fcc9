"""The passport: what a checkpoint is, where it comes from, and how to tell that it is whole (`manifest.json`)."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from unbroken import __version__
from unbroken.errors import CheckpointError, FormatError, OutageError, StorageError
from unbroken.runs import formats
from unbroken.runs.imported import Imported, parse_imported
from unbroken.runs.progress import FileDigest, Progress, parse_progress
from unbroken.system import jsontext

# The newest format, in which `environment` and `imported` came; and the one of passports that have neither.
SCHEMA_VERSION = 2
FIRST_VERSION = 1
_KEY = "schema_version"
FILE_NAME = "manifest.json"
# Checkpoints of `command` had the rows of its tables in them.  They are not read now, and would be missing.
OLD_TABLES = "parts/pieces.json"
# What says that a file is not what it was; all others say something about the disk, the file server, or us.
_BAD_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
# Somebody has to do something about these.
_LASTING_ERRNOS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


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
    schema_version: int = field(default=FIRST_VERSION, compare=False)  # as it was read; `to_text` says its own
    digest: str = field(default="", compare=False)

    def to_text(self) -> str:
        """The JSON text, closed by a digest over everything else in it."""
        data = self._data()
        text = json.dumps({**data, "files": {}, "digest": data_digest(data)}, indent=2, allow_nan=False) + "\n"
        # Python's own encoder indents a hundred thousand files in seconds; and a quote within a value is escaped.
        return text.replace('\n  "files": {}', f'\n  "files": {_indented(self.files)}', 1)

    def _data(self) -> dict[str, object]:
        data = {key: value for key, value in vars(self).items() if key not in ("digest", "imported", "environment")}
        # Where there is nothing to say, also an unbroken that does not know these keys can read the passport.
        data["schema_version"] = FIRST_VERSION
        if self.environment:
            data["environment"], data["schema_version"] = self.environment, SCHEMA_VERSION
        if self.imported is not None:
            data["imported"], data["schema_version"] = self.imported.to_json(), SCHEMA_VERSION
        data["progress"] = self.progress.to_json()
        data["files"] = {name: vars(entry) for name, entry in self.files.items()}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _indented(files: Mapping[str, FileDigest]) -> str:
    """As `json.dumps(..., indent=2)` writes them on the second level."""
    if not files:
        return "{}"
    lines = ",\n".join(
        f'    {json.dumps(name)}: {{\n      "size_bytes": {entry.size_bytes},\n      "digest": "{entry.digest}"\n    }}'
        for name, entry in files.items()
    )
    return f"{{\n{lines}\n  }}"


def data_digest(data: object) -> str:
    """sha256 over the canonical JSON of `data` (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_passport(folder: Path) -> Passport:
    """The passport of a checkpoint folder, checked; CheckpointError says what is wrong with it.

    FormatError if this unbroken does not know its format.
    """
    path = folder / FILE_NAME
    with reading(path):
        try:
            data = jsontext.parse(path.read_text())
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: there is no passport") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: the passport cannot be read ({error})") from error
    return parse_passport(data, str(path))


def refuse_newer(folder: Path) -> None:
    """FormatError if the format of the passport is not known here; nothing else is checked, whatever is wrong."""
    path = folder / FILE_NAME
    with suppress(OSError, ValueError):
        data = jsontext.parse(path.read_text())
        if isinstance(data, dict):
            _refuse_unknown(data, path)


def _refuse_unknown(data: Mapping[str, object], source: Path | str) -> None:
    """FormatError if the passport is of a newer unbroken, or of one that kept tables in checkpoints."""
    formats.refuse_newer(data, SCHEMA_VERSION, source, _KEY)
    files = data.get("files")
    if isinstance(files, dict) and OLD_TABLES in files:
        raise FormatError(
            f"{source}: found format 1 with tables in the checkpoint ({OLD_TABLES}), which unbroken {__version__} does "
            "not read; nothing was changed; install the version that wrote it, or move the run's folder away and start "
            "again"
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tells a checkpoint that is bad (CheckpointError) from one that only cannot be read.

    StorageError if somebody has to make it readable, OutageError if that may pass by itself.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _BAD_ERRNOS:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        if error.errno in _LASTING_ERRNOS:
            raise StorageError(f"{path}: {error.strerror}", todo="make it readable") from error
        raise OutageError(f"{path}: {error.strerror}; that says nothing about the checkpoint") from error


def parse_passport(data: object, source: str) -> Passport:
    """A passport from decoded JSON; CheckpointError if a key is missing, of another type, unknown, or altered.

    FormatError if it is of a format that is not known here.
    """
    if not isinstance(data, dict):
        raise CheckpointError(f"{source}: the passport is not an object")
    digest = data.pop("digest", None)
    found = data.get(_KEY)
    _refuse_unknown(data, source)  # it may have another rule for its digest too
    if digest != data_digest(data):
        raise CheckpointError(f"{source}: the passport was altered (its own digest does not match)")
    if found not in range(FIRST_VERSION, SCHEMA_VERSION + 1):
        raise FormatError(formats.refusal(source, found, SCHEMA_VERSION))
    _check_types(data, source)
    progress = parse_progress(data["progress"], source)
    files = {_inside(name, source): _file_entry(entry, source) for name, entry in data["files"].items()}
    imported = parse_imported(data["imported"], source) if "imported" in data else None
    return Passport(**{**data, "progress": progress, "files": files, "imported": imported, "digest": digest})


_TEXT = (str,)
_NUMBER = (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    "run": _TEXT,
    "engine": _TEXT,
    "segment": (int,),
    "sequence": (int,),
    "token": (int,),
    "parent": (str, type(None)),
    "parent_digest": (str, type(None)),
    "progress": (dict,),
    "is_finished": (bool,),
    "is_best": (bool,),
    "algorithm": _TEXT,
    "files": (dict,),
    "identity": _TEXT,
    "identity_parts": (dict,),
    "versions": (dict,),
    "host": (dict,),
    "slurm_job": (dict, type(None)),
    "attempt_started_utc": _TEXT,
    "created_utc": _TEXT,
    "work_seconds": _NUMBER,
    "save_seconds": (int, float, type(None)),
    "note": _TEXT,
    "is_milestone": (bool,),
    "environment": (dict,),
    "imported": (dict,),
    "schema_version": (int,),
}


# Came later than the first passports.
_LATER = {"is_milestone", "environment", "imported"}


def _check_types(data: Mapping[str, object], source: str) -> None:
    missing = sorted(_TYPES.keys() - data.keys() - _LATER)
    unknown = sorted(data.keys() - _TYPES.keys())
    wrong = sorted(key for key in _TYPES.keys() & data.keys() if not isinstance(data[key], _TYPES[key]))
    if missing or unknown or wrong:
        raise CheckpointError(f"{source}: missing keys {missing}, unknown {unknown}, of a wrong type {wrong}")


def _inside(name: str, source: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise CheckpointError(f"{source}: the file name {name!r} points outside the checkpoint")
    return name


def _file_entry(entry: object, source: str) -> FileDigest:
    match entry:
        case {"size_bytes": int(size), "digest": str(digest)}:
            return FileDigest(size, digest)
    raise CheckpointError(f"{source}: a file entry is {entry!r}, allowed: size_bytes and digest")
