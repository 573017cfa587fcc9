"""Which files a program left in the folder of its attempt, and which of them are in no result."""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from unbroken.rehearsal.saves import SaveWatch, is_checkpoint
from unbroken.runs.run import Run
from unbroken.system.file_events import FileEvent, Happened

_IN_ATTEMPT = re.compile(r"results/[^/]+/work/\d+/(.+)", re.DOTALL)
# What is ours there: the contract's files, and states that are about to become checkpoints.
_OURS = re.compile(
    r"(?:save|loose|(?:taken|told|whole|salvage)-?[^/]*)(?:/.*)?"
    r"|(?:progress|stop|verdict|deadline|attempt|times|moments)[^/]*"
    r"|(?:.*/)?(?:__pycache__|\.cache)/.*|(?:.*/)?core[^/]*",
    re.DOTALL,
)


@dataclass
class OutputWatch:
    """Follows the files that a program writes in the folder of its attempt, and has not removed again."""

    root: Path
    _alive: set[str] = field(default_factory=set)
    _moving: dict[int, set[str]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)  # when the last checkpoint was made, by their names in that folder

    def note(self, events: Iterable[FileEvent]) -> None:
        """Add what these events say."""
        for event in events:
            is_folder = bool(event.what & Happened.IS_FOLDER)
            if event.what & (Happened.MOVED_FROM | Happened.DELETED):
                gone = self._below(event.name)
                self._alive -= gone
                if event.what & Happened.MOVED_FROM:
                    self._moving[event.cookie] = {name[len(event.name) :] for name in gone}
            elif event.what & Happened.MOVED_TO:
                self._alive |= {event.name + rest for rest in self._moving.pop(event.cookie, set())}
                if is_folder and is_checkpoint(event.name):
                    self.left = {match[1] for name in self._alive if (match := _IN_ATTEMPT.fullmatch(name))}
            elif event.what & Happened.WRITTEN or (event.what & Happened.CREATED and self._has_content(event.name)):
                self._alive.add(event.name)

    def _below(self, name: str) -> set[str]:
        return {each for each in self._alive if each == name or each.startswith(f"{name}/")}

    def _has_content(self, name: str) -> bool:
        """Return True for a plain file that has been written before it was watched."""
        try:
            found = (self.root / name).lstat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size > 0


def lost_outputs(left: Iterable[str], kept: Collection[str], saves: SaveWatch, discarded: Sequence[str]) -> list[str]:
    """Return the files that a program left and that no result has, without those of its state and dropped ones."""
    names = {PurePosixPath(name).name for name in kept}
    return [
        name
        for name in sorted(left)
        if not _OURS.fullmatch(name)
        and PurePosixPath(name).name not in names
        and not saves.is_state(name)
        and not is_dropped(name, discarded)
    ]


def is_dropped(name: str, globs: Iterable[str]) -> bool:
    """Return True if a glob of `discard` matches the file, by its name in the program's folder."""
    parts = PurePosixPath(name).parts
    tails = ["/".join(parts[at:]) for at in range(len(parts))]
    return any(fnmatch(tail, glob) for tail in tails for glob in globs)


def discarded_globs(run: Run) -> tuple[str, ...]:
    """Return the globs of outputs that the run drops by its settings."""
    found = run.settings.get("discard", ())
    return tuple(map(str, found)) if isinstance(found, (list, tuple)) else (str(found),)
