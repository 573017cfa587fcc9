"""Answer from what was observed of an attempt's files, by its own process or by one that was killed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.databases import has_journal, is_database
from unbroken.engines.files.moments import FILE_NAME, Moment, MomentJournal, read_moments
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.states import ELSEWHERE, Stamp, newest_ns, stamp_of
from unbroken.engines.files.writers import ProgramLife, are_written
from unbroken.program.contract import AttemptFolder

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

    def note(self, name: str) -> None:
        """Take the next completed state file."""
        key = _DIGITS.sub("#", name)
        if key in self._current:
            self._learned, self._current = frozenset(self._current), []
        self._current.append(key)
        self._last = time.monotonic()

    def is_complete(self, is_restless: bool) -> bool:
        """Return True if no file of the last save is missing; `is_restless` skips the wait for a quiet moment."""
        if not self._current:
            return False
        quiet = time.monotonic() - self._last
        if self._learned and self._learned <= set(self._current):
            return is_restless or quiet >= QUIET_SECONDS
        return quiet >= FIRST_QUIET_SECONDS


def literal_names(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the names that the globs mean, if none of them has a wildcard; else nothing."""
    names = tuple(globs)
    return () if any(_WILD.search(name) for name in names) else names


class ObservedFiles:
    """Combine events of the files below `root` with their journal in the attempt folder, to judge a state."""

    def __init__(
        self,
        root: Path,
        attempt: AttemptFolder,
        tell: Callable[[str], None],
        *,
        is_state: Callable[[str], bool],
        is_measured: Callable[[str], bool],
        is_watched: Callable[[str], bool] = lambda _: True,
        also: Mapping[str, Path] | None = None,
    ) -> None:
        self.root, self._is_measured, self._tell = root, is_measured, tell
        self.mark = f"UNBROKEN_SAVE={attempt.save.resolve()}"
        self.cycle = SaveCycle()
        self._journal_path = attempt.root / FILE_NAME
        self._journal = MomentJournal(self._journal_path, tell)
        self._life = ProgramLife(self.mark)
        self.observer = FileObserver(
            root, is_state, is_watched, self._on_moment, also, self._on_rest, is_measured, self._life
        )
        self.known: dict[str, Moment] = {}  # of an attempt that was killed
        self.unknown: frozenset[str] = frozenset()  # files whose length at the last `lengths_at` is unknown
        self._was_observed = False  # that attempt
        self._restless_looks = self._appended_noted = 0
        self._alike: dict[str, tuple[Stamp, float]] = {}  # since when a file is as it is
        self._steady: dict[str, Stamp] = {}  # how it was when it had been so for a while
        self._is_over = False

    # --- life ---

    def begin(self, lengths: Mapping[str, int], others: Iterable[str] = ()) -> None:
        """Begin to observe, with the lengths of the outputs and the names of other files that are there."""
        self._journal.begin(lengths)
        self.observer.start([*lengths, *others])
        if self.observer.is_blind:  # a journal without moments would say that no file was completed
            self._journal_path.unlink(missing_ok=True)
            self._tell(f"{self.observer.why_blind}; what grows is compared by its times alone")

    def end(self) -> None:
        """Take what happened until the program was gone."""
        self._is_over = True
        self.observer.close()

    def know_before(self) -> None:
        """Take the moments of an attempt that was killed, from its journal."""
        self._was_observed = self._journal_path.exists()
        self.known = read_moments(self._journal_path)

    def _on_moment(self, moment: Moment) -> None:
        self._note(moment)
        if not moment.is_late_doubt and not moment.name.startswith(ELSEWHERE):
            self.cycle.note(moment.name)

    def _note(self, moment: Moment) -> None:
        hidden = self.observer.suspects()
        lengths = {name: size for name, size in moment.lengths.items() if name not in hidden} if hidden else {}
        is_renamed = self.observer.is_renamed(moment.name)
        self._journal.note(replace(moment, lengths=lengths if hidden else moment.lengths, is_renamed=is_renamed))

    def _on_rest(self) -> None:
        """Look at the program, and write the moments again when a state file was found to be appended to."""
        self._life.look()
        if len(self.observer.appended) != self._appended_noted:
            self._appended_noted = len(self.observer.appended)
            for moment in list(self.observer.moments.values()):
                self._note(moment)

    # --- what is complete ---

    def is_renamed(self, name: str) -> bool:
        """Return True if the file was always put in its place by a rename."""
        return self.observer.is_renamed(name) or (name in self.known and self.known[name].is_renamed)

    def is_one_renamed(self, names: Collection[str]) -> bool:
        """Return True for a single file that was always put in its place by a rename: no save of it can be in part."""
        return len(names) == 1 and self.is_renamed(next(iter(names)))

    def are_complete(
        self, stamps: Mapping[str, Stamp], saved: Mapping[str, Stamp], *, is_said_to_rename: bool = False
    ) -> bool:
        """Return True if each file is as it was saved before, or complete by what was seen of it."""
        new = [(name, stamp) for name, stamp in stamps.items() if saved.get(name) != stamp]
        return bool(stamps) and all(self._is_complete(name, stamp, is_said_to_rename) for name, stamp in new)

    def _is_complete(self, name: str, stamp: Stamp, is_said_to_rename: bool) -> bool:
        """Return True if a state file was closed after its last write, is always renamed, or is a database.

        The user's word that the program renames it counts for a file that was not seen to be written, and where an
        attempt that was killed could observe nothing.
        """
        if self.is_renamed(name) or is_database(self.root / name):
            return True
        if is_said_to_rename and not self._was_observed and not self.observer.is_written_in_place(name):
            return True
        moment = self.moment(name)
        if moment is None:
            return self._is_left_alone(name, stamp)
        return moment.stamp == stamp and not self.observer.is_open(name)

    def _is_left_alone(self, name: str, stamp: Stamp) -> bool:
        """Return True for a file that no process writes, whose writing was not seen, and that is the same for a while.

        Such is a file that came with its folder, before that was watched.  Where nothing can be observed it must have
        been seen so while the program worked: its death would leave a torn file alone.
        """
        if self.observer.completions(name) or self.observer.is_open(name):
            self._alike.pop(name, None)
            return False
        if self._is_over and self.observer.is_blind:
            return self._steady.get(name) == stamp
        known, since = self._alike.get(name, (None, 0.0))
        if known != stamp:
            self._alike[name] = (stamp, time.monotonic())
        elif time.monotonic() - since >= ALIKE_SECONDS and not are_written([self.root / name], self.mark):
            self._steady[name] = stamp
            return True
        return False

    def is_save_over(self, stamps: Mapping[str, Stamp], saved: Mapping[str, Stamp]) -> bool:
        """Return True if no file of the save to which the new ones belong is missing.

        Return True also for files whose writing was not seen to its end, because no event shows it.
        """
        if not any(self.observer.completions(name) for name, stamp in stamps.items() if saved.get(name) != stamp):
            return True
        is_restless = self.is_one_renamed(stamps) or self._restless_looks >= MOST_RESTLESS_LOOKS
        is_over = self.cycle.is_complete(is_restless)
        self._restless_looks += 0 if is_over else 1
        return is_over

    def is_open(self, name: str) -> bool:
        """Return True for a file that is open for writing, or was when a killed attempt had a state complete."""
        return self.observer.is_open(name) or any(name in moment.opened for moment in self.known.values())

    def was_open(self, name: str) -> bool:
        """Return True for a file that is open for writing, or was at the last moment of a state."""
        return self.is_open(name) or any(name in moment.opened for moment in self.observer.moments.values())

    # --- when ---

    def moment(self, name: str) -> Moment | None:
        """Return the last completion of a state file; None if nothing is known of one."""
        return self.known.get(name) or self.observer.moments.get(name) or self.observer.taken.get(name)

    def lengths_at(self, stamps: Mapping[str, Stamp], paths: Callable[[], Mapping[str, Path]]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete.

        `paths` finds the outputs of now.  It may take long, while the program writes its next state, so it is called
        only if no event shows the lengths.
        """
        self.observer.settle()
        moment = self.observer.moment_of(stamps) or self._known_moment_of(stamps)
        if moment is not None and not moment.blurred:
            return self._lengths_of(moment)
        if name := self._without_time(stamps):
            return None, name
        return self.lengths_by_time(newest_ns(stamps), paths)

    def lengths_when(self, name: str) -> Lengths | None:
        """Return the lengths when a state was handed over under that name; None if nothing was seen of it."""
        self.observer.settle()
        moment = self.moment(name)
        if moment is None:
            return None
        return (None, moment.blurred) if moment.blurred else self._lengths_of(moment)

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
        self.unknown = moment.unknown
        return {name: size for name, size in moment.lengths.items() if name not in moment.unknown}, ""

    def _known_moment_of(self, stamps: Mapping[str, Stamp]) -> Moment | None:
        found = [self.known[name] for name in stamps if name in self.known]
        if any(moment.stamp != stamps[moment.name] for moment in found):
            return None
        return max(found, key=lambda each: each.at, default=None)

    def _without_time(self, names: Iterable[str]) -> str:
        """Return the name of a database whose time is not that of its last commit; empty if there is none.

        With a journal next to it, the time may be that of a transaction that was not committed, and is rolled back.
        The last process that opens it moves the log of a killed program into it.
        """
        databases = [name for name in sorted(names) if is_database(self.root / name)]
        return next((name for name in databases if has_journal(self.root / name) or self.moment(name)), "")
