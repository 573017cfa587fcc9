"""Answer from what was observed of an attempt's files, by its own process or by one that was killed."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.databases import has_journal, is_database
from unbroken.engines.files.moments import FILE_NAME, Moment, MomentJournal, read_moments
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.states import ELSEWHERE, NOT, Stamp, newest_ns, stamp_of
from unbroken.engines.files.writers import ProgramLife, pids_with, written_by
from unbroken.program.contract import AttemptFolder

logger = logging.getLogger(__name__)

# After so many looks that found no quiet moment, a save is taken at the moment of its last file.
MOST_RESTLESS_LOOKS = 3
# Without a second save to compare with, files that were written together are complete when nothing came for so long.
FIRST_QUIET_SECONDS = 2.0
# With one, after so long; a program that never rests so long is taken at the moment of its last file.
QUIET_SECONDS = 0.1
# A file whose writing was not seen is complete if it stays as it is for so long.
ALIKE_SECONDS = 1.0
_WILD = re.compile(r"[*?\[{]")
_DIGITS = re.compile(r"\d+")

# The length of each output when a state was complete, or the name of one whose length is unknown.
Lengths = tuple[Mapping[str, int] | None, str]


class SaveCycle:
    """Hold the order in which state files are completed; a name that comes again begins the next save.

    Files whose names differ in numbers alone are one file: `step-100.pt`, `step-200.pt`.  `known` are the names of an
    earlier save, or of the only files that there can be.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._current: list[str] = []
        self._learned = frozenset(_DIGITS.sub("#", name) for name in known)
        self._last = 0.0
        self._restless_looks = 0

    def note(self, name: str) -> None:
        """Take the next completed state file."""
        key = _DIGITS.sub("#", name)
        if key in self._current:
            self._learned, self._current = frozenset(self._current), []
        self._current.append(key)
        self._last = time.monotonic()

    def is_complete(self, *, is_alone: bool) -> bool:
        """Return True if no file of the last save is missing; a file that is always `is_alone` in it is not waited for.

        Other saves are complete after a quiet moment.  Of a program that never rests, each save of known files is.
        """
        quiet = time.monotonic() - self._last
        is_known = bool(self._learned) and self._learned <= set(self._current)
        is_hasty = is_known and (is_alone or self._restless_looks >= MOST_RESTLESS_LOOKS)
        is_over = bool(self._current) and (is_hasty or quiet >= (QUIET_SECONDS if is_known else FIRST_QUIET_SECONDS))
        self._restless_looks += not is_over
        return is_over


