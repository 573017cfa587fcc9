"""Make checkpoints of a program with restart files of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.in_run import InRunSupervisor
from unbroken.engines.files.listing import ProgramEnd, UnsteadyOutputError
from unbroken.engines.files.observed import SaveCycle, literal_names
from unbroken.engines.files.reading import Reading, last_number, reading_of, why_not_whole
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import (
    RestartState,
    Stamp,
    copied,
    is_as_in,
    is_progress_file_kept,
    linked,
    matching,
    newest_ns,
    restart_files,
    states_in,
)
from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.contract import HandedOver
from unbroken.runs.own_folder import confirm_own
from unbroken.system import fs

HELD = "held"


class FileSupervisor(InRunSupervisor):
    """Supervise a program with restart files of its own, or with the contract, in the run's folder."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        if program.saved_by is SavedBy.OBSERVED and program.progress_file and not is_progress_file_kept(program):
            self._saved_by = SavedBy.EXIT  # only at its end the number is that of the restart files
        self._seen = {name: stamp for state in self._states() for name, stamp in state.stamps.items()}
        self._put_back = frozenset(self._seen)
        self._refused: set[tuple[Stamp, ...]] = set()  # by check_command
        self._check_says = ""
        self.observed.cycle = SaveCycle(restart_files(task.origin) if task.origin else literal_names(program.files))

    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        if self.program.keeps_the_contract:
            return self._handed_over()
        if self._saved_by is SavedBy.EXIT or not self._is_due(is_urgent=is_urgent):
            return []
        confirm_own(self.folder)
        return list(self._copies(is_running=True))

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        self.observed.end()
        if self.program.keeps_the_contract:
            return self._handed_at_end(has_left_well=has_left_well, is_finished=is_finished)
        confirm_own(self.folder)
        if not has_left_well:
            return list(self._copies(is_running=False))
        self.observed.observer.trust()
        states = self._states()[:1]
        if not states and is_finished:
            return [self._results_alone()]
        if not states:
            self._why = f"no file in its folder matches {', '.join(self.program.files)}"
            return []
        reading, draft = self._reading(states[0]), self._draft()
        if not is_finished and not self._is_further(states[0], reading):
            return []
        linked(states[0], draft)
        if not is_finished and not self._is_valid(draft, states[0].stamps):
            return []
        done = self._done(reading)
        self._list_at_end(draft, states[0], done, is_finished=is_finished)
        return [self._found(draft, done, is_finished=is_finished)]

    def salvage(self) -> list[HandedOver]:
        """Return what a killed attempt had complete, by its journal or by the program's own evidence."""
        self.observed.know_before()
        if self.program.keeps_the_contract:
            return self._handed_by_killed()
        confirm_own(self.folder)
        self._seen = {}
        return list(self._copies(is_running=False))

    def why_nothing_newer(self) -> str:
        return super().why_nothing_newer() or ("" if self._has_saved else self._check_says)

    def reached(self) -> float | None:
        """Return how far the newest restart files are, once the program is gone; None if there are none.

        A count of checkpoints where nothing says how far.
        """
        states = self._states()[:1]
        return self._done(self._reading(states[0])) if states else None

    def live(self) -> float | None:
        """Ask the live file, the last record of a table, or the names of restart files."""
        program = self.program
        if program.live_file:
            names = matching(self.folder, [program.live_file])
            return last_number(self.folder / names[-1], program.live_pattern) if names else None
        if program.outputs:
            return self.tables.last_number()
        return self.reached() if program.has_numbered_files else None

    # --- how far it is ---

    def _states(self) -> list[RestartState]:
        return states_in(self.folder, self.program.files) if self.program.files else []

    def _reading(self, state: RestartState) -> Reading:
        return reading_of(self.task.run, self.program, self.folder, state.number)

    def _done(self, reading: Reading) -> float:
        """Return a count of checkpoints where nothing says how far."""
        return (self.last or 0) + 1 if reading.done is None else reading.done

    def _has_grown(self, done: float) -> bool:
        """Return True for more progress; 0 is no step, because a number that stays 0 is most often not the progress."""
        return done != 0 if self.last is None else done > self.last

    def _is_further(self, state: RestartState, reading: Reading) -> bool:
        """Return True for a state with more progress; for one that says nothing of it, if it was written since."""
        if not self.program.says_progress:
            self._why = "" if self._is_new(state.stamps) else "its restart files were not written again"
            return not self._why
        done = self._done(reading)
        self._why = "" if self._has_grown(done) else self._no_step(done, reading)
        return not self._why

    def _no_step(self, done: float, reading: Reading) -> str:
        unit, written = self.program.goal_unit, self.tables.last_number()
        before, never = ("as at the start", "; it never grew") if self.last is None else (f"after {self.last:.10g}", "")
        also = f", while the outputs are at {written:.10g}" if written and written > done else ""
        return f"its restart files say {done:.10g} {unit}, {before}: {reading.how}{never}{also}"

    def _is_new(self, stamps: Mapping[str, Stamp]) -> bool:
        """Return False for files that were put back, or handed over, as long as they are not written again."""
        if not any(self._seen.get(name) != stamp for name, stamp in stamps.items()):
            return False
        return bool(self._seen) or not self._is_as_origin(stamps)

    def _is_as_origin(self, stamps: Mapping[str, Stamp]) -> bool:
        """Return True if the files have the bytes of the checkpoint that the attempt resumed from."""
        origin = self.task.origin
        if origin is None or sorted(restart_files(origin)) != sorted(stamps):
            return False
        return all(is_as_in(origin, name, self.folder / name) for name in stamps)

    # --- what is copied ---

    def _copies(self, *, is_running: bool) -> Iterator[HandedOver]:
        """Yield a copy of the furthest state that is complete and safe, if it is further than the last one."""
        if not self.program.has_numbered_files:
            yield from self._held(is_running=is_running)
            return
        for state in self._complete_states(is_running=is_running):
            done, draft = float(state.number), self._draft()
            if not self._has_grown(done):
                return
            is_wanted = not self._is_goal(done) and self.tables.are_behind(done)
            if is_wanted and self._is_copied(state, draft, is_running=is_running):
                self._forget_older()
                yield self._found(draft, done)
                return

    def _held(self, *, is_running: bool) -> Iterator[HandedOver]:
        """Copy at once the files that are written again and again, and hold them until the outputs have followed."""
        held = self.task.attempt_folder.root / HELD
        if not held.exists():
            self._hold(held, is_running=is_running)
        if not held.exists():
            return
        try:
            reading = reading_of(self.task.run, self.program, held, "")
        except CheckpointError:  # torn after all, or the config is wrong, which the program's end will show
            fs.remove_tree(held)
            return
        done = self._done(reading)
        if not self._has_grown(done) or self._is_goal(done):
            fs.remove_tree(held)
        elif self.tables.are_behind(done):
            draft = self._draft()
            os.rename(held, draft)
            self.list_tables(draft)
            yield self._found(draft, done)

    def _hold(self, held: Path, *, is_running: bool) -> None:
        draft = self._draft()
        for state in self._complete_states(is_running=is_running):
            stamps = state.complete_stamps or {}
            if self._is_new(stamps) and self._is_copied(state, draft, is_running=is_running):
                self._seen = dict(stamps)
                os.rename(draft, held)

    def _is_copied(self, state: RestartState, draft: Path, *, is_running: bool) -> bool:
        """Copy a complete state and list the outputs that belong to it; return False, without a copy, if that fails."""
        stamps = dict(state.complete_stamps or state.stamps)
        lengths, blurred = self.lengths_at(stamps)
        if blurred:
            self._skip(f"{blurred} is written while the restart files are, so what of it belongs to them is unknown")
            return False
        if tuple(stamps.values()) in self._refused:
            return False
        if not copied(state, draft):
            if is_running:
                self._skip(f"{', '.join(state.files[:3])} changed while copied")
            return False
        if not self._is_valid(draft, stamps):
            return False
        try:
            self.list_outputs(draft, lengths)
        except UnsteadyOutputError as error:
            fs.remove_tree(draft)
            self._skip(str(error))
            return False
        self._skips = 0
        return True

    def _is_valid(self, draft: Path, stamps: Mapping[str, Stamp]) -> bool:
        """Ask check_command about a copy; remove and log one that it refuses."""
        why = why_not_whole(self.task.run, self.program, draft)
        if why:
            fs.remove_tree(draft)
            self._refused.add(tuple(stamps.values()))
            if why != self._check_says:
                self.task.tell(f"restart files are not taken: {why}; the next ones may be")
        self._check_says = why
        return not why

    def _is_goal(self, done: float) -> bool:
        """Return True for the last state: it waits for the end of the program, which writes its results after it."""
        goal = self.task.run.goal
        return goal is not None and done >= goal

    def _forget_older(self) -> None:
        """Remove numbered restart files of this attempt that were handed over long ago: they fill the disk."""
        for state in self._states():
            if self.last is not None and float(state.number) < self.last:
                for name in set(state.numbered) - self._put_back:
                    (self.folder / name).unlink(missing_ok=True)

    # --- at the end ---

    def _list_at_end(self, draft: Path, state: RestartState, done: float, *, is_finished: bool) -> None:
        written = newest_ns(state.stamps) / 1e9
        lengths, _ = self.lengths_at(state.stamps)
        if self._has_saved_at_end(written):  # its buffers follow at its end
            lengths = None
        has_saved_last = self._has_saved_last(written, has_left_well=True)
        end = ProgramEnd(is_finished=is_finished, has_saved_last=has_saved_last, done=done)
        self.list_outputs(draft, lengths, end)

    def _results_alone(self) -> HandedOver:
        """Return the results of a program that removes its restart files when it is done."""
        draft, run = self._draft(), self.task.run
        draft.mkdir()
        if not self.list_outputs(draft, None, ProgramEnd(is_finished=True)):
            raise SegmentError(
                "the program is done, but left no file at all in its folder; it has no result", run=run.name
            )
        return self._found(draft, max(self.last or 0, run.goal or 0), is_finished=True)
