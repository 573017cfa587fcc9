"""Makes checkpoints of a program that hands its states over by itself (docs/contract.md), with the outputs of then."""

from __future__ import annotations

from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.base import Supervisor
from unbroken.engines.files.outputs import LIST
from unbroken.engines.files.settings import Program
from unbroken.engines.files.tracker import UnsteadyOutputError
from unbroken.errors import CheckpointError
from unbroken.program.contract import READY, TAKEN, HandedOver, copied_states, loose_state, ready_states

# So many states in a row are left out whose outputs are not known; then one is taken with a doubt.
MOST_SKIPS = 3


class ContractSupervisor(Supervisor):
    """For a program that hands its states over by itself."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._waiting: list[HandedOver] = []
        self._skips = 0

    @property
    def observed_root(self) -> Path:
        """The attempt folder, which holds the program's folder and the one that it saves in."""
        return self.task.attempt_folder.root

    def is_state_event(self, name: str) -> bool:
        return name.startswith(f"{self.task.attempt_folder.save.name}/") and name.endswith(READY)

    def is_watched(self, name: str) -> bool:
        is_below = name.startswith(f"{self.folder.name}/")
        return is_below or name in (self.folder.name, self.task.attempt_folder.save.name)

    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        for found in ready_states(self.task.attempt_folder):
            if self._is_listed(taken := found.taken(), is_at_end=False):
                self._waiting.append(taken)
        ready = []
        while self._waiting and (not self.program.outputs or self.outputs.is_safe(_done(self._waiting[0]))):
            ready.append(self._with_tables(self._waiting.pop(0), is_closed=False))
        return ready

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        self.observed.end()
        found = self.while_running()
        if not has_left_well:
            return found
        loose = loose_state(self.task.attempt_folder, self.task.attempt_folder.root / "loose")
        waiting, self._waiting = [*self._waiting, *([loose] if loose else [])], []
        last = [self._with_tables(each, is_closed=True) for each in waiting]
        if newest := [*found, *last][-1:]:
            self.list_outputs(newest[0].draft, None, is_at_end=True, is_finished=is_finished, has_saved_last=True)
        return [*found, *last]

    def salvage(self) -> list[HandedOver]:
        """Return what it had handed over; with tables it is unknown which records were on the disk by then."""
        if self.program.outputs:
            return []
        self.observed.know_before()
        found = [found for found in copied_states(self.task.attempt_folder) if found.handover is not None]
        return [each for each in found if self._is_listed(each, is_at_end=False)]

    def _is_listed(self, found: HandedOver, is_at_end: bool) -> bool:
        """List the outputs that belong to a state; False for one whose outputs are not known."""
        if (found.draft / LIST).is_file():
            return True
        lengths, blurred = self.lengths_when(f"{self.task.attempt_folder.save.name}/{_name(found)}")
        doubts = []
        if blurred:
            self._skips += 1
            if self._skips <= MOST_SKIPS:
                return False
            doubts.append(f"{blurred} was written while a state was saved, so rows of it may be missing or there twice")
        try:
            self.list_outputs(found.draft, lengths, doubts=doubts)
        except UnsteadyOutputError:
            return False
        self._skips = 0
        return True

    def _with_tables(self, found: HandedOver, is_closed: bool) -> HandedOver:
        if self.program.outputs:
            self.hand_over_outputs(found.draft, _done(found), is_closed)
        return found


def _name(found: HandedOver) -> str:
    return found.draft.name.removeprefix(TAKEN)


def _done(found: HandedOver) -> float:
    if found.handover is None:
        raise CheckpointError(
            f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
        )
    return found.handover.progress.done
