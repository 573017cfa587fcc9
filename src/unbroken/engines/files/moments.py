"""The journal of an attempt's moments, `moments.jsonl`: what a successor must know if this attempt is killed.

A line per completed state file, with the lengths of the outputs that have changed since the line before.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unbroken.engines.files.observer import Moment
from unbroken.engines.files.states import Stamp
from unbroken.system import jsontext

FILE_NAME = "moments.jsonl"
# A state file that is saved more often is noted so often, and its last moment so long after it.
REST_SECONDS = 0.2
# Written again without what is outdated when it is so long, or twice as long as that made it.
MOST_BYTES = 4 * 1024 * 1024
# Of so many state files the last moment stays.
MOST_KEPT = 1000


class MomentJournal:
    """Writes the moments of one attempt; a disk that is full is told of once, and tried again with the next moment."""

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._path, self._tell = path, tell
        self._begun: dict[str, int] = {}
        self._noted: dict[str, int] = {}
        self._kept: dict[str, tuple[Moment, bool]] = {}  # the last one noted of each state file
        self._pending: dict[str, tuple[Moment, bool]] = {}
        self._next: dict[str, float] = {}
        self._limit = MOST_BYTES
        self._is_torn = False

    def begin(self, lengths: Mapping[str, int]) -> None:
        """Write the lengths at the start of the program."""
        self._begun = self._noted = dict(lengths)
        self._write_all()

    def note(self, moment: Moment, is_renamed: bool) -> None:
        """Take a moment: for the next write, if there was one of that file just now."""
        self._pending.pop(moment.name, None)
        self._pending[moment.name] = (moment, is_renamed)
        self.write_due()

    def write_due(self, is_over: bool = False) -> None:
        """Write what has waited long enough; all of it if the attempt `is_over`."""
        now = time.monotonic()
        due = [name for name in self._pending if is_over or now >= self._next.get(name, 0.0)]
        if not due:
            return
        taken = [self._pending.pop(name) for name in due]
        for name, each in zip(due, taken, strict=True):
            self._kept.pop(name, None)
            self._kept[name] = each
            self._next[name] = now + REST_SECONDS
        try:
            self._append(taken)
        except OSError as error:
            if not self._is_torn:
                self._tell(f"{self._path}: {error.strerror}; if this job is killed now, its last save is not found")
            self._is_torn = True

    def _append(self, taken: Sequence[tuple[Moment, bool]]) -> None:
        if self._is_torn or self._path.stat().st_size > self._limit:
            self._write_all()
            return
        with self._path.open("a") as file:
            file.write("".join(self._line(*each) for each in taken))

    def _write_all(self) -> None:
        """Write it again in one step, with the last moment of each state file alone."""
        kept = sorted(self._kept.items(), key=lambda item: item[1][0].at)[-MOST_KEPT:]
        self._kept = dict(kept)
        self._next = {name: at for name, at in self._next.items() if name in self._kept}
        self._noted = dict(self._begun)
        text = json.dumps({"lengths": self._noted}) + "\n"
        text += "".join(self._line(*each) for _, each in kept)
        draft = self._path.with_suffix(".tmp")
        draft.write_text(text)
        os.replace(draft, self._path)
        self._limit, self._is_torn = max(MOST_BYTES, 2 * len(text)), False

    def _line(self, moment: Moment, is_renamed: bool) -> str:
        lengths = moment.lengths
        changed = {name: size for name, size in lengths.items() if self._noted.get(name) != size}
        gone = [name for name in self._noted if name not in lengths]
        line = {"name": moment.name, "stamp": moment.stamp, "is_renamed": is_renamed, "lengths": changed, "gone": gone}
        line |= {"opened": sorted(moment.opened), "blurred": moment.blurred}
        self._noted = dict(lengths)
        return json.dumps(line) + "\n"


def read_moments(path: Path) -> dict[str, tuple[Moment, bool]]:
    """Return the last moment of each state file, and whether that was put in place by a rename.

    A last line that a kill has torn is left out; without a journal nothing is known.
    """
    found: dict[str, tuple[Moment, bool]] = {}
    lengths: dict[str, int] = {}
    for at, line in enumerate(_lines(path)):
        lengths = {name: size for name, size in lengths.items() if name not in set(line.get("gone", ()))}
        lengths |= line["lengths"]
        if "name" in line:
            inode, size, mtime_ns = line["stamp"]
            stamp: Stamp = (int(inode), int(size), int(mtime_ns))
            blurred, opened = line.get("blurred", ""), frozenset(line.get("opened", ()))
            moment = Moment(line["name"], stamp, dict(lengths), float(at), blurred, opened)
            found[line["name"]] = (moment, bool(line["is_renamed"]))
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
