"""Name what was found where something else belongs, and what was probably meant; standard library alone."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from unbroken.errors import Mistake

_LONG_TEXT = 60
_LISTED = 10  # a campaign may have a thousand runs


def found(value: object) -> str:
    """Return a value as the reader would write it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"{str(value).lower()} (so YAML reads {'yes, on and true' if value else 'no, off and false'})"
    if isinstance(value, list | tuple):
        return f"a list {_short(json.dumps(value, default=str))}"
    if isinstance(value, Mapping):
        return f"a mapping {_short(json.dumps(value, default=str))}"
    return _short(repr(value))


def near(name: object, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant."""
    return next(iter(difflib.get_close_matches(str(name), known, n=1)), None)


def absent(name: str, base: Path, what: str = "there is no such file") -> Mistake:
    """Return the mistake of a file or folder that does not exist, with the similar name that was probably meant."""
    path = base / name
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    guess = near(path.name, siblings)
    hint = f"did you mean `{Path(name).with_name(guess)}`?" if guess else f"looked in {path.parent.resolve()}"
    return Mistake(f"found '{name}', but {what}", todo=hint, is_absent=True)


def unknown_run(name: str, known: Collection[str]) -> str:
    """Return the text for a name that no run has."""
    names = ", ".join(known) if len(known) <= _LISTED else f"those {len(known)} that `unbroken status` lists"
    guess = near(name, known)
    return f"no run is named {name!r}, allowed: {names or 'none'}" + (f"; did you mean `{guess}`?" if guess else "")


def _short(text: str) -> str:
    return text if len(text) <= _LONG_TEXT else f"{text[: _LONG_TEXT - 3]}..."
