"""Record when state files were complete, in a journal: what a successor must know of a killed attempt.

A line of `moments.jsonl` is a completed state file, with the lengths of the other files that have changed since the
line before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unbroken.engines.files.states import Stamp
from unbroken.store.layout import parse_json

logger = logging.getLogger(__name__)

FILE_NAME = "moments.jsonl"


@dataclass(frozen=True)
class Moment:
    """Hold the completion of a state file: its stamp then, and the length in bytes of every other file, by name.

    Those whose length then is `unknown` have none.
    """

    name: str
    stamp: Stamp
    lengths: Mapping[str, int]
    at: float  # time.monotonic()
    opened: frozenset[str] = frozenset()  # the others that were open for writing
    unknown: frozenset[str] = frozenset()
    is_late_doubt: bool = False  # reported before, with less that is unknown
    is_renamed: bool = False  # the file was always put in place by a rename
    is_found: bool = False  # in a new folder: it may have been completed after what is reported later

    def doubted(self, name: str) -> Moment:
        """Return it without the length of a file."""
        lengths = {each: size for each, size in self.lengths.items() if each != name}
        return replace(self, lengths=lengths, unknown=self.unknown | {name}, is_late_doubt=True)


class MomentJournal:
    """Write the moments of one attempt; a full disk is reported once, and tried again with the next moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noted: Mapping[str, int] | None = None  # the lengths in the last line; None: the next line has all
        self._is_told = False

    def begin(self, lengths: Mapping[str, int]) -> None:
        """Write the lengths at the start of the program."""
        self.path.unlink(missing_ok=True)
        self._write({}, dict(lengths))

    def note(self, moment: Moment) -> None:
        """Write a moment."""
        line: dict[str, object] = {"name": moment.name, "stamp": moment.stamp, "is_renamed": moment.is_renamed}
        line |= {"is_found": True} if moment.is_found else {}
        line |= {"opened": sorted(moment.opened), "unknown": sorted(moment.unknown)}
        self._write(line, moment.lengths)

    def note_appended(self, names: Collection[str]) -> None:
        """Write which files match as state, and are appended to."""
        self._write({"appended": sorted(names)}, self._noted or {})

    def _write(self, line: dict[str, object], lengths: Mapping[str, int]) -> None:
        noted, is_whole = self._noted or {}, self._noted is None
        line["lengths"] = {name: size for name, size in lengths.items() if noted.get(name) != size}
        line |= {"gone": [name for name in noted if name not in lengths], "is_whole": is_whole}
        try:
            with self.path.open("a") as file:
                file.write(f"\n{json.dumps(line)}")  # what a full disk has torn is a line of its own
            self._noted, self._is_told = lengths, False
        except OSError as error:
            if not self._is_told:
                said = "if this job is killed now, its last save is not found"
                logger.warning(f"{self.path}: {error.strerror}; {said}")
            self._noted, self._is_told = None, True


def read_moments(path: Path) -> tuple[list[Moment], set[str]]:
    """Return the last moment of each state file, in their order, and what matches as one and was appended to.

    A line that a kill or a full disk has torn is left out; without a journal nothing is known.
    """
    found: list[Moment] = []
    lengths: dict[str, int] = {}
    lines = list(_lines(path))
    last = {line["name"]: at for at, line in enumerate(lines) if "name" in line}
    for at, line in enumerate(lines):
        lengths = {} if line["is_whole"] else lengths
        lengths |= line["lengths"]
        for name in line["gone"]:
            lengths.pop(name, None)
        if at == last.get(line.get("name")):
            inode, size, mtime_ns = map(int, line["stamp"])
            opened, unknown = frozenset(line["opened"]), frozenset(line["unknown"])
            moment = Moment(line["name"], (inode, size, mtime_ns), dict(lengths), float(at), opened, unknown)
            found.append(replace(moment, is_renamed=line["is_renamed"], is_found=line.get("is_found", False)))
    return found, {name for line in lines for name in line.get("appended", ())}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text()
    except OSError:
        return
    for line in text.splitlines():
        with suppress(ValueError):
            yield parse_json(line)
