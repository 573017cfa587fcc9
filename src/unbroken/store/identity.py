"""The identity: what makes a run the computation that it is, digested from its parts.

Changing a part makes another computation, which must not resume from this one's checkpoints.  What only changes the
running (time, memory, place, how many checkpoints stay) is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbroken.errors import AbsentFileError
from unbroken.store.checkpoint import Checkpoint, data_digest
from unbroken.store.formats import Format
from unbroken.store.run import RunSpec
from unbroken.system import fs
from unbroken.system.clock import utc_now
from unbroken.system.digests import sha256_of

_LONG_TEXT = 60
ACCEPTED = Format()


@dataclass(frozen=True)
class IdentityKeys:
    """List which keys of an engine's settings and of a run are part of the identity, from the engine's schema."""

    value_keys: tuple[str, ...]
    content_keys: tuple[str, ...]
    run_keys: tuple[str, ...]
    # How the work is laid out on the machine: part of the identity too, until the setting `switch_key` is true.
    layout_keys: tuple[str, ...] = ()
    layout_run_keys: tuple[str, ...] = ()
    switch_key: str = ""


@dataclass(frozen=True)
class Identity:
    """Hold the digest and its parts as readable text; `free` parts may differ, `files` are the content of a file."""

    digest: str
    parts: Mapping[str, str]
    free: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict)

    def is_alike(self, other: Mapping[str, str]) -> bool:
        """Return True if nothing differs but what may."""
        return not self._changed(other)

    def differences(self, other: Mapping[str, str]) -> list[str]:
        """Return the parts that differ, one text each: was, is; of a file that it was changed."""
        return [self._difference(name, other.get(name)) for name in self._changed(other)]

    def _changed(self, other: Mapping[str, str]) -> list[str]:
        names = (self.parts.keys() | other.keys()) - self.free
        return sorted(name for name in names if self.parts.get(name) != other.get(name))

    def _difference(self, name: str, was: str | None) -> str:
        if was and (path := self.files.get(name)) is not None:
            return f"{path} ({name.split()[2]}) was changed"
        return f"{name} was {_short(was, self.parts.get(name))}, is {_short(self.parts.get(name), was)}"


def identity_of(run: RunSpec, keys: IdentityKeys, base: Path = Path()) -> Identity:
    """Return the identity of a run, from the files too that are part of it; raise AbsentFileError if one is gone."""
    layout = _parts(run, keys.layout_keys, keys.layout_run_keys)
    switch = _parts(run, (keys.switch_key,) if keys.switch_key else (), ())
    parts = {"engine": run.engine, **_parts(run, keys.value_keys, keys.run_keys), **layout, **switch}
    files = {f"content of settings.{key} {name}": (key, base / name) for key, name in content_files(run, keys)}
    parts |= {part: _content(run, key, path) for part, (key, path) in files.items()}
    is_open = run.settings.get(keys.switch_key) is True
    free = frozenset(switch) | (frozenset(layout) if is_open else frozenset())
    return Identity(data_digest(parts), parts, free, {part: path for part, (_, path) in files.items()})


def usable_identities(identity: Identity, accepted: Path, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """Return the identities from whose checkpoints a run may resume: its own, those accepted, and those alike."""
    alike = {each.passport.identity for each in checkpoints if identity.is_alike(each.passport.identity_parts)}
    return frozenset({identity.digest, *(entry["was"] for entry in _accepted(accepted)), *alike})


def _parts(run: RunSpec, keys: Iterable[str], run_keys: Iterable[str]) -> dict[str, str]:
    settings = {f"settings.{key}": _text(run.settings.get(key)) for key in keys}
    return {**settings, **{key: _text(run.keys()[key]) for key in run_keys}}


def content_files(run: RunSpec, keys: IdentityKeys) -> Iterator[tuple[str, str]]:
    """Yield the files whose content is part of the identity, with the setting that names each."""
    for key in keys.content_keys:
        value = run.settings.get(key)
        names = value if isinstance(value, (list, tuple)) else [value]
        yield from ((key, str(name)) for name in names if name)


def accept_identity(path: Path, was: str, changes: list[str]) -> None:
    """Note that the run may resume from checkpoints of the identity `was`, what changed, and when."""
    entry = {"was": was, "changes": changes, "accepted_utc": utc_now()}
    ACCEPTED.write(path, {"accepted": [*_accepted(path), entry]})


def _accepted(path: Path) -> list[dict[str, Any]]:
    """Return what was accepted so far; raise FormatError if the file is of another format."""
    try:
        return list(ACCEPTED.read(path)["accepted"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise ACCEPTED.refusal(path, str(error)) from error


def _content(run: RunSpec, key: str, path: Path) -> str:
    try:
        if path.is_dir():
            files = {name.as_posix(): sha256_of(path / name) for name in fs.tree_files(path)}
            return f"sha256 {data_digest(files)}"
        return f"sha256 {sha256_of(path)}"
    except OSError as error:
        raise AbsentFileError([f"runs.{run.name}.settings.{key}: {path}: {error.strerror}"]) from error


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=list)


def _short(text: str | None, other: str | None) -> str:
    """Return the text, or of a long one the place where it differs from the other."""
    if text is None:
        return "absent"
    if len(text) <= _LONG_TEXT:
        return text
    alike = next((at for at, (one, two) in enumerate(zip(text, other or "", strict=False)) if one != two), 0)
    begin = max(0, min(alike - _LONG_TEXT // 3, len(text) - _LONG_TEXT))
    end = begin + _LONG_TEXT
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"
