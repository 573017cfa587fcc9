"""A value that was found where another one belongs, as the reader would write it; standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

_LONG_TEXT = 60


def found(value: object) -> str:
    """A value as the reader would write it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"{str(value).lower()} (so YAML reads {'yes, on and true' if value else 'no, off and false'})"
    if isinstance(value, list | tuple):
        return f"a list {_short(json.dumps(value, default=str))}"
    if isinstance(value, Mapping):
        return f"a mapping {_short(json.dumps(value, default=str))}"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONG_TEXT else f"{text[: _LONG_TEXT - 3]}..."
