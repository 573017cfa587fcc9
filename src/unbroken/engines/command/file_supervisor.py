"""Makes checkpoints of a program with restart files of its own."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.copier import RestartFileCopier
from unbroken.engines.command.folder import FINAL
from unbroken.engines.command.reading import Reading, reading_of
from unbroken.engines.command.settings import Program, SavedBy
from unbroken.engines.command.states import RestartState, Stamp, complete_states, linked, states_in
from unbroken.engines.command.supervisor import CommandSupervisor
from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.contract import HandedOver
from unbroken.runs.own_folder import confirm_own
from unbroken.runs.progress import Handover, Progress
from unbroken.system import fs

HELD = "held"


class FileKeeper(CommandSupervisor):
    """For a program with restart files of its own."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._saved_at = time.monotonic()
        self._count = 0
        self._seen = {name: stamp for state in self._states() for name, stamp in state.stamps.items()}
        self._put_back = frozenset(self._seen)
        self._copier = RestartFileCopier(task, program, folder)
        self._why = ""
        self._has_saved = False

    def while_running(self) -> list[HandedOver]:
        is_due = time.monotonic() - self._saved_at >= self.task.run.save_minutes * 60
        self._copier.look(is_due)
        if self.program.saved_by is SavedBy.EXIT or not is_due:
            return []
        confirm_own(self.folder)
        return [self._found(*state, is_closed=False) for state in self._copies(is_running=True)]

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        confirm_own(self.folder)
        if not has_left_well:
            return [] if self._copier.is_torn() else self._complete()
        states = self._states()[:1]
        if is_finished and not states:
            return [self._results_alone()]
        if not states:
            self._why = f"no file in its folder matches {', '.join(self.program.files)}"
            return []
        reading = self._reading(states[0])
        if not is_finished and not self._is_further(states[0], reading):
            return []
        draft = self._draft()
        linked(states[0], draft)
        if not is_finished and not self._copier.is_whole(draft, states[0].stamps):
            return []
        return [self._last_found(draft, reading, is_finished)]

    def salvage(self) -> list[HandedOver]:
        if not self.program.says_progress:
            return []  # a file that was only put back looks like a new one
        confirm_own(self.folder)
        self._seen = {}
        return self._complete()

    def why_nothing_newer(self) -> str:
        return "" if self._has_saved else self._why or self._copier.why

    def close(self) -> None:
        self._copier.close()

    def reached(self) -> float | None:
        """How far the newest restart files are, once the program is gone; None if there are none.

        A count of checkpoints where nothing says how far.
        """
        states = self._states()[:1]
        return self._done(self._reading(states[0])) if states else None

    # --- what is complete ---

    def _complete(self) -> list[HandedOver]:
        """The furthest state of a program that is gone, if it was complete before."""
        return [self._found(*state, is_closed=False) for state in self._copies(is_running=False)]

    # --- how far it is ---

    def _states(self) -> list[RestartState]:
        return states_in(self.folder, self.program.files)

    def _reading(self, state: RestartState) -> Reading:
        return reading_of(self.task.run, self.program, self.folder, state.number)

    def _done(self, reading: Reading) -> float:
        """A count of checkpoints where nothing says how far."""
        return (self.last or 0) + 1 if reading.done is None else reading.done

    def _has_grown(self, done: float) -> bool:
        """From nothing, 0 is no step: a number that stays 0 is most often not the progress."""
        return done != 0 if self.last is None else done > self.last

    def _is_further(self, state: RestartState, reading: Reading) -> bool:
        """A state that says nothing of its progress is further if it was written since."""
        if not self.program.says_progress:
            self._why = "" if self._is_new(state.stamps) else "its restart files were not written again"
            return not self._why
        done = self._done(reading)
        self._why = "" if self._has_grown(done) else self._no_step(done, reading)
        return not self._why

    def _no_step(self, done: float, reading: Reading) -> str:
        unit, written = self.task.run.settings["goal_unit"], self.outputs.last_number()
        before, never = ("as at the start", "; it never grew") if self.last is None else (f"after {self.last:.10g}", "")
        also = f", while the outputs are at {written:.10g}" if written and written > done else ""
        return f"its restart files say {done:.10g} {unit}, {before}: {reading.how}{never}{also}"

    def _is_new(self, stamps: Mapping[str, Stamp]) -> bool:
        """False for the files that were put back, or handed over, as long as they are not written again."""
        return any(self._seen.get(name) != stamp for name, stamp in stamps.items())

    # --- what is copied ---

    def _copies(self, is_running: bool) -> Iterator[tuple[Path, float, str]]:
        """A copy of the furthest state that is complete and safe, if it is further than the last one."""
        if not self.program.has_numbered_files:
            yield from self._held(is_running)
            return
        for state in complete_states(self.folder, self.program):
            done = float(state.number)
            if not self._has_grown(done):
                return
            if not self._is_goal(done) and self._is_safe(done):
                draft = self._draft()
                if self._copier.copy(state, draft, is_running):
                    self._forget_older()
                    yield draft, done, self._reading(state).how
                    return

    def _held(self, is_running: bool) -> Iterator[tuple[Path, float, str]]:
        """Files that are written again and again are copied at once, and held until the outputs have followed."""
        held = self.task.attempt_folder.root / HELD
        if not held.exists():
            self._hold(held, is_running)
        if not held.exists():
            return
        try:
            reading = reading_of(self.task.run, self.program, held, "")
        except CheckpointError:  # torn after all, or the config is wrong, which the program's end will tell
            fs.remove_tree(held)
            return
        done = self._done(reading)
        if not self._has_grown(done) or self._is_goal(done):
            fs.remove_tree(held)
        elif self._is_safe(done):
            draft = self._draft()
            os.rename(held, draft)
            yield draft, done, reading.how

    def _hold(self, held: Path, is_running: bool) -> None:
        draft = self._draft()
        for state in self._copier.steady() if is_running else complete_states(self.folder, self.program):
            stamps = state.complete_stamps or {}
            if self._is_new(stamps) and self._copier.copy(state, draft, is_running):
                self._seen = dict(stamps)
                os.rename(draft, held)

    def _is_safe(self, done: float) -> bool:
        return not self.program.outputs or self.outputs.is_safe(done)

    def _is_goal(self, done: float) -> bool:
        """The last state waits for the end of the program, which writes its results after it."""
        goal = self.task.run.goal
        return goal is not None and done >= goal

    def _forget_older(self) -> None:
        """Removes numbered restart files of this attempt that were handed over long ago: they fill the disk."""
        for state in self._states():
            if self.last is not None and float(state.number) < self.last:
                for name in set(state.numbered) - self._put_back:
                    (self.folder / name).unlink(missing_ok=True)

    def _draft(self) -> Path:
        """A name not used before: what an earlier successor left half copied must not become part of a state."""
        while True:
            self._count += 1
            draft = self.task.attempt_folder.root / f"state-{self._count:06d}"
            if not draft.exists():
                return draft

    def _results_alone(self) -> HandedOver:
        """Of a program that removes its restart files when it is done."""
        draft = self._draft()
        draft.mkdir()
        self.add_results(draft)
        if not (draft / FINAL).exists() and not self.program.outputs:
            raise SegmentError(
                f"runs.{self.task.run.name}: the program is done, but left no file that matches `files` or "
                "`final_files`; name its results in `final_files`"
            )
        goal = self.task.run.goal
        self.hand_over_outputs(draft, math.inf, is_closed=True)
        done = max(self.last or 0, goal or 0)
        return HandedOver(draft, self._handover(done, is_finished=True))

    def _last_found(self, draft: Path, reading: Reading, is_finished: bool) -> HandedOver:
        """The state of a program that has left well; one that is done for good has all that it wrote."""
        done = self._done(reading)
        is_all = is_finished and self.task.run.goal is None
        found = self._found(draft, done, reading.how, is_closed=True, is_finished=is_finished, is_all=is_all)
        if is_finished:
            self.add_results(draft)
        return found

    def _found(
        self, draft: Path, done: float, how: str, is_closed: bool, is_finished: bool = False, is_all: bool = False
    ) -> HandedOver:
        self.hand_over_outputs(draft, math.inf if is_all else done, is_closed, how)
        self.last, self._saved_at, self._has_saved = done, time.monotonic(), True
        return HandedOver(draft, self._handover(done, is_finished))

    def _handover(self, done: float, is_finished: bool) -> Handover:
        run = self.task.run
        unit = str(run.settings["goal_unit"]) if self.program.says_progress else "checkpoints"
        return Handover(Progress(done, run.goal, unit), is_finished=is_finished)
