"""Read and write the JSON files of a run: a number of the format in each, and one refusal of any other format.

A file without a number is of format 1, and one of format 1 is written without.  A new key that a reader may pass over
is no new format.  A number is raised where a reader that does not know it would go wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unbroken import __version__
from unbroken.errors import FormatError
from unbroken.system import fs, jsontext

FIRST = 1


@dataclass(frozen=True)
class Format:
    """The format of one kind of file, and the key of its number."""

    newest: int = FIRST
    key: str = "format"

    def text(self, data: Mapping[str, Any], indent: int | None = 2) -> str:
        """Return the text to be written."""
        number = {self.key: self.newest} if self.newest > FIRST else {}
        return json.dumps({**number, **data}, indent=indent) + "\n"

    def write(self, path: Path, data: Mapping[str, Any], indent: int | None = 2) -> None:
        """Write a file in one step."""
        fs.write_atomic(path, self.text(data, indent))

    def update(self, path: Path, changes: Mapping[str, Any]) -> None:
        """Change some keys of a file, which is made if it is not there; the last of several writers counts."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, {**self.found(path), **changes})

    def parse(self, text: str, source: Path | str) -> dict[str, Any]:
        """Return the object in a text; raise ValueError if there is none, FormatError if it is of another format."""
        data = jsontext.parse(text)
        if not isinstance(data, dict):
            raise ValueError(f"found {type(data).__name__}, allowed: an object")
        found = data.get(self.key, FIRST)
        if found != self.newest:
            raise self.refusal(source, found)
        return data

    def read(self, path: Path) -> dict[str, Any]:
        """Return the object in a file; as `parse`, and OSError if it cannot be read."""
        return self.parse(path.read_text(), path)

    def found(self, path: Path) -> dict[str, Any]:
        """Return the object in a file, an empty one where none can be read; FormatError as above."""
        try:
            return self.read(path)
        except (OSError, ValueError):
            return {}

    def refusal(self, source: Path | str, found: object) -> FormatError:
        """Return the error: which file, what was found, what is read, what to type."""
        return FormatError(
            f"{source}: found format {found!r}, unbroken {__version__} reads {self.newest}; nothing was changed; "
            "install the version that wrote it (a newer one: pip install --upgrade), and start again"
        )


def known_fields(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a dataclass has a field for; a later version may have added keys."""
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
