"""Define what the two places have in common in which a program works: a folder of its run, and the user's own."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.observed import Lengths, ObservedFiles
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import RestartState, Stamp, complete_states
from unbroken.engines.files.tables import Tables

logger = logging.getLogger(__name__)

# So many saves that cannot be used are worth a line; of states that are handed over, the next is taken with a doubt.
MOST_SKIPS = 3


class Place(ABC):
    """Judge which state files are complete, and how long the outputs were then."""

    has_outputs = True  # that belong to its states
    takes_handed_over = True  # the program may hand states over by the contract
    names_results = False  # the user names the results, and they are kept apart from its states
    longest_rest_seconds = 30.0  # between two looks: one hang of a file server must not end them

    def __init__(self, task: Task, program: Program, observed: ObservedFiles) -> None:
        self.task, self.program = task, program
        self.observed, self.folder = observed, observed.root
        self.tables = Tables(program.outputs, self.folder)
        self._is_in_place_told = False

    @abstractmethod
    def states(self) -> list[RestartState]:
        """Return the state files that belong together, the furthest first."""

    @abstractmethod
    def outputs(self) -> Mapping[str, Path]:
        """Return where the outputs of now are."""

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        return self.observed.lengths_at(stamps, self.outputs) if self.has_outputs else (None, "")

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
