"""The identity: what makes a run the computation that it is, digested from its parts.

Changing a part makes another computation, which must not go on from this one's checkpoints.  What only changes the
running (time, memory, place, how many checkpoints stay) is no part of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from longhaul import fs
from longhaul.clock import utc_now
from longhaul.errors import ConfigError
from longhaul.passport import data_digest
from longhaul.run import Run

_LONG_TEXT = 60


@dataclass(frozen=True)
class IdentityKeys:
    """Which keys of an engine's settings and of a run are part of the identity, from the engine's schema."""

    value_keys: tuple[str, ...]
    content_keys: tuple[str, ...]
    run_keys: tuple[str, ...]


@dataclass(frozen=True)
class Identity:
    """The digest and the parts it was made of, each part as readable text."""

    digest: str
    parts: Mapping[str, str]

    def differences(self, other: Mapping[str, str]) -> list[str]:
        """The parts that differ, one text each: was, is."""
        names = sorted(self.parts.keys() | other.keys())
        changed = [name for name in names if self.parts.get(name) != other.get(name)]
        return [f"{name} was {_short(other.get(name))}, is {_short(self.parts.get(name))}" for name in changed]


def identity_of(run: Run, keys: IdentityKeys, base: Path = Path()) -> Identity:
    """The identity of a run; reads the files that are part of it (relative to `base`).  ConfigError if one is gone."""
    parts = {"engine": run.engine}
    parts.update({f"settings.{key}": _text(run.settings.get(key)) for key in keys.value_keys})
    parts.update({key: _text(getattr(run, key)) for key in keys.run_keys})
    for key, name in content_files(run, keys):
        parts[f"content of settings.{key} {name}"] = _content(run, key, base / name)
    return Identity(data_digest(parts), parts)


def content_files(run: Run, keys: IdentityKeys) -> Iterator[tuple[str, str]]:
    """The files whose content is part of the identity, with the setting that names each."""
    for key in keys.content_keys:
        value = run.settings.get(key)
        names = value if isinstance(value, (list, tuple)) else [value]
        yield from ((key, str(name)) for name in names if name)


def accepted_identities(path: Path) -> frozenset[str]:
    """Earlier identities whose checkpoints the user has declared fit to go on from (`longhaul accept`)."""
    try:
        return frozenset(entry["was"] for entry in json.loads(path.read_text()))
    except FileNotFoundError:
        return frozenset()


def accept_identity(path: Path, was: str, changes: list[str]) -> None:
    """Notes that checkpoints of the identity `was` are fit to go on from, what changed, and when."""
    known = json.loads(path.read_text()) if path.exists() else []
    entry = {"was": was, "changes": changes, "accepted_utc": utc_now()}
    fs.write_atomic(path, json.dumps([*known, entry], indent=2) + "\n")


def _content(run: Run, key: str, path: Path) -> str:
    try:
        state = path.stat()
        return f"sha256 {_file_digest(str(path), state.st_size, state.st_mtime_ns)}"
    except OSError as error:
        raise ConfigError([f"runs.{run.name}.settings.{key}: {path}: {error.strerror}"]) from error


@functools.cache
def _file_digest(path: str, size_bytes: int, mtime_ns: int) -> str:
    """sha256 everywhere: identities are compared between machines with and without faster libraries."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=list)


def _short(text: str | None) -> str:
    if text is None:
        return "absent"
    return text if len(text) <= _LONG_TEXT else f"{text[: _LONG_TEXT - 3]}..."
