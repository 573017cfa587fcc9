"""Decide what of an attempt becomes a checkpoint: while its program runs, after its end, and after it was killed.

The program's files lie in a folder of the run (in_run.py, supervisor.py), or where the user called it (in_place.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.listing import ProgramEnd, UnsteadyOutputError
from unbroken.engines.files.observed import Lengths, ObservedFiles
from unbroken.engines.files.outputs import LIST
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import SAVE, RestartState, Stamp, complete_states, stamp_of
from unbroken.engines.files.tables import Tables
from unbroken.errors import CheckpointError
from unbroken.program.contract import TAKEN, HandedOver, copied_states, loose_state, ready_states
from unbroken.runs.progress import Handover, Progress
from unbroken.system import fs

# A program that has left so soon after its last save has saved as its last action.
LAST_ACTION_SECONDS = 2.0
# So many saves that cannot be used are worth a line; of states that are handed over, the next is taken with a doubt.
MOST_SKIPS = 3


class Supervisor(ABC):
    """Decide what of an attempt becomes a checkpoint, wherever its program's files lie.

    By itself it takes the states that the program hands over by the contract (docs/contract.md).
    """

    has_outputs = True  # that belong to its states
    longest_rest_seconds = 30.0  # between two looks: one hang of a file server must not end them

    def __init__(self, task: Task, program: Program, observed: ObservedFiles) -> None:
        self.task, self.program = task, program
        self.observed, self.folder = observed, observed.root
        self.tables = Tables(program.outputs, self.folder)
        self.last = task.origin.passport.progress.done if task.origin else None
        self.stop_asked_unix: float | None = None
        self._saved_by = program.saved_by
        self._saved_at = time.monotonic()
        self._seen: dict[str, Stamp] = {}  # how the files were that were put back, or copied last
        self._why = ""
        self._has_saved = self._is_in_place_told = False
        self._skips = 0
        self._waiting: list[HandedOver] = []  # for the records of tables

    @abstractmethod
    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        """Return states that are complete, and whose outputs are; at once if it `is_urgent`, else when one is due."""

    @abstractmethod
    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone."""

    @abstractmethod
    def salvage(self) -> list[HandedOver]:
        """Return what counts of an attempt that was killed; copied, because its program may live on a lost node."""

    @abstractmethod
    def reached(self) -> float | None:
        """Return how far the newest restart files are; None if there are none, or none say it."""

    def live(self) -> float | None:
        """Return how far the program is while it runs; None if nothing says it."""
        return self.reached()

    def why_nothing_newer(self) -> str:
        """Return why what the program left is no newer checkpoint; empty if it is one, or nothing is known."""
        return "" if self._has_saved else self._why

    def close(self) -> None:
        """Give back what is held open: the attempt is over."""
        self.observed.observer.close()

    # --- outputs ---

    @abstractmethod
    def outputs(self) -> Mapping[str, Path]:
        """Return where the outputs of now are."""

    @abstractmethod
    def list_outputs(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> bool:
        """Write the list of outputs that belong to a state into its draft; return True if there are any.

        Raise UnsteadyOutputError if one changes meanwhile.
        """

    @abstractmethod
    def doubt(self, doubt: str) -> None:
        """Log a doubt about the result once; the next list has it."""

    @abstractmethod
    def list_tables(self, draft: Path) -> None:
        """List the tables that belong to a state, once they have a record after it."""

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        return self.observed.lengths_at(stamps, self.outputs) if self.has_outputs else (None, "")

    def _lengths_when(self, name: str) -> Lengths:
        """Return the lengths of the outputs when a state of that name was handed over; else which is not known."""
        if not self.has_outputs:
            return None, ""
        stamp = stamp_of(self.task.attempt_folder.save / name)
        seen = self.observed.lengths_when(f"{SAVE}/{name}")
        return seen or self.observed.lengths_by_time(stamp[2] if stamp else 0, self.outputs)

    # --- what the program hands over by itself ---

    def _judged(self, found: HandedOver) -> HandedOver:
        """Return a state with what counts of its handover."""
        return found

    def _handed_over(self, *, is_over: bool = False) -> list[HandedOver]:
        """Return what was handed over, once its tables have a later record; `is_over`: the program has left well."""
        found = ready_states(self.task.attempt_folder)
        for each in found:
            known = self._lengths_when(each.draft.name)  # before it is taken away
            if is_over and known[1] and each is found[-1]:
                known = None, ""  # it is listed as the program has left it
            if self._is_listed(taken := self._judged(each.taken()), known):
                self._waiting.append(taken)
        ready = []
        while self._waiting and self._are_tables_behind(self._waiting[0]):
            ready.append(self._waiting.pop(0))
            self.list_tables(ready[-1].draft)
        return ready

    def _handed_at_end(self, *, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what was handed over until the end; of a program that has left well its loose files too."""
        if not has_left_well:
            return self._handed_over()
        loose = loose_state(self.task.attempt_folder, self.task.attempt_folder.root / "loose")
        found = self._handed_over(is_over=loose is None)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.list_tables(each.draft)
        found += [*waiting, *([self._judged(loose)] if loose else [])]
        if found:
            handover = found[-1].handover
            done = handover.progress.done if handover else None
            end = ProgramEnd(is_finished=is_finished, has_saved_last=True, done=done)
            self.list_outputs(found[-1].draft, None, end)
        return found

    def _handed_by_killed(self) -> list[HandedOver]:
        """Return copies of what an attempt that was killed had handed over."""
        listed = []
        for found in map(self._judged, copied_states(self.task.attempt_folder)):
            lengths = self._lengths_when(found.draft.name.removeprefix(TAKEN))
            is_known = found.handover is not None and self._are_tables_behind(found)
            if is_known and self._is_listed(found, lengths):
                self.list_tables(found.draft)
                listed.append(found)
        return listed

    def _are_tables_behind(self, found: HandedOver) -> bool:
        """Return True if all records of the tables that belong to a state have left the program's buffers."""
        if not self.program.outputs:
            return True
        if found.handover is None:
            raise CheckpointError(
                f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
            )
        return self.tables.are_behind(found.handover.progress.done)

    def _is_listed(self, found: HandedOver, known: Lengths) -> bool:
        """List the outputs that belong to a state; return False for one whose outputs are not known."""
        if (found.draft / LIST).is_file():
            return True
        lengths, blurred = known
        if blurred:
            self._skips += 1
            if self._skips <= MOST_SKIPS:
                return False
            self.doubt(f"{blurred} was written while a state was saved, so rows of it may be missing or there twice")
        try:
            self.list_outputs(found.draft, lengths)
        except UnsteadyOutputError:
            return False
        self._skips = 0
        return True

    # --- which of its files are complete ---

    @abstractmethod
    def _states(self) -> list[RestartState]:
        """Return the restart files that belong together, the furthest first."""

    def _complete_states(self, *, is_running: bool) -> Iterable[RestartState]:
        """Return the complete states, the furthest first: by what their events have shown, or by the program's word."""
        if self._saved_by in (SavedBy.OBSERVED, SavedBy.RENAME):
            return self._observed_states(is_running=is_running)
        return complete_states(self._states(), self.program)

    def _observed_states(self, *, is_running: bool) -> Iterator[RestartState]:
        """Yield states whose files are all complete; while the program runs, all files of a save must be."""
        is_said = self._saved_by is SavedBy.RENAME
        for state in self._states():
            stamps = state.stamps
            if is_said:
                self._tell_of_files_in_place(stamps)
            if len(stamps) < len(state.files):
                continue
            if is_running and len(stamps) > 1:
                self.observed.observer.settle()  # what has begun the next save is known
            if not self.observed.are_complete(stamps, self._seen, is_said_to_rename=is_said):
                continue
            if not is_running or self.observed.is_save_over(stamps, self._seen):
                yield replace(state, complete_stamps=stamps)

    def _tell_of_files_in_place(self, names: Iterable[str]) -> None:
        found = [name for name in names if self.observed.observer.is_written_in_place(name)]
        if found and not self._is_in_place_told:
            self._is_in_place_told = True
            self.task.tell(
                f"saved_by: found 'rename', but the program writes {found[0]} in place; it is copied when it is closed"
            )

    def _has_saved_at_end(self, saved_unix: float) -> bool:
        """Return True if the program saved because it leaves: by its settings, or asked to."""
        is_asked = self.stop_asked_unix is not None and saved_unix >= self.stop_asked_unix
        return self._saved_by is SavedBy.EXIT or is_asked

    def _has_saved_last(self, saved_unix: float, *, has_left_well: bool) -> bool:
        """Return True if the program saved as its last action: then its buffers belong to the state."""
        is_just_now = has_left_well and saved_unix >= time.time() - LAST_ACTION_SECONDS
        return is_just_now or self._has_saved_at_end(saved_unix)

    # --- what becomes of it ---

    def _is_due(self, *, is_urgent: bool) -> bool:
        return is_urgent or time.monotonic() - self._saved_at >= self.task.run.save_minutes * 60

    def _skip(self, why: str) -> None:
        """Log why a save was not taken, after some in a row."""
        self._skips += 1
        if self._skips == MOST_SKIPS:
            self.task.tell(f"not saved since {time.monotonic() - self._saved_at:.0f} s: {why}; the next save is tried")

    def _draft(self) -> Path:
        """Return a name not used before: what an earlier successor left half copied is no part of a state."""
        return self.task.attempt_folder.root / fs.unique_name("state")

    def _found(self, draft: Path, done: float, *, is_finished: bool = False) -> HandedOver:
        """Hand a state over, so far as `done` says."""
        self.last, self._saved_at, self._has_saved = done, time.monotonic(), True
        return HandedOver(draft, Handover(self._progress(done), is_finished=is_finished))

    def _progress(self, done: float) -> Progress:
        """Return the progress of a state; without any evidence of it, it is a count of checkpoints."""
        is_said = bool(self.program.files) and self.program.says_progress
        return Progress(done, self.task.run.goal, self.program.goal_unit if is_said else "checkpoints")
