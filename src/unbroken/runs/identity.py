"""The identity: what makes a run the computation that it is, digested from its parts.

Changing a part makes another computation, which must not go on from this one's checkpoints.  What only changes the
running (time, memory, place, how many checkpoints stay) is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.errors import AbsentFileError
from unbroken.runs import kept_inputs
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.passport import data_digest
from unbroken.runs.run import Run
from unbroken.system import fs, jsontext
from unbroken.system.clock import utc_now
from unbroken.system.digests import sha256_of

_LONG_TEXT = 60


@dataclass(frozen=True)
class IdentityKeys:
    """Which keys of an engine's settings and of a run are part of the identity, from the engine's schema."""

    value_keys: tuple[str, ...]
    content_keys: tuple[str, ...]
    run_keys: tuple[str, ...]
    # How the work is laid out on the machine: part of the identity too, until the setting `switch_key` is true.
    layout_keys: tuple[str, ...] = ()
    layout_run_keys: tuple[str, ...] = ()
    switch_key: str = ""


@dataclass(frozen=True)
class Identity:
    """The digest and the parts it was made of, each part as readable text; `free` parts may differ.

    `files` are the parts that are the content of a file, with its path.
    """

    digest: str
    parts: Mapping[str, str]
    free: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict)

    def is_alike(self, other: Mapping[str, str]) -> bool:
        """True if nothing differs but what may."""
        names = (self.parts.keys() | other.keys()) - self.free
        return all(self.parts.get(name) == other.get(name) for name in names)

    def differences(self, other: Mapping[str, str], root: Path | None = None) -> list[str]:
        """Return the parts that differ, one text each: was, is; of a file whose text is kept in `root`, its lines."""
        names = sorted(self.parts.keys() | other.keys())
        changed = [name for name in names if name not in self.free and self.parts.get(name) != other.get(name)]
        return [self._difference(name, other.get(name), root) for name in changed]

    def _difference(self, name: str, was: str | None, root: Path | None) -> str:
        path = self.files.get(name)
        if root is not None and path is not None and was and (lines := kept_inputs.change(root, was, path)):
            return f"{path} ({name.split()[2]}) was changed: {lines}"
        return f"{name} was {_short(was, self.parts.get(name))}, is {_short(self.parts.get(name), was)}"


def identity_of(run: Run, keys: IdentityKeys, base: Path = Path()) -> Identity:
    """The identity of a run; reads the files that are part of it (relative to `base`).  ConfigError if one is gone."""
    layout = _parts(run, keys.layout_keys, keys.layout_run_keys)
    switch = _parts(run, (keys.switch_key,) if keys.switch_key else (), ())
    parts = {"engine": run.engine, **_parts(run, keys.value_keys, keys.run_keys), **layout, **switch}
    files = {f"content of settings.{key} {name}": (key, base / name) for key, name in content_files(run, keys)}
    parts |= {part: _content(run, key, path) for part, (key, path) in files.items()}
    is_open = run.settings.get(keys.switch_key) is True
    free = frozenset(switch) | (frozenset(layout) if is_open else frozenset())
    return Identity(data_digest(parts), parts, free, {part: path for part, (_, path) in files.items()})


def usable_identities(identity: Identity, accepted: Path, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The identities from whose checkpoints a run may go on: its own, those accepted, and those that are alike."""
    alike = {each.passport.identity for each in checkpoints if identity.is_alike(each.passport.identity_parts)}
    return accepted_identities(accepted) | alike | {identity.digest}


def _parts(run: Run, keys: Iterable[str], run_keys: Iterable[str]) -> dict[str, str]:
    settings = {f"settings.{key}": _text(run.settings.get(key)) for key in keys}
    return {**settings, **{key: _text(getattr(run, key)) for key in run_keys}}


def content_files(run: Run, keys: IdentityKeys) -> Iterator[tuple[str, str]]:
    """The files whose content is part of the identity, with the setting that names each."""
    for key in keys.content_keys:
        value = run.settings.get(key)
        names = value if isinstance(value, (list, tuple)) else [value]
        yield from ((key, str(name)) for name in names if name)


def accepted_identities(path: Path) -> frozenset[str]:
    """Earlier identities whose checkpoints the user has declared fit to go on from (`unbroken accept`)."""
    try:
        return frozenset(entry["was"] for entry in jsontext.parse(path.read_text()))
    except FileNotFoundError:
        return frozenset()


def accept_identity(path: Path, was: str, changes: list[str]) -> None:
    """Notes that checkpoints of the identity `was` are fit to go on from, what changed, and when."""
    known = jsontext.parse(path.read_text()) if path.exists() else []
    entry = {"was": was, "changes": changes, "accepted_utc": utc_now()}
    fs.write_atomic(path, json.dumps([*known, entry], indent=2) + "\n")


def _content(run: Run, key: str, path: Path) -> str:
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
