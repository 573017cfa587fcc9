"""Makes checkpoints of what the program leaves: while it runs, when it is gone, and after it was killed."""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from longhaul import fs
from longhaul.command.folder import FINAL
from longhaul.command.pieces import Outputs, without_outputs
from longhaul.command.reading import progress_of
from longhaul.command.settings import Program, SavedBy
from longhaul.command.states import State, complete_states, copied, link_or_copy, linked, matching, states_in
from longhaul.contract import Found, loose_state, ready_states
from longhaul.engine import Task
from longhaul.errors import CheckpointError, SegmentError
from longhaul.own_folder import confirm_own
from longhaul.progress import Handover, Progress

HELD = "held"


class Keeper(ABC):
    """What of an attempt becomes checkpoints."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self.task, self.program, self.folder = task, program, folder
        self.last = task.origin.passport.progress.done if task.origin else None
        self.outputs = Outputs(program.outputs, folder, self.last)

    @abstractmethod
    def while_running(self) -> list[Found]:
        """States that are complete, and whose outputs are."""

    @abstractmethod
    def at_end(self, has_left_well: bool, is_finished: bool) -> list[Found]:
        """What counts now that the program is gone."""

    def salvage(self) -> list[Found]:
        """What counts of an attempt that was killed; copied, because its program may live on a lost node."""
        return []

    def _add_results(self, draft: Path) -> None:
        """Puts the results of a finished program beside the restart files."""
        for name in without_outputs(matching(self.folder, self.program.final_files), self.program.outputs):
            target = draft / FINAL / name
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(self.folder / name, target)


class ContractKeeper(Keeper):
    """For a program that hands its states over by itself; the outputs are added here."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._waiting: list[Found] = []
        self._count = 0

    def while_running(self) -> list[Found]:
        self._waiting += [self._set_aside(found) for found in ready_states(self.task.desk)]
        ready = []
        while self._waiting and (not self.program.outputs or self.outputs.is_safe(_done(self._waiting[0]))):
            ready.append(self._with_outputs(self._waiting.pop(0), is_closed=False))
        return ready

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[Found]:
        found = self.while_running()
        if not has_left_well:
            return found
        loose = loose_state(self.task.desk, self.task.desk.root / "loose")
        waiting, self._waiting = [*self._waiting, *([loose] if loose else [])], []
        found += [self._with_outputs(each, is_closed=True) for each in waiting]
        if is_finished and found:
            self._add_results(found[-1].draft)
        return found

    def _set_aside(self, found: Found) -> Found:
        """Out of the folder in which the program saves, so that it is not found again."""
        if not self.program.outputs:
            return found
        self._count += 1
        draft = self.task.desk.root / f"waiting-{self._count:06d}"
        found.move(draft)
        return Found(draft, found.handover)

    def _with_outputs(self, found: Found, is_closed: bool) -> Found:
        if self.program.outputs:
            self.outputs.hand_over(found.draft, _done(found), is_closed)
        return found


