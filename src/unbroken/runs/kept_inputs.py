"""The texts of the small input files that shape a run, kept so that a refusal can show what was changed."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.errors import StorageError
from unbroken.system import fs
from unbroken.system.digests import sha256_of

FOLDER = "inputs"  # in a run's folder
# What nobody reads line by line is not kept.
MOST_BYTES = 200_000
_DIGEST = "sha256 "
_LONG_LINE = 60


def keep(root: Path, parts: Mapping[str, str], files: Mapping[str, Path]) -> None:
    """Copy each small text among `files` into a run's folder; a full disk, or a file that is gone, ends no work."""
    for part, path in files.items():
        with suppress(OSError, StorageError, UnicodeDecodeError):
            target = _kept(root, parts[part], path)
            if path.is_file() and path.stat().st_size <= MOST_BYTES and not target.exists():
                text = path.read_bytes().decode()
                if parts[part] == _DIGEST + sha256_of(path):  # it may be edited just now
                    target.parent.mkdir(exist_ok=True)
                    fs.write_atomic(target, text)


def change(root: Path, was: str, path: Path) -> str:
    """Return the first line that differs and the command that shows all; empty if the old text was not kept."""
    kept = _kept(root, was, path)
    try:
        old, new = kept.read_text().splitlines(), path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    found = list(_changes(old, new))
    first = found[0] if found else "only the ends of lines differ"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{first}{more}; all of it: diff {shlex.quote(str(kept))} {shlex.quote(str(path))}"


def _kept(root: Path, part: str, path: Path) -> Path:
    return root / FOLDER / f"{part.removeprefix(_DIGEST)[:12]}_{path.name}"


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for kind, begin, end, at, until in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for number in range(max(end - begin, until - at) if kind != "equal" else 0):
            was = old[begin + number] if begin + number < end else None
            now = new[at + number] if at + number < until else None
            if was is None:
                yield f"line {at + number + 1} is new: {_shown(now)}"
            elif now is None:
                yield f"line {begin + number + 1} is gone: {_shown(was)}"
            else:
                yield f"line {at + number + 1} was {_shown(was)}, is {_shown(now)}"


def _shown(line: str | None) -> str:
    text = repr((line or "").strip())
    return text if len(text) <= _LONG_LINE else f"{text[: _LONG_LINE - 3]}..."
