"""Which file events are those of a save: when one is being written, and when it is complete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from unbroken.engines.base import SaveFiles
from unbroken.program.contract import FINAL
from unbroken.runs.checkpoint import PARTS
from unbroken.system.file_events import FileEvent, Happened

_DIGITS = re.compile(r"\d+")
_CHECKPOINT = re.compile(r"results/[^/]+/checkpoints/\d{6,}_[^/]*")
_IN_ATTEMPT = re.compile(r"results/[^/]+/work/\d+/(.+)", re.DOTALL)
_IN_GLOB = re.compile(r"\{progress\}|\*\*/?|\*|\?|.", re.DOTALL)
_MEANING = {"{progress}": r"\d+", "**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
# What lies there in a checkpoint is a piece of the result.
_RESULTS = (PARTS, FINAL)


@dataclass
class Seen:
    """What some events say: a file of a save that was seen growing, and the saves that are complete.

    `unseen` is one of which nothing was seen growing: its files were written in a new folder before that was watched.
    """

    writing: str = ""
    unseen: str = ""
    complete_names: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return bool(self.complete_names)


@dataclass
class SaveWatch:
    """Follows the saves of a program by the names of their files, as the engine says them.

    A file under another name that is then renamed to one of a complete save belongs to it too, and is known from the
    second time on.  Where nothing is seen under the engine's names, a save is complete when its checkpoint is
    published, and its files are those in the attempt's folder that have the names of files of a checkpoint.
    """

    files: SaveFiles
    misses: int = 0
    run: str = ""
    _drafts: set[str] = field(default_factory=set)
    _moving: dict[int, str] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)  # renamed or removed since they were written
    _has_grown: bool = False  # something was written since a save was last complete
    _is_as_declared: bool = False  # a save was seen under the engine's names
    _learned: set[str] = field(default_factory=set)  # names of files of checkpoints, each number as 0
    _appended: set[str] = field(default_factory=set)  # of those, files that stay open while checkpoints are made

    def __post_init__(self) -> None:
        self._written, self._complete = _patterns(self.files.written), _patterns(self.files.complete)

    def note(self, events: Iterable[FileEvent]) -> Seen:
        """What these say, the newest file that grew."""
        seen = Seen()
        for event in events:
            self._note_one(event, seen)
        return seen

    def learn(self, names: Iterable[str]) -> None:
        """Add the names of the files that a checkpoint holds."""
        paths = [PurePosixPath(name) for name in names]
        self._learned.update(_DIGITS.sub("0", path.name) for path in paths if path.parts[0] not in _RESULTS)

    @property
    def is_as_declared(self) -> bool:
        """Return True if a save was seen under the names that the engine gives."""
        return self._is_as_declared

    def is_state(self, name: str) -> bool:
        """Return True if a file, by its name in the attempt's folder, belongs to a save."""
        return self._is_of_a_save(f"results/{self.run}/work/0/{name}")

    def is_closed(self, name: str) -> bool:
        """True if nobody has it open for writing since it was last written."""
        return name not in self._open

    def is_complete(self, name: str) -> bool:
        """True if it was renamed, or is closed and stands under its last name."""
        is_gone = any(each in self._gone for each in _with_parents(name))
        is_known = _matches(self._complete, name) or self._is_learned(name)
        return is_gone or (self.is_closed(name) and is_known)

    def _note_one(self, event: FileEvent, seen: Seen) -> None:
        name = event.name
        if event.what & Happened.MOVED_FROM:
            self._moving[event.cookie] = name
            self._leave(name)
        elif event.what & Happened.MOVED_TO:
            before = self._moving.pop(event.cookie, "")
            is_declared, is_folder = _matches(self._complete, name), bool(event.what & Happened.IS_FOLDER)
            if is_declared:
                self._complete_save(before or name, seen)
            if before and not is_folder and (is_declared or self._is_learned(name)):
                self._drafts.add(_DIGITS.sub("0", before))
            if is_folder and not self._is_as_declared and is_checkpoint(name):
                self._publish(before or name, seen)
        elif event.what & Happened.DELETED:
            self._leave(name)
        elif event.what & Happened.CLOSED:
            was_open = name in self._open
            self._open.discard(name)
            if was_open and _matches(self._complete, name):
                self._complete_save(name, seen)
        elif event.what & (Happened.WRITTEN | Happened.CREATED) and not event.what & Happened.IS_FOLDER:
            self._grow(event, seen)

    def _publish(self, name: str, seen: Seen) -> None:
        self._appended.update(_DIGITS.sub("0", PurePosixPath(each).name) for each in self._open)
        self._note_complete(name, seen)

    def _complete_save(self, name: str, seen: Seen) -> None:
        self._is_as_declared = True
        self._note_complete(name, seen)

    def _note_complete(self, name: str, seen: Seen) -> None:
        seen.complete_names.append(name)
        if not self._has_grown:
            seen.unseen = name
        self._has_grown = False

    def _grow(self, event: FileEvent, seen: Seen) -> None:
        name = event.name
        if not self._is_of_a_save(name):
            return
        self._gone.difference_update(_with_parents(name))
        if event.what & Happened.WRITTEN:
            self._open.add(name)
            self._has_grown = True
            seen.writing = name

    def _leave(self, name: str) -> None:
        self._open = {each for each in self._open if name not in _with_parents(each)}
        self._gone.add(name)

    def _is_of_a_save(self, name: str) -> bool:
        is_draft = _DIGITS.sub("0", name) in self._drafts
        return _matches(self._written, name) or is_draft or self._is_learned(name)

    def _is_learned(self, name: str) -> bool:
        """Return True for a file in an attempt's folder that has the name of a file of a checkpoint.

        One that stays open all the time counts only where there is no other.
        """
        if self._is_as_declared or (match := _IN_ATTEMPT.fullmatch(name)) is None:
            return False
        plain = _DIGITS.sub("0", PurePosixPath(match[1]).name)
        return plain in self._learned - self._appended or (plain in self._learned and self._learned <= self._appended)


def is_checkpoint(name: str) -> bool:
    """Return True for the folder of a checkpoint, by its path from where snakemake was started."""
    return _CHECKPOINT.fullmatch(name) is not None


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def _patterns(globs: Iterable[str]) -> list[re.Pattern[str]]:
    return [
        re.compile("".join(_MEANING.get(part[0], re.escape(part[0])) for part in _IN_GLOB.finditer(glob)))
        for glob in globs
    ]


def _with_parents(name: str) -> list[str]:
    return [name, *(str(parent) for parent in PurePosixPath(name).parents)]
