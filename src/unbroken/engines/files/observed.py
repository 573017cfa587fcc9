"""What was observed of the files of one attempt, by its own process or by one before it that was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.databases import has_journal, is_database
from unbroken.engines.files.moments import FILE_NAME, MomentJournal, read_moments
from unbroken.engines.files.observer import FileObserver, Moment
from unbroken.engines.files.saves import SaveCycle
from unbroken.engines.files.states import Stamp
from unbroken.engines.files.writers import ProgramLife, are_written

# After so many looks that found no quiet moment, a save is taken at the moment of its last file.
MOST_RESTLESS_LOOKS = 3


class ObservedFiles:
    """Events of the files below `root`, their journal in the attempt folder, and what both say of a state.

    `mark` is what the program has in its environment; the other arguments are those of `FileObserver`.
    """

    def __init__(
        self,
        root: Path,
        attempt_root: Path,
        mark: str,
        tell: Callable[[str], None],
        is_state: Callable[[str], bool],
        is_watched: Callable[[str], bool],
        is_measured: Callable[[str], bool],
        also: Mapping[str, Path] | None = None,
        is_saved: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.root, self._mark, self._is_saved = root, mark, is_saved
        self.cycle = SaveCycle()
        self._journal_path = attempt_root / FILE_NAME
        self._journal = MomentJournal(self._journal_path, tell)
        self._life = ProgramLife(mark)
        self.observer = FileObserver(
            root, is_state, is_watched, self._on_moment, also, self._on_rest, is_measured, self._life
        )
        self.known: dict[str, tuple[Moment, bool]] = {}  # of an attempt that was killed
        self._was_observed = False  # that attempt
        self._restless_looks = self._appended_noted = 0

    # --- life ---

    def begin(self, lengths: Mapping[str, int], others: Iterable[str] = ()) -> None:
        """Begin to observe, with the lengths of the outputs and the names of other files that are there."""
        self._journal.begin(lengths)
        self.observer.start([*lengths, *others])
        if self.observer.is_blind:  # a journal without moments would say that no file was completed
            self._journal_path.unlink(missing_ok=True)

    def end(self) -> None:
        """Take what happened until the program was gone."""
        self.observer.close()
        self._journal.write_due(is_over=True)

    def know_before(self) -> None:
        """Take the moments of an attempt that was killed, from its journal."""
        self._was_observed = self._journal_path.exists()
        self.known = read_moments(self._journal_path)

    def _on_moment(self, moment: Moment) -> None:
        self._note(moment)
        if not moment.is_late_doubt and self._is_saved(moment.name):
            self.cycle.note(moment.name)

    def _note(self, moment: Moment) -> None:
        hidden = self.observer.suspects()
        if hidden:
            lengths = {name: size for name, size in moment.lengths.items() if name not in hidden}
            moment = replace(moment, lengths=lengths)
        self._journal.note(moment, self.observer.is_renamed(moment.name))

    def _on_rest(self) -> None:
        """Write what is due, and the last moments again when a state file was found to be appended to."""
        self._life.look()
        if len(self.observer.appended) != self._appended_noted:
            self._appended_noted = len(self.observer.appended)
            for moment in list(self.observer.moments.values()):
                self._note(moment)
        self._journal.write_due()

    # --- what is complete ---

    def is_renamed(self, name: str) -> bool:
        """Return True if the file was always put in its place by a rename."""
        return self.observer.is_renamed(name) or (name in self.known and self.known[name][1])

    def is_complete(self, name: str, stamp: Stamp, is_said_to_rename: bool = False) -> bool:
        """Return True if a state file was closed after its last write, is always renamed, or is a database.

        The user's word that the program renames it counts for a file that was not seen to be written, and where an
        attempt that was killed could observe nothing.
        """
        if self.is_renamed(name) or is_database(self.root / name):
            return True
        if is_said_to_rename and not self._was_observed and not self.observer.is_written_in_place(name):
            return True
        moment = self.moment(name)
        if moment is None and self.observer.is_left_alone(name, stamp):
            return not are_written([self.root / name], self._mark)
        return moment is not None and moment.stamp == stamp and not self.observer.is_open(name)

    def is_save_over(self, stamps: Mapping[str, Stamp], new: Iterable[str]) -> bool:
        """Return True if no file of the save to which the `new` ones belong is missing.

        True also for files whose writing was not seen to its end, which nothing tells of.
        """
        if not any(self.observer.completions(name) for name in new):
            return True
        is_single = len(stamps) == 1 and self.is_renamed(next(iter(stamps)))
        is_over = self.cycle.is_complete(is_single or self._restless_looks >= MOST_RESTLESS_LOOKS)
        self._restless_looks += 0 if is_over else 1
        return is_over

    def is_kept_open(self, name: str) -> bool:
        """Return True for a file that is open for writing, or was when a state was complete."""
        moments = [*self.observer.moments.values(), *(moment for moment, _ in self.known.values())]
        return self.observer.is_open(name) or any(name in moment.opened for moment in moments)

    # --- when ---

    def moment(self, name: str) -> Moment | None:
        """Return the last completion of a state file; None if nothing is known of one."""
        return self.known[name][0] if name in self.known else self.observer.moments.get(name)

    def moment_of(self, stamps: Mapping[str, Stamp]) -> Moment | None:
        """Return the moment at which these state files were complete; None if that is not known."""
        self.observer.settle()
        if (moment := self.observer.moment_of(stamps)) is not None:
            return moment
        found = [self.known[name][0] for name in stamps if name in self.known]
        if any(moment.stamp != stamps[moment.name] for moment in found):
            return None
        return max(found, key=lambda each: each.at, default=None)

    def without_time(self, names: Iterable[str]) -> str:
        """Return the name of a database whose time is not that of its last commit; empty if there is none.

        With a journal beside it the time may be that of a transaction that was not committed, and is rolled back.
        Whoever opens it last moves the log of a killed program into it.
        """
        databases = [name for name in sorted(names) if is_database(self.root / name)]
        return next((name for name in databases if has_journal(self.root / name) or self.moment(name)), "")
