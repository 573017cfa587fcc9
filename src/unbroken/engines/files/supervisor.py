"""Decide what of an attempt becomes a checkpoint: while its program runs, after its end, and after it was killed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.called_place import AnyPlace
from unbroken.engines.files.handed_over import HandedOverStates
from unbroken.engines.files.listing import ProgramEnd, UnsteadyOutputError
from unbroken.engines.files.place import MOST_SKIPS
from unbroken.engines.files.reading import CopyCheck, Reading, no_step
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import ELSEWHERE, RestartState, Stamp, newest_ns
from unbroken.engines.imports import COUNTED
from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.handover import HandedOver
from unbroken.store.progress import Handover, Progress
from unbroken.system import fs

logger = logging.getLogger(__name__)

# A copy that waits for records of tables; what was there before the first start, until it is published.
HELD, ADOPTED = "held", "adopted"
# A program that has left so soon after its last save has saved as its last action.
LAST_ACTION_SECONDS = 2.0


class FileSupervisor:
    """Make checkpoints of a program's state files, and of the states that it hands over."""

    def __init__(self, task: Task, place: AnyPlace) -> None:
        self.task, self.place, self.program = task, place, place.program
        self.observed = place.observed
        self.stop_asked_unix: float | None = None
        self._handed_over = HandedOverStates(task, place)
        self._last = task.origin.passport.progress.done if task.origin else None
        self._saved_at = time.monotonic()
        # How the state files were that were put back, or became the last checkpoint; copied last; are not wanted yet.
        self._saved: Mapping[str, Stamp] = {}
        self._copied: Mapping[str, Stamp] = {}
        self._passed_over: Mapping[str, Stamp] = {}
        self._check = CopyCheck(task.run, self.program)
        self._why = ""
        self._has_saved = self._is_over = False
        self._skips = 0

    # --- life ---

    def begin(self) -> list[HandedOver]:
        """Make the files what they were at the checkpoint; return what was there before the run, saved first.

        The program starts after this.
        """
        is_there_before = self.place.restore()
        self._saved = self.place.saved()
        found = self._adopted() if is_there_before else []
        self.place.observe()
        return found

    def while_running(self, *, is_urgent: bool = False) -> list[HandedOver]:
        """Return states that are complete, and whose outputs are; at once if it `is_urgent`, else when one is due."""
        self.place.look()
        handed = self._handed_over.while_running() if self.place.takes_handed_over else []
        if not self.program.files or self.program.saved_by is SavedBy.EXIT:
            return handed
        if is_urgent or time.monotonic() - self._saved_at >= self.task.run.save_minutes * 60:
            handed += self._copies(is_running=True)
            self.place.tell_of_open_files(time.monotonic() - self._saved_at)
        return handed

    def at_end(self, *, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone."""
        self._is_over = True
        self.observed.end()
        self.place.look(is_last=True)
        ends = {"has_left_well": has_left_well, "is_finished": is_finished}
        handed = self._handed_over.at_end(**ends) if self.place.takes_handed_over else []
        if is_finished and (self.program.files or self.place.names_results):
            self.observed.observer.trust()
            return [*handed[:-1], self._result(handed[-1] if handed else None)]
        if not self.program.files:
            return handed
        if not has_left_well:
            return [*handed, *self._copies(is_running=False)]
        self.observed.observer.trust()
        return [*handed, *self._last_copy()]

    def salvage(self) -> list[HandedOver]:
        """Return what counts of an attempt that was killed; copied, because its program may live on a lost node."""
        self.place.know_before()
        self._saved = self.place.saved()
        handed = self._handed_over.of_killed() if self.place.takes_handed_over else []
        adopted = self.task.attempt_folder.root / ADOPTED
        if self.task.origin is None and adopted.is_dir():
            handed.append(self._found(adopted, 1.0))
        return [*handed, *(self._copies(is_running=False) if self.program.files else ())]

    def why_nothing_newer(self) -> str:
        """Return why what the program left is no newer checkpoint; empty if it is one, or nothing is known."""
        return "" if self._has_saved else self._why or self._check.says

    def _adopted(self) -> list[HandedOver]:
        """Make the first checkpoint of what the program had saved before its first start."""
        draft, adopted, state = self._draft(), self.task.attempt_folder.root / ADOPTED, self.place.last_state()
        if state is None or not self._is_copied(state, draft, is_running=False):
            return []
        logger.info(f"saved first what was here before: {', '.join(state.files)}")
        os.rename(draft, adopted)
        reading = self._reading(state)
        return [self._found(adopted, self._done(reading) if reading else 0.0)]

    # --- which are newer than the last one ---

    def _is_new(self, stamps: Mapping[str, Stamp]) -> bool:
        """Return False for files that were put back or saved, as long as they are not written again."""
        if any(not self.place.is_as_saved(name, stamp, self._saved.get(name)) for name, stamp in stamps.items()):
            return True
        self._saved = {**self._saved, **stamps}
        return False

    def _reading(self, state: RestartState) -> Reading | None:
        """Return how far a state is; None if it does not say it, as it should."""
        try:
            return self.place.reading(state)
        except CheckpointError as error:
            self._why = str(error)
            return None

    def _done(self, reading: Reading) -> float:
        """Return a count of checkpoints where nothing says how far."""
        return (self._last or 0.0) + 1 if reading.done is None else reading.done

    def _has_grown(self, done: float) -> bool:
        """Return True for more progress; 0 is no step, because a number that stays 0 is most often not the progress."""
        return done != 0 if self._last is None else done > self._last

    def _why_no_step(self, stamps: Mapping[str, Stamp], reading: Reading) -> str:
        """Return why a state is no progress; empty if it is."""
        done, written = self._done(reading), self.place.tables.last_number()
        if self._has_grown(done):
            return "" if self._is_new(stamps) else "its restart files were not written again"
        said = f"its restart files say {done:.10g} {self.program.goal_unit}"
        return no_step(said, reading, self._last, written if written and written > done else None)

    def _waits_for_results(self, done: float, *, is_running: bool) -> bool:
        """Return True for the last state: it waits for the end of the program, which writes its results after it."""
        goal = self.task.run.goal
        return goal is not None and done >= goal and (is_running or not self.place.names_results)

    # --- copies ---

    def _copies(self, *, is_running: bool) -> Iterator[HandedOver]:
        """Yield a copy of the furthest state that is complete and safe, if it is further than the last one."""
        if not self.program.has_numbered_files:
            yield from self._held(is_running=is_running)
            return
        for state in self.place.complete_states(self._saved, is_running=is_running):
            done, draft = self._done(self.place.reading(state)), self._draft()
            if not self._has_grown(done):
                return
            is_wanted = not self._waits_for_results(done, is_running=is_running) and self.place.tables.are_behind(done)
            if is_wanted and self._is_copied(state, draft, is_running=is_running):
                yield self._found(draft, done)
                return

    def _held(self, *, is_running: bool) -> Iterator[HandedOver]:
        """Copy at once the files that are written again and again, and hold them until the tables have followed."""
        held = self.task.attempt_folder.root / HELD
        if not held.exists():
            self._hold(held, is_running=is_running)
        if not held.exists():
            return
        reading = self._reading(RestartState(held, ()))  # None: torn after all, or the config is wrong
        done = self._done(reading) if reading else 0.0
        is_wanted = reading is not None and self._has_grown(done)
        if not is_wanted or self._waits_for_results(done, is_running=is_running):
            fs.remove_tree(held)
            self._passed_over = self._copied
        elif self.place.tables.are_behind(done):
            draft = self._draft()
            os.rename(held, draft)
            self.place.list_tables(draft)
            yield self._found(draft, done)

    def _hold(self, held: Path, *, is_running: bool) -> None:
        draft = self._draft()
        for state in self.place.complete_states(self._saved, is_running=is_running):
            stamps = state.complete_stamps or {}
            is_passed_over = is_running and stamps == self._passed_over
            if not is_passed_over and self._is_new(stamps) and self._is_copied(state, draft, is_running=is_running):
                os.rename(draft, held)
                return

    def _is_copied(self, state: RestartState, draft: Path, *, is_running: bool) -> bool:
        """Copy a complete state and list the outputs that belong to it; return False, without a copy, if that fails."""
        stamps = dict(state.complete_stamps or state.stamps)
        if is_running and self._has_saved_at_end(stamps):
            return False  # it leaves, and what is in its buffers belongs to this state
        is_last = self._is_over and self._has_saved_at_end(stamps)
        lengths, blurred = self.place.lengths_at(stamps)
        if blurred and not is_last:
            self._skip(f"{blurred} is written while the restart files are, so what of it belongs to them is unknown")
            return False
        if self._check.has_refused(stamps):
            return False
        if not self.place.is_copied(replace(state, complete_stamps=stamps), draft, self._saved):
            if is_running:
                self._skip(f"{', '.join(state.files[:3])} changed while copied")
            return False
        if not self._check.accepts(draft, stamps):
            return False
        try:
            self.place.list_outputs(draft, lengths, ProgramEnd(has_saved_last=True) if is_last else None)
        except UnsteadyOutputError as error:
            fs.remove_tree(draft)
            self._skip(str(error))
            return False
        self._copied, self._skips = stamps, 0
        return True

    def _skip(self, why: str) -> None:
        """Log why a save was not taken, after some in a row."""
        self._skips += 1
        if self._skips == MOST_SKIPS:
            logger.warning(f"not saved since {time.monotonic() - self._saved_at:.0f} s: {why}; the next save is tried")

    # --- at the end of a program that has left well ---

    def _last_copy(self) -> list[HandedOver]:
        """Return the state that it left, if that is further than the last one."""
        state, draft = self.place.last_state(), self._draft()
        if state is None:
            self._why = f"nothing that the program wrote matches {', '.join(self.program.files)}"
        if state is None or (reading := self._reading(state)) is None:
            return []
        stamps, done = state.stamps, self._done(reading)
        self._why = self._why_no_step(stamps, reading)
        if self._why or not self.place.is_copied(state, draft, self._saved, is_over=True):
            return []
        if not self._check.accepts(draft, stamps):
            return []
        self._list_at_end(draft, stamps, ProgramEnd(done=done))
        return [self._found(draft, done)]

    def _result(self, handed: HandedOver | None) -> HandedOver:
        """Return the last checkpoint, with the results; from it the program resumes if its goal is raised."""
        state, draft = self.place.last_state(), self._draft()
        done = max((self._last or 0.0) + (self.program.unit == COUNTED), self.task.run.goal or 0.0)
        if handed is None:
            draft.mkdir()
        else:
            handed.move(draft)
            done = handed.handover.progress.done if handed.handover else done
        if state is not None:
            reading = self._reading(state)
            done = self._done(reading) if reading else done
            if not self.place.is_copied(state, draft, self._saved, is_over=True):
                raise CheckpointError(f"{self.place.folder}: the state files change although the program is gone")
        end = ProgramEnd(is_finished=True, done=done)
        has_results = self._list_at_end(draft, state.stamps if state else {}, end) or self.place.names_results
        if state is None and not has_results:
            raise SegmentError(
                "the program is done, but left no file at all in its folder; it has no result", run=self.task.run.name
            )
        return self._found(draft, done, is_finished=True)

    def _list_at_end(self, draft: Path, stamps: Mapping[str, Stamp], end: ProgramEnd) -> bool:
        """List all that is there now; what the program wrote after its last save belongs to the result alone."""
        if not stamps:
            return self.place.list_outputs(draft, None, replace(end, has_saved_last=True))
        lengths, blurred = self.place.lengths_at(stamps)
        has_saved_at_end = self._has_saved_at_end(stamps)
        is_just_now = newest_ns(stamps) / 1e9 >= time.time() - LAST_ACTION_SECONDS
        if blurred and not (end.is_finished or has_saved_at_end or is_just_now):
            self.place.doubt(f"{blurred.lstrip(ELSEWHERE)} was written while the state was saved; lines may be double")
        if has_saved_at_end:  # its buffers follow at its end
            lengths = None
        return self.place.list_outputs(draft, lengths, replace(end, has_saved_last=has_saved_at_end or is_just_now))

    def _has_saved_at_end(self, stamps: Mapping[str, Stamp]) -> bool:
        """Return True if the program saved because it leaves: by its settings, or asked to."""
        is_asked = self.stop_asked_unix is not None and newest_ns(stamps) / 1e9 >= self.stop_asked_unix
        return self.program.saved_by is SavedBy.EXIT or is_asked

    # --- what becomes of it ---

    def _draft(self) -> Path:
        """Return a name not used before: what an earlier successor left half copied is no part of a state."""
        return self.task.attempt_folder.root / fs.unique_name("state")

    def _found(self, draft: Path, done: float, *, is_finished: bool = False) -> HandedOver:
        """Hand a state over, so far as `done` says; without any evidence of progress it is a count of checkpoints."""
        self._last, self._saved_at, self._has_saved, self._saved = done, time.monotonic(), True, self._copied
        self.place.handed_over(done)
        progress = Progress(done, self.task.run.goal, self.program.unit)
        return HandedOver(draft, Handover(progress, is_finished=is_finished))
