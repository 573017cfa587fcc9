"""Serve the attempts of a program by the supervisor of its files: what engine `command` and `unbroken exec` share."""

from __future__ import annotations

import time
from abc import abstractmethod
from pathlib import Path

from unbroken.engines.base import Engine, Results, Task, When
from unbroken.engines.files.called_place import AnyPlace
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.supervisor import FileSupervisor
from unbroken.engines.files.writers import FIRST_SECONDS
from unbroken.program.handover import HandedOver
from unbroken.program.process import Child
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.progress import Progress, write_progress
from unbroken.store.run import RunSpec

# How often the folder is scanned; less often if a scan takes long.
LOOK_SECONDS = 0.5
LOOK_SHARE = 0.05


class SupervisedEngine(Engine):
    """Take the states of a program from its supervisor; one object serves one attempt, and those that it saves from."""

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._supervisors: dict[Path, FileSupervisor] = {}
        self._pending: list[HandedOver] = []
        self._next_look = 0.0

    @abstractmethod
    def place(self, task: Task) -> AnyPlace:
        """Return the place in which the program of an attempt works."""

    def states(self, task: Task, when: When) -> list[HandedOver]:
        """Return the states that are complete; while the program works, also note how far it is."""
        if when is When.WORKS:
            return self._while_running(task)
        return self.supervisor(task).salvage() if when is When.KILLED else self.left(task, is_well=when is When.LEFT)

    @abstractmethod
    def left(self, task: Task, *, is_well: bool) -> list[HandedOver]:
        """Return what a program that is gone has left; of one that failed only what was complete before."""

    def _while_running(self, task: Task) -> list[HandedOver]:
        began = time.monotonic()
        pending, self._pending = self._pending, []
        if began < self._next_look:
            return pending
        supervisor = self.supervisor(task)
        found = [*pending, *supervisor.while_running()]
        if (done := supervisor.place.live()) is not None:
            progress = Progress(done, task.run.goal, supervisor.program.goal_unit)
            write_progress(task.attempt_folder.progress, progress)
        now = time.monotonic()
        rest_seconds = max(LOOK_SECONDS, (now - began) / LOOK_SHARE)
        self._next_look = now + min(rest_seconds, supervisor.place.longest_rest_seconds)
        return found

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Make the stop file, after a last look: what is complete before it is asked may be all that there is."""
        supervisor = self.supervisor(task)
        supervisor.observed.observer.resolve_doubts(FIRST_SECONDS + 0.2)
        supervisor.stop_asked_unix = time.time()
        self._pending += supervisor.while_running(is_urgent=True)
        super().ask_to_stop(task, child)

    def why_nothing_newer(self, task: Task) -> str:
        """Return what the restart files say, and what of the config read it."""
        return self.supervisor(task).why_nothing_newer()

    def results(self, run: RunSpec, checkpoint: Checkpoint) -> Results:
        return Results(doubts=read_outputs(checkpoint).doubts)

    def supervisor(self, task: Task) -> FileSupervisor:
        """Return the supervisor of an attempt."""
        root = task.attempt_folder.root
        if root not in self._supervisors:
            self._supervisors[root] = FileSupervisor(task, self.place(task))
        return self._supervisors[root]

    def at_end(self, task: Task, *, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone, after what was found before."""
        pending, self._pending = self._pending, []
        found = self.supervisor(task).at_end(has_left_well=has_left_well, is_finished=is_finished)
        return [*pending, *found]
