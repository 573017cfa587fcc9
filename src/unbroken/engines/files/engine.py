"""Serve the attempts of a program by the supervisor of its files: what engine `command` and `unbroken exec` share."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from unbroken.engines.base import Engine, Task
from unbroken.engines.files.base import Supervisor
from unbroken.engines.files.outputs import read_outputs
from unbroken.program.contract import HandedOver
from unbroken.program.process import Child
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.progress import Metric, Progress, write_progress
from unbroken.runs.run import RunSpec

# How often the folder is scanned; less often if a scan takes long.
LOOK_SECONDS = 0.5
LOOK_SHARE = 0.05

_Supervisor = TypeVar("_Supervisor", bound=Supervisor)


class SupervisedEngine(Engine, Generic[_Supervisor]):
    """Take the states of a program from its supervisor; one object serves one attempt, and those that it saves from."""

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._supervisors: dict[Path, _Supervisor] = {}
        self._pending: list[HandedOver] = []
        self._next_look = 0.0
        self._first: tuple[float, float] | None = None  # when, and how far, the program first said

    @abstractmethod
    def new_supervisor(self, task: Task) -> _Supervisor:
        """Make the supervisor of an attempt's files."""

    def states(self, task: Task) -> list[HandedOver]:
        """Return the states that are complete, and note how far the program is."""
        began = time.monotonic()
        pending, self._pending = self._pending, []
        if began < self._next_look:
            return pending
        supervisor = self._supervisor(task)
        found = [*pending, *supervisor.while_running()]
        self._note_progress(task)
        now = time.monotonic()
        rest_seconds = max(LOOK_SECONDS, (now - began) / LOOK_SHARE)
        self._next_look = now + min(rest_seconds, supervisor.longest_rest_seconds)
        return found

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Make the stop file, after a last look: what is complete before it is asked may be all that there is."""
        supervisor = self._supervisor(task)
        supervisor.stop_asked_unix = time.time()
        self._pending += supervisor.while_running(is_urgent=True)
        super().ask_to_stop(task, child)

    def why_nothing_newer(self, task: Task) -> str:
        """Return what the restart files say, and what of the config read it."""
        return self._supervisor(task).why_nothing_newer()

    def salvage(self, task: Task) -> list[HandedOver]:
        """Return what a killed attempt had complete in its folder."""
        return self._supervisor(task).salvage()

    def result_doubts(self, run: RunSpec, checkpoint: Checkpoint) -> Sequence[str]:
        return read_outputs(checkpoint).doubts

    def _supervisor(self, task: Task) -> _Supervisor:
        root = task.attempt_folder.root
        if root not in self._supervisors:
            self._supervisors[root] = self.new_supervisor(task)
        return self._supervisors[root]

    def _at_end(self, task: Task, has_left_well: bool, *, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone, after what was found before."""
        pending, self._pending = self._pending, []
        return [*pending, *self._supervisor(task).at_end(has_left_well, is_finished)]

    def _note_progress(self, task: Task) -> None:
        """Note how far it is, for `unbroken status` and `stall_minutes`."""
        supervisor = self._supervisor(task)
        if (done := supervisor.live()) is not None:
            goal, unit = task.run.goal, supervisor.program.goal_unit
            write_progress(task.attempt_folder.progress, Progress(done, goal, unit, self._pace(done, goal, unit)))

    def _pace(self, done: float, goal: float | None, unit: str) -> dict[str, Metric]:
        """Return how fast it is, and how long it still needs; nothing before it has advanced."""
        now = time.monotonic()
        self._first = self._first or (now, done)
        if done <= self._first[1]:
            return {}
        a_second = (done - self._first[1]) / max(now - self._first[0], 1e-3)
        pace: dict[str, Metric] = {"pace": f"{a_second:.4g} {unit}/s"}
        if goal is not None:
            pace["left_seconds"] = round(max(0.0, goal - done) / a_second, 1)
        return pace