class FileKeeper(Keeper):
    """For a program with restart files of its own."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._saved_at = time.monotonic()
        self._count = 0
        self._seen = {name: stamp for state in self._states() for name, stamp in state.stamps.items()}
        self._put_back = frozenset(self._seen)

    def while_running(self) -> list[Found]:
        is_due = time.monotonic() - self._saved_at >= self.task.run.save_minutes * 60
        if self.program.saved_by is SavedBy.EXIT or not is_due:
            return []
        confirm_own(self.folder)
        return [self._found(*state, is_closed=False) for state in self._copies()]

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[Found]:
        confirm_own(self.folder)
        if not has_left_well:
            return [self._found(*state, is_closed=False) for state in self._copies()]
        states = self._states()[:1]
        done = self.reached()
        if is_finished and not states:
            return [self._results_alone()]
        if done is None or not (is_finished or self._is_further(states[0], done)):
            return []
        draft = self._draft()
        linked(states[0], draft)
        found = self._found(draft, done, is_closed=True, is_finished=is_finished)
        if is_finished:
            self._add_results(draft)
        return [found]

    def salvage(self) -> list[Found]:
        if not self.program.says_progress:
            return []  # a file that was only put back looks like a new one
        confirm_own(self.folder)
        self._seen = {}
        return [self._found(*state, is_closed=False) for state in self._copies()]

    def reached(self) -> float | None:
        """How far the newest restart files are, once the program is gone; None if there are none.

        A count of checkpoints where nothing says how far.
        """
        states = self._states()[:1]
        if not states:
            return None
        done = progress_of(self.task.run, self.program, self.folder, states[0].number)
        return (self.last or 0) + 1 if done is None else done

    def _states(self) -> list[State]:
        return states_in(self.folder, self.program.files)

    def _is_further(self, state: State, done: float) -> bool:
        """A state that says nothing of its progress is further if it was written since."""
        return self._is_new(state) if not self.program.says_progress else self.last is None or done > self.last

    def _is_new(self, state: State) -> bool:
        """False for the files that were put back, or handed over, as long as they are not written again."""
        return any(self._seen.get(name) != stamp for name, stamp in state.stamps.items())

    def _copies(self) -> Iterator[tuple[Path, float]]:
        """A copy of the furthest state that is complete and safe, if it is further than the last one."""
        if not self.program.has_numbered_files:
            yield from self._held()
            return
        for state in complete_states(self.folder, self.program):
            done = float(state.number)
            if self.last is not None and done <= self.last:
                return
            if not self._is_goal(done) and self._is_safe(done):
                draft = self._draft()
                if copied(state, draft):
                    self._forget_older()
                    yield draft, done
                    return

    def _held(self) -> Iterator[tuple[Path, float]]:
        """Files that are written again and again are copied at once, and held until the outputs have followed."""
        held = self.task.desk.root / HELD
        if not held.exists():
            self._hold(held)
        if not held.exists():
            return
        try:
            done = progress_of(self.task.run, self.program, held, "")
        except CheckpointError:  # torn after all, or the config is wrong, which the program's end will tell
            fs.remove_tree(held)
            return
        counted = (self.last or 0) + 1 if done is None else done
        if (self.last is not None and counted <= self.last) or self._is_goal(counted):
            fs.remove_tree(held)
        elif self._is_safe(counted):
            draft = self._draft()
            os.rename(held, draft)
            yield draft, counted

    def _hold(self, held: Path) -> None:
        draft = self._draft()
        for state in complete_states(self.folder, self.program):
            if self._is_new(state) and copied(state, draft):
                self._seen = dict(state.complete_stamps or {})
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
            draft = self.task.desk.root / f"state-{self._count:06d}"
            if not draft.exists():
                return draft

    def _results_alone(self) -> Found:
        """Of a program that removes its restart files when it is done."""
        draft = self._draft()
        draft.mkdir()
        self._add_results(draft)
        if not (draft / FINAL).exists() and not self.program.outputs:
            raise SegmentError(
                f"runs.{self.task.run.name}: the program is done, but left no file that matches `files` or "
                "`final_files`; name its results in `final_files`"
            )
        goal = self.task.run.goal
        self.outputs.hand_over(draft, math.inf, is_closed=True)
        done = max(self.last or 0, goal or 0)
        return Found(draft, self._handover(done, is_finished=True))

    def _found(self, draft: Path, done: float, is_closed: bool, is_finished: bool = False) -> Found:
        self.outputs.hand_over(draft, done, is_closed)
        self.last, self._saved_at = done, time.monotonic()
        return Found(draft, self._handover(done, is_finished))

    def _handover(self, done: float, is_finished: bool) -> Handover:
        run = self.task.run
        unit = str(run.settings["goal_unit"]) if self.program.says_progress else "checkpoints"
        return Handover(Progress(done, run.goal, unit), is_finished=is_finished)


def _done(found: Found) -> float:
    if found.handover is None:
        raise CheckpointError(
            f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
        )
    return found.handover.progress.done
