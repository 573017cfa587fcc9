"""The numbers of the formats in which files of a run are written, and the refusal of one that came later.

A file without a number is of format 1, and one of format 1 is written without: an unbroken that came before the numbers
reads it beside this one.  A new key that others may pass over is no new format.  A number is raised where whoever does
not know it would go wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken import __version__
from unbroken.errors import FormatError

KEY = "format"
FIRST = 1


def numbered(data: Mapping[str, Any], written: int) -> dict[str, Any]:
    """What is to be written, with its format in front where that is not the first."""
    return {KEY: written, **data} if written > FIRST else dict(data)


def refuse_newer(data: Mapping[str, Any], known: int, source: Path | str, key: str = KEY) -> None:
    """FormatError if what was read is of a later format than `known`; other numbers are somebody's mistake."""
    found = data.get(key, FIRST)
    if isinstance(found, int) and found > known:
        raise FormatError(refusal(source, found, known))


def refusal(source: Path | str, found: object, known: int) -> str:
    """The line: which file, what was found, what is read, what to type."""
    read = f"{FIRST}" if known == FIRST else f"{FIRST} to {known}"
    return (
        f"{source}: found format {found!r}, unbroken {__version__} reads {read}; nothing was changed; install the "
        "version that wrote it, or a newer one (pip install --upgrade), and start again"
    )
