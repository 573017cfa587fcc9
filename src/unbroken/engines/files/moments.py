"""Record when state files were complete, in a journal: what a successor must know of a killed attempt.

A line of `moments.jsonl` is a completed state file, with the lengths of the outputs that have changed since the line
before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.states import Stamp
from unbroken.system import jsontext

FILE_NAME = "moments.jsonl"
# Written again without what is outdated when it is so long, or twice as long as that made it.
MOST_BYTES = 4 * 1024 * 1024
# Of so many state files the last moment stays.
MOST_KEPT = 1000


@dataclass(frozen=True)
class Moment:
    """Hold the completion of a state file: its stamp then, and the length in bytes of every other file, by name.

    `unknown` are files whose length then is unknown; `blurred` names one of them that is measured: the lengths are good
    only if it is empty.
    """

    name: str
    stamp: Stamp
    lengths: Mapping[str, int]
    at: float  # time.monotonic()
    blurred: str = ""
    opened: frozenset[str] = frozenset()  # the others that were open for writing
    is_late_doubt: bool = False  # reported before, and not blurred then
    unknown: frozenset[str] = frozenset()
    is_renamed: bool = False  # the file was always put in place by a rename


class MomentJournal:
    """Write the moments of one attempt; a full disk is reported once, and tried again with the next moment."""

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._path, self._tell = path, tell
        self._begun: dict[str, int] = {}
        self._noted: Mapping[str, int] = {}
        self._kept: dict[str, Moment] = {}  # the last one noted of each state file
        self._limit = MOST_BYTES
        self._is_torn = False

    def begin(self, lengths: Mapping[str, int]) -> None:
        """Write the lengths at the start of the program."""
        self._begun = dict(lengths)
        self._write_all()

    def note(self, moment: Moment) -> None:
        """Write a moment."""
        self._kept.pop(moment.name, None)
        self._kept[moment.name] = moment
        try:
            if self._is_torn or self._path.stat().st_size > self._limit:
                self._write_all()
                return
            with self._path.open("a") as file:
                file.write(self._line(moment))
        except OSError as error:
            if not self._is_torn:
                self._tell(f"{self._path}: {error.strerror}; if this job is killed now, its last save is not found")
            self._is_torn = True

    def _write_all(self) -> None:
        """Write it again in one step, with the last moment of each state file alone."""
        self._kept = dict(list(self._kept.items())[-MOST_KEPT:])
        self._noted = self._begun
        text = json.dumps({"lengths": self._begun}) + "\n" + "".join(map(self._line, self._kept.values()))
        draft = self._path.with_suffix(".tmp")
        draft.write_text(text)
        os.replace(draft, self._path)
        self._limit, self._is_torn = max(MOST_BYTES, 2 * len(text)), False

    def _line(self, moment: Moment) -> str:
        lengths = moment.lengths
        changed, gone = dict[str, int](), list[str]()
        if lengths is not self._noted:
            changed = {name: size for name, size in lengths.items() if self._noted.get(name) != size}
            gone = [name for name in self._noted if name not in lengths]
        self._noted = lengths
        line: dict[str, object] = {"name": moment.name, "stamp": moment.stamp, "lengths": changed, "gone": gone}
        line |= {"opened": sorted(moment.opened), "blurred": moment.blurred, "is_renamed": moment.is_renamed}
        return json.dumps(line) + "\n"


def read_moments(path: Path) -> dict[str, Moment]:
    """Return the last moment of each state file.

    A last line that a kill has torn is left out; without a journal nothing is known.
    """
    found: dict[str, Moment] = {}
    lengths: dict[str, int] = {}
    for at, line in enumerate(_lines(path)):
        for name in line.get("gone", ()):
            lengths.pop(name, None)
        lengths |= line["lengths"]
        if name := line.get("name", ""):
            inode, size, mtime_ns = line["stamp"]
            stamp, opened = (int(inode), int(size), int(mtime_ns)), frozenset(line["opened"])
            found[name] = Moment(
                name, stamp, dict(lengths), float(at), line["blurred"], opened, is_renamed=line["is_renamed"]
            )
    return found


def _lines(path: Path) -> Iterator[dict]:  # type: ignore[type-arg]
    try:
        text = path.read_text()
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield jsontext.parse(line)
        except ValueError:
            return
