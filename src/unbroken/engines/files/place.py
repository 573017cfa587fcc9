"""Hold a program's place: its state files, and all else that it writes there; a folder of its run, or the user's own.

The user's own is in called_place.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import Lengths, ObservedFiles, SaveCycle, literal_names
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.reading import Reading, last_number, reading_of
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.stages import StageMarks
from unbroken.engines.files.states import (
    ELSEWHERE,
    SAVE,
    RestartState,
    Stamp,
    complete_states,
    copied,
    is_as_in,
    is_handed_over,
    linked,
    matching,
    restart_files,
    states_in,
)
from unbroken.engines.files.tables import Tables
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import Workspace
from unbroken.program.handover import HandedOver
from unbroken.store.own_folder import confirm_own

logger = logging.getLogger(__name__)

# So many saves that cannot be used are worth a line; of states that are handed over, the next is taken with a doubt.
MOST_SKIPS = 3
# Two save intervals and so long without a save are worth a line.
LONGEST_WAIT_SECONDS = 10.0


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
        self.stages = StageMarks(program, self.folder, task.attempt_folder.root, self.state_names)
        observed.observer.on_event = self.stages.take
        self._put_back: frozenset[str] = frozenset()  # the state files that were put back
        self._is_in_place_told = self._is_open_told = False

    @abstractmethod
    def states(self) -> list[RestartState]:
        """Return the state files that belong together, the furthest first."""

    def state_names(self) -> list[str]:
        """Return the names of all state files, complete or not."""
        return [name for state in self.states() for name in state.files]

    def last_state(self) -> RestartState | None:
        """Return the newest state files, complete or not; None if there are none."""
        return next(iter(self.states()), None)

    def saved(self) -> dict[str, Stamp]:
        """Return the state files, as they are, that have the content of the checkpoint."""
        found = {name: stamp for state in self.states() for name, stamp in state.stamps.items()}
        return {name: stamp for name, stamp in found.items() if name in self._put_back or self._is_in_origin(name)}

    def _is_in_origin(self, name: str) -> bool:
        origin = self.task.origin
        return origin is not None and is_as_in(origin, self.kept_as(name), self.folder / name)

    def kept_as(self, name: str) -> str:
        """Return the name of a state file in a checkpoint."""
        return name

    def is_as_saved(self, name: str, stamp: Stamp, saved: Stamp | None) -> bool:
        """Return True if a state file is as it was when it was saved last."""
        return stamp == saved

    @abstractmethod
    def reading(self, state: RestartState) -> Reading:
        """Return how far a state is, or a copy of it; raise CheckpointError if it does not say it, as it should."""

    def reached(self) -> float | None:
        """Return how far the newest state is; None if there is none, or nothing says it."""
        state = self.last_state()
        return self.reading(state).done if state else None

    @abstractmethod
    def outputs(self) -> Mapping[str, Path]:
        """Return where the outputs of now are."""

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        if not self.has_outputs or self.program.saved_by is SavedBy.STAGE:  # it writes its log all the time
            return None, ""
        return self.observed.lengths_at(stamps, self.outputs)

    def complete_states(self, saved: Mapping[str, Stamp], *, is_running: bool) -> Iterable[RestartState]:
        """Return the complete states, the furthest first: by what their events have shown, or by the program's word.

        `saved` are the files that were put back, or copied last.
        """
        if self.program.saved_by is SavedBy.STAGE:
            return filter(None, [self.stages.state()])
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

    def judged(self, found: HandedOver) -> HandedOver:
        """Return a state that was handed over, with what counts of it."""
        return found

    def tell_of_open_files(self, since_seconds: float) -> None:
        """Say why nothing was saved for so long: state files are open at each look, or stages are not seen."""
        if self._is_open_told or since_seconds <= 2 * self.task.run.save_minutes * 60 + LONGEST_WAIT_SECONDS:
            return
        if self.program.saved_by is SavedBy.STAGE:  # the next one writes all the time
            if why := self.observed.observer.why_blind:
                self._is_open_told = True
                logger.warning(f"not saved for {since_seconds:.0f} s: the end of a stage is not seen: {why}")
            return
        names = [name for state in self.states() for name in state.files]
        if is_open := [name for name in names if self.observed.observer.is_open(name)]:
            self._is_open_told = True
            shown = ", ".join(is_open[:3])
            logger.warning(f"not saved for {since_seconds:.0f} s: open for writing at each look: {shown}")


class RunPlace(Place):
    """Hold a folder of the run; `prepare` makes it what it was at the checkpoint, and returns the outputs in it."""

    def __init__(self, task: Task, program: Program, folder: Path, prepare: Callable[[], OutputList]) -> None:
        kinds, attempt, origin = FileKinds(program), task.attempt_folder, task.origin
        self.takes_handed_over = is_contract = program.keeps_the_contract
        observed = ObservedFiles(
            folder,
            attempt,
            is_state=is_handed_over if is_contract else kinds.is_state,
            is_measured=kinds.is_measured,
            is_watched=lambda name: not name.startswith(ELSEWHERE),
            also={SAVE: attempt.save} if is_contract else {},
        )
        observed.cycle = SaveCycle(restart_files(origin) if origin else literal_names(program.files))
        super().__init__(task, program, observed)
        self._prepare = prepare
        self._tracker = OutputTracker(
            Workspace(task.run_folder, folder),
            task.segment,
            origin.passport.sequence if origin else 0,
            read_outputs(origin),
            kinds,
            lambda name: kinds.is_rewritten(name) or observed.observer.is_rewritten(name),
            # The attempt has made the checkpoint itself, and did not resume from it: it was killed.
            is_own=origin is not None and attempt.root.name == f"{origin.passport.token:06d}",
        )

    # --- life ---

    def restore(self) -> bool:
        """Make the files what they were at the checkpoint; return True if what is there was there before the run."""
        self._tracker.listed = self._prepare()
        self._put_back = frozenset(name for state in self.states() for name in state.files)
        return False

    def observe(self) -> None:
        """Begin to observe; the program starts after this."""
        self._tracker.begin()
        self.stages.begin()
        self.observed.begin({name: path.stat().st_size for name, path in self.outputs().items()})

    def know_before(self) -> None:
        """Take over from an attempt that was killed."""
        self.observed.know_before()
        self.stages.know_before()
        self.look()

    def look(self, *, is_last: bool = False) -> None:
        """Confirm that the folder is ours."""
        if self.program.files:
            confirm_own(self.folder)

    # --- its states ---

    def states(self) -> list[RestartState]:
        return states_in(self.folder, self.program.files) if self.program.files else []

    def reading(self, state: RestartState) -> Reading:
        found = reading_of(self.task.run, self.program, state.folder, state.number)
        return found if found.done is None else replace(found, done=self._in_all(found.done))

    def _in_all(self, number: float) -> float:
        """Return how far that is since the very start."""
        origin = self.task.origin
        return number + (origin.passport.progress.done if origin and self.program.progress_adds else 0.0)

    def live(self) -> float | None:
        """Return how far the program is while it runs, by the last record of a table or by its restart files."""
        program = self.program
        if program.outputs:
            return self.tables.last_number()
        if program.progress_pattern:
            names = literal_names([program.progress_file]) or matching(self.folder, [program.progress_file])
            number = last_number(self.folder / names[-1], program.progress_pattern) if names else None
            return None if number is None else self._in_all(number)
        return self.reached() if program.has_numbered_files else None

    def is_copied(
        self, state: RestartState, draft: Path, _saved: Mapping[str, Stamp], *, is_over: bool = False
    ) -> bool:
        """Copy a state; return False, without a copy, if it changes.  Of a program that `is_over` links will do."""
        if is_over:
            linked(state, draft)
        return is_over or copied(state, draft)

    def handed_over(self, done: float) -> None:
        """Remove numbered restart files of this attempt that were handed over long ago: they fill the disk."""
        for state in () if self.program.keep_older or not self.program.has_numbered_files else self.states():
            if float(state.number) < done:
                for name in set(state.numbered) - self._put_back:
                    (self.folder / name).unlink(missing_ok=True)

    # --- its outputs ---

    def outputs(self) -> Mapping[str, Path]:
        return self._tracker.files()

    def list_outputs(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> bool:
        """Write the list of outputs that belong to a state into its draft; return True if there are any.

        Raise UnsteadyOutputError if one changes meanwhile.
        """
        self._doubt_tables(end.done if end else None)
        opened = [name for name in lengths or () if self.observed.is_open(name)]
        self._tracker.list_into(draft, lengths, opened, end)
        return bool(self._tracker.listed.files)

    def list_tables(self, draft: Path) -> None:
        """List the tables that belong to a state, once they have a record after it."""
        if self.program.outputs:
            self._doubt_tables()
            self._tracker.list_tables(draft)

    def _doubt_tables(self, done: float | None = None) -> None:
        for doubt in self.tables.missing(self.task.run_folder, done):
            self.doubt(doubt)

    def doubt(self, doubt: str) -> None:
        """Log a doubt about the result once; the next list has it."""
        if doubt not in self._tracker.listed.doubts:
            logger.warning(doubt)
            self._tracker.listed = self._tracker.listed.with_doubt(doubt)
