"""Note how a program's files are at the end of each of its stages: it begins the next one at once.

Assemblers and other pipelines touch a marker when a stage is complete.  What they leave when they are killed within
the next one is often no state from which they resume; what was there at the marker is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from unbroken.engines.files.batch import COMPLETED, GONE
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import TICKS_SECONDS, RestartState, Stamp, matches, state_stamp_of
from unbroken.errors import StorageError
from unbroken.store.layout import parse_json
from unbroken.system import fs
from unbroken.system.file_events import FileEvent, Happened

logger = logging.getLogger(__name__)

# In the attempt's folder: for a successor, should this attempt be killed.
FILE_NAME = "stage.json"
# Some stages change what they begin with, before it could be copied; so many are worth a line.
MOST_TOLD = 3


class StageMarks:
    """Hold the state files as they were when the newest marker appeared; `names` finds those that are there now.

    Files that are younger than the marker belong to the next stage.
    """

    def __init__(self, program: Program, folder: Path, attempt: Path, names: Callable[[], Iterable[str]]) -> None:
        self._program, self._is_wanted = program, program.saved_by is SavedBy.STAGE
        self._folder, self._note, self._names = folder, attempt / FILE_NAME, names
        self._globs = program.saved_marker.split("|")
        self._known: set[str] = set()  # files that are there, by their events
        self._markers: dict[str, Stamp] = {}
        self._stamps: Mapping[str, Stamp] = {}
        self._missed = 0

    def begin(self) -> None:
        """Note what is there before the program starts."""
        if self._is_wanted:
            self._note.unlink(missing_ok=True)
            found = self._found()
            self._known = set(found)
            self._markers = {name: stamp for name, stamp in found.items() if matches(self._globs, name)}

    def know_before(self) -> None:
        """Take over from an attempt that was killed."""
        with suppress(OSError, ValueError, TypeError):
            noted = parse_json(self._note.read_bytes())
            self._stamps = {name: (int(inode), int(size), int(at)) for name, (inode, size, at) in noted.items()}

    def take(self, event: FileEvent) -> None:
        """Take an event of a file, in order: the end of a stage may be one."""
        if not self._is_wanted:
            return
        if event.what & Happened.IS_FOLDER:
            if event.what & GONE:
                self._known = {name for name in self._known if not name.startswith(f"{event.name}/")}
        elif event.what & GONE:
            self._known.discard(event.name)
        elif event.what & (COMPLETED | Happened.FOUND):
            self._known.add(event.name)
            if matches(self._globs, event.name):
                self._end_stage(event.name)

    def _end_stage(self, marker: str) -> None:
        stamp = state_stamp_of(self._folder / marker)
        if stamp is None or self._markers.get(marker) == stamp:
            return  # a resumed program touches those of stages that it skips
        found = self._found()
        stage = {name: at for name, at in found.items() if self._is_before(name, at, stamp)}
        changed = sorted(name for name in self._known - stage.keys() if matches(self._program.files, name))
        if changed:
            self._tell(changed[0])
        self._markers[marker], self._known, self._stamps = stamp, set(found), {} if changed else stage
        with suppress(StorageError, OSError):  # then only this attempt knows it
            fs.write_atomic(self._note, json.dumps(self._stamps) + "\n")

    def _is_before(self, name: str, stamp: Stamp, marker: Stamp) -> bool:
        """Return True for a file of the stage that has ended; within a tick of the clock its events say it."""
        is_long_before = stamp[2] <= marker[2] - TICKS_SECONDS * 1e9
        return is_long_before or (stamp[2] <= marker[2] and name in self._known)

    def state(self) -> RestartState | None:
        """Return the files of the last stage that was completed; None if there are none, or one has been changed."""
        stamps = self._stamps
        changed = next((name for name, at in stamps.items() if state_stamp_of(self._folder / name) != at), "")
        if changed:
            self._tell(changed)
            if self._stamps is stamps:  # no later stage was completed meanwhile
                self._stamps = {}
        if changed or not stamps:
            return None
        return RestartState(self._folder, tuple(sorted(stamps)), complete_stamps=stamps)

    def _tell(self, changed: str) -> None:
        self._missed += 1
        if self._missed == MOST_TOLD:
            said = "of such stages nothing more is said"
            logger.info(f"{self._missed} stages not saved, the last because the next one has changed {changed}; {said}")

    def _found(self) -> dict[str, Stamp]:
        stamps = ((name, state_stamp_of(self._folder / name)) for name in self._names())
        return {name: stamp for name, stamp in stamps if stamp is not None}