def literal_names(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the names that the globs mean, if none of them has a wildcard; else nothing."""
    names = tuple(name for name in globs if not name.startswith(NOT))
    return () if any(_WILD.search(name) for name in names) else names


class ObservedFiles:
    """Combine events of the files below `root` with their journal in the attempt folder, to judge a state."""

    def __init__(
        self,
        root: Path,
        attempt: AttemptFolder,
        *,
        is_state: Callable[[str], bool],
        is_measured: Callable[[str], bool],
        is_watched: Callable[[str], bool] = lambda _: True,
        also: Mapping[str, Path] | None = None,
    ) -> None:
        self.root, self._is_measured = root, is_measured
        self.mark = f"UNBROKEN_SAVE={attempt.save.resolve()}"
        self.cycle = SaveCycle()
        self._journal = MomentJournal(attempt.root / FILE_NAME)
        self._life = ProgramLife(self.mark)
        self.observer = FileObserver(
            root,
            is_state,
            self._life,
            is_watched=is_watched,
            on_moment=self._on_moment,
            on_rest=self._on_rest,
            also=also,
        )
        self.unknown: frozenset[str] = frozenset()  # files whose length at the last `lengths_at` is unknown
        self._was_observed = False  # an attempt that was killed
        self._appended_noted = 0
        self._alike: dict[str, tuple[Stamp, float]] = {}  # since when a file is as it is
        self._is_over = False

    # --- life ---

    def begin(self, lengths: Mapping[str, int]) -> None:
        """Begin to observe, with the lengths of the files that are there."""
        self._journal.begin(lengths)
        self.observer.start(lengths)
        if self.observer.why_blind:  # a journal without moments would say that no file was completed
            self._journal.path.unlink(missing_ok=True)
            logger.warning(f"{self.observer.why_blind}; what grows is compared by its times alone")

    def end(self) -> None:
        """Take what happened until the program was gone."""
        self._is_over = True
        self.observer.close()

    def know_before(self) -> None:
        """Take the moments of an attempt that was killed, from its journal."""
        self._was_observed = self._journal.path.exists()
        self.observer.know(*read_moments(self._journal.path))

    def _on_moment(self, moment: Moment) -> None:
        self._journal.note(replace(moment, is_renamed=self.observer.is_renamed(moment.name)))
        if not moment.is_late_doubt and not moment.name.startswith(ELSEWHERE):
            self.cycle.note(moment.name)

    def _on_rest(self) -> None:
        """Look at the program, and note which state files were found to be appended to."""
        self._life.look()
        if len(self.observer.appended) != self._appended_noted:
            self._appended_noted = len(self.observer.appended)
            self._journal.note_appended(self.observer.appended)

    # --- what is complete ---

    def are_complete(
        self, stamps: Mapping[str, Stamp], saved: Mapping[str, Stamp], *, is_said_to_rename: bool = False
    ) -> bool:
        """Return True if each file is as it was saved before, or complete by what was seen of it."""
        new = [(name, stamp) for name, stamp in stamps.items() if saved.get(name) != stamp]
        return bool(stamps) and all(
            self._is_complete(name, stamp, is_said_to_rename=is_said_to_rename) for name, stamp in new
        )

    def _is_complete(self, name: str, stamp: Stamp, *, is_said_to_rename: bool) -> bool:
        """Return True if a state file was closed after its last write, is always renamed, or is a database.

        The user's word that the program renames it counts for a file that was not seen to be written, and where an
        attempt that was killed could observe nothing.
        """
        if is_database(self.root / name):
            return True
        if self.observer.is_renamed(name):
            return not self._is_changed_in_place(name, stamp)
        if is_said_to_rename and not self._was_observed and not self.observer.is_written_in_place(name):
            return True
        moment = self.observer.moment(name)
        if moment is None:
            return self._is_left_alone(name, stamp)
        return moment.stamp == stamp and not self.observer.is_open(name)

    def _is_changed_in_place(self, name: str, stamp: Stamp) -> bool:
        """Return True for a file that is another one than a killed attempt had renamed into place, under its inode.

        A node that crashes may leave it cut, or empty.
        """
        moment = self.observer.moment(name) if self._was_observed else None
        return moment is not None and moment.stamp[0] == stamp[0] and moment.stamp != stamp

    def _is_left_alone(self, name: str, stamp: Stamp) -> bool:
        """Return True for a file that no process writes, whose writing was not seen, and that is the same for a while.

        Such is a file that was made by a link.  Where nothing can be observed it must have been seen so while the
        program worked: its death would leave a torn file alone.
        """
        known, since = self._alike.get(name, (None, 0.0))
        if self.observer.completions(name) or self.observer.is_open(name):
            return False
        if known != stamp:
            self._alike[name] = (stamp, time.monotonic())
            return False
        if self._is_over and self.observer.why_blind:
            return since == 0.0
        path = self.root / name
        if since and (time.monotonic() - since < ALIKE_SECONDS or written_by(pids_with(self.mark), [path])):
            return False
        self._alike[name] = (stamp, 0.0)  # from now on it is known
        return True

    def is_save_over(self, stamps: Mapping[str, Stamp], saved: Mapping[str, Stamp]) -> bool:
        """Return True if no file of the save to which the new ones belong is missing.

        Return True also for files whose writing was not seen to its end, because no event shows it.
        """
        if not any(self.observer.completions(name) for name, stamp in stamps.items() if saved.get(name) != stamp):
            return True
        return self.cycle.is_complete(is_alone=len(stamps) == 1 and self.observer.is_renamed(next(iter(stamps))))

    def is_open(self, name: str) -> bool:
        """Return True for a file that is open for writing, or was when the last state file was complete."""
        last = self.observer.last_moment
        return self.observer.is_open(name) or (last is not None and name in last.opened)

    # --- when ---

    def lengths_at(self, stamps: Mapping[str, Stamp], paths: Callable[[], Mapping[str, Path]]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete.

        `paths` finds the outputs of now.  It may take long, while the program writes its next state, so it is called
        only if no event shows the lengths.
        """
        self.observer.settle()
        moment = self.observer.moment_of(stamps)
        if moment is not None and not (found := self._lengths_of(moment))[1]:
            return found
        if name := self._without_time(stamps):
            return (None, name) if any(map(self._is_measured, paths())) else ({}, "")
        return self.lengths_by_time(newest_ns(stamps), paths)

    def lengths_when(self, name: str) -> Lengths | None:
        """Return the lengths when a state was handed over under that name; None if nothing was seen of it."""
        self.observer.settle()
        moment = self.observer.moment(name)
        return None if moment is None else self._lengths_of(moment)

    def lengths_by_time(self, mtime_ns: int, paths: Callable[[], Mapping[str, Path]]) -> Lengths:
        """Compare by the file system's clock, which does not advance for milliseconds: an equal time proves nothing."""
        lengths = {}
        for name, path in paths().items():
            stamp = stamp_of(path)
            if stamp is not None and stamp[2] < mtime_ns:
                lengths[name] = stamp[1]
            elif stamp is not None and self._is_measured(name):
                return None, name
        return lengths, ""

    def _lengths_of(self, moment: Moment) -> Lengths:
        if name := self._blurred(moment):
            return None, name
        self.unknown = moment.unknown
        return moment.lengths, ""

    def _blurred(self, moment: Moment) -> str:
        """Return an output whose length must be known, and is not; empty if there is none."""
        is_state = self.observer.is_state
        return next((name for name in sorted(moment.unknown) if self._is_measured(name) and not is_state(name)), "")

    def _without_time(self, names: Iterable[str]) -> str:
        """Return the name of a database whose time is not that of its last commit; empty if there is none.

        With a journal next to it, the time may be that of a transaction that was not committed, and is rolled back.
        The last process that opens it moves the log of a killed program into it.
        """
        databases = [name for name in sorted(names) if is_database(self.root / name)]
        return next((name for name in databases if has_journal(self.root / name) or self.observer.moment(name)), "")
