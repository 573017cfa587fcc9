"""Define what the supervisor needs to know of the place in which a program works."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import Lengths, ObservedFiles
from unbroken.engines.files.reading import Reading
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import RestartState, Stamp, complete_states
from unbroken.engines.files.tables import Tables
from unbroken.program.contract import HandedOver

logger = logging.getLogger(__name__)

# So many saves that cannot be used are worth a line; of states that are handed over, the next is taken with a doubt.
MOST_SKIPS = 3


class Place(ABC):
    """Hold the folder of a program: a folder of the run (run_place.py), or the user's own (called_place.py)."""

    has_outputs = True  # that belong to its states
    takes_handed_over = True  # the program may hand states over by the contract
    names_results = False  # the user names the results, and they are kept apart from its states
    longest_rest_seconds = 30.0  # between two looks: one hang of a file server must not end them

    def __init__(self, task: Task, program: Program, observed: ObservedFiles) -> None:
        self.task, self.program = task, program
        self.observed, self.folder = observed, observed.root
        self.tables = Tables(program.outputs, self.folder)
        self._is_in_place_told = False

    # --- life ---

    @abstractmethod
    def restore(self) -> bool:
        """Make the files what they were at the checkpoint; return True if what is there was there before the run."""

    @abstractmethod
    def observe(self) -> None:
        """Begin to observe; the program starts after this."""

    @abstractmethod
    def know_before(self) -> None:
        """Take over from an attempt that was killed."""

    @abstractmethod
    def look(self, *, is_last: bool = False) -> None:
        """Confirm that the folder is ours, or note that the attempt lives."""

    # --- its states ---

    @abstractmethod
    def states(self) -> list[RestartState]:
        """Return the state files that belong together, the furthest first."""

    def complete_states(self, saved: Mapping[str, Stamp], *, is_running: bool) -> Iterable[RestartState]:
        """Return the complete states, the furthest first: by what their events have shown, or by the program's word.

        `saved` are the files that were put back, or copied last.
        """
        if self.program.saved_by in (SavedBy.OBSERVED, SavedBy.RENAME):
            return self._observed_states(saved, is_running=is_running)
        return complete_states(self.states(), self.program)

    def _observed_states(self, saved: Mapping[str, Stamp], *, is_running: bool) -> Iterator[RestartState]:
        """Yield states whose files are all complete; while the program runs, all files of a save must be."""
        is_said, observed = self.program.saved_by is SavedBy.RENAME, self.observed
        for state in self.states():
            stamps = state.stamps
            in_place = [name for name in stamps if is_said and observed.observer.is_written_in_place(name)]
            if in_place and not self._is_in_place_told:
                self._is_in_place_told = True
                what = f"but the program writes {in_place[0]} in place; it is copied when it is closed"
                logger.warning(f"saved_by: found 'rename', {what}")
            if len(stamps) < len(state.files):
                continue
            if is_running and len(stamps) > 1:
                observed.observer.settle()  # what has begun the next save is known
            if not observed.are_complete(stamps, saved, is_said_to_rename=is_said):
                continue
            if not is_running or observed.is_save_over(stamps, saved):
                yield replace(state, complete_stamps=stamps)

    @abstractmethod
    def last_state(self) -> RestartState | None:
        """Return the newest state files, complete or not; None if there are none."""

    @abstractmethod
    def saved(self) -> dict[str, Stamp]:
        """Return the state files, as they are, that have the content of the checkpoint."""

    def is_as_saved(self, name: str, stamp: Stamp, saved: Stamp | None) -> bool:
        """Return True if a state file is as it was when it was saved last."""
        return stamp == saved

    @abstractmethod
    def reading(self, state: RestartState) -> Reading:
        """Return how far a state is, or a copy of it; raise CheckpointError if it does not say it, as it should."""

    @abstractmethod
    def reached(self) -> float | None:
        """Return how far the newest state is; None if there is none, or none says it."""

    @abstractmethod
    def live(self) -> float | None:
        """Return how far the program is while it runs; None if nothing says it."""

    @abstractmethod
    def is_copied(self, state: RestartState, draft: Path, *, is_over: bool = False) -> bool:
        """Copy a state; return False, without a copy, if it changes.  Of a program that `is_over` links will do."""

    @abstractmethod
    def handed_over(self, done: float) -> None:
        """Take note that the state that was copied last, so far as `done` says, becomes a checkpoint."""

    def judged(self, found: HandedOver) -> HandedOver:
        """Return a state with what counts of its handover."""
        return found

    # --- its outputs ---

    @abstractmethod
    def outputs(self) -> Mapping[str, Path]:
        """Return where the outputs of now are."""

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        return self.observed.lengths_at(stamps, self.outputs) if self.has_outputs else (None, "")

    @abstractmethod
    def list_outputs(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> bool:
        """Write the list of outputs that belong to a state into its draft; return True if there are any.

        Raise UnsteadyOutputError if one changes meanwhile.
        """

    def list_tables(self, draft: Path) -> None:  # noqa: B027
        """List the tables that belong to a state, once they have a record after it."""

    @abstractmethod
    def doubt(self, doubt: str) -> None:
        """Log a doubt about the result once; the next list has it."""
