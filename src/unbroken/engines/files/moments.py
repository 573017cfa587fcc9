"""Record when state files were complete, in a journal: what a successor must know of a killed attempt.

A line of `moments.jsonl` is a completed state file, with the lengths of the other files that have changed since the
line before.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unbroken.engines.files.states import Stamp
from unbroken.system import jsontext

logger = logging.getLogger(__name__)

FILE_NAME = "moments.jsonl"
# Written again without what is outdated when it is so long, or twice as long as that made it.
MOST_BYTES = 4 * 1024 * 1024


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

    def doubted(self, name: str) -> Moment:
        """Return it without the length of a file."""
        lengths = {each: size for each, size in self.lengths.items() if each != name}
        return replace(self, lengths=lengths, unknown=self.unknown | {name}, is_late_doubt=True)


@dataclass
class MomentJournal:
    """Write the moments of one attempt; a full disk is reported once, and tried again with the next moment."""

    path: Path
    _begun: Mapping[str, int] = field(default_factory=dict)
    _noted: Mapping[str, int] = field(default_factory=dict)
    _kept: dict[str, Moment] = field(default_factory=dict)  # the last one noted of each state file
    _appended: list[str] = field(default_factory=list)
    _limit: int = MOST_BYTES
    _is_torn: bool = False

    def begin(self, lengths: Mapping[str, int]) -> None:
        """Write the lengths at the start of the program."""
        self._begun = dict(lengths)
        self._write_all()

    def note(self, moment: Moment) -> None:
        """Write a moment."""
        self._kept.pop(moment.name, None)
        self._kept[moment.name] = moment
        self._append(self._line(moment))

    def note_appended(self, names: Collection[str]) -> None:
        """Write which files match as state, and are appended to."""
        self._appended = sorted(names)
        self._append(json.dumps({"appended": self._appended}) + "\n")

    def _append(self, line: str) -> None:
        try:
            if self._is_torn or self.path.stat().st_size > self._limit:
                self._write_all()
                return
            with self.path.open("a") as file:
                file.write(line)
        except OSError as error:
            if not self._is_torn:
                said = "if this job is killed now, its last save is not found"
                logger.warning(f"{self.path}: {error.strerror}; {said}")
            self._is_torn = True

    def _write_all(self) -> None:
        """Write it again in one step, with the last moment of each state file alone."""
        self._noted = self._begun
        first = json.dumps({"lengths": self._begun, "appended": self._appended}) + "\n"
        text = first + "".join(map(self._line, self._kept.values()))
        draft = self.path.with_suffix(".tmp")
        draft.write_text(text)
        os.replace(draft, self.path)
        self._limit, self._is_torn = max(MOST_BYTES, 2 * len(text)), False

    def _line(self, moment: Moment) -> str:
        changed = {name: size for name, size in moment.lengths.items() if self._noted.get(name) != size}
        gone = [name for name in self._noted if name not in moment.lengths]
        self._noted = moment.lengths
        line: dict[str, object] = {"name": moment.name, "stamp": moment.stamp, "lengths": changed, "gone": gone}
        line |= {"opened": sorted(moment.opened), "unknown": sorted(moment.unknown), "is_renamed": moment.is_renamed}
        return json.dumps(line) + "\n"


def read_moments(path: Path) -> tuple[dict[str, Moment], set[str]]:
    """Return the last moment of each state file, and what matches as one and was appended to.

    A last line that a kill has torn is left out; without a journal nothing is known.
    """
    found: dict[str, Moment] = {}
    lengths: dict[str, int] = {}
    appended: set[str] = set()
    for at, line in enumerate(_lines(path)):
        appended |= set(line.get("appended", ()))
        lengths = {**lengths, **line.get("lengths", {})}
        for name in line.get("gone", ()):
            lengths.pop(name, None)
        if name := line.get("name", ""):
            inode, size, mtime_ns = line["stamp"]
            opened, unknown = frozenset(line["opened"]), frozenset(line["unknown"])
            stamp, is_renamed = (int(inode), int(size), int(mtime_ns)), line["is_renamed"]
            found[name] = Moment(name, stamp, lengths, float(at), opened, unknown, is_renamed=is_renamed)
    return found, appended


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text()
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield jsontext.parse(line)
        except ValueError:
            return
