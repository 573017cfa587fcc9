"""Adds the outputs to the states of a program that hands them over by itself."""

from __future__ import annotations

from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.settings import Program
from unbroken.engines.command.supervisor import CommandSupervisor
from unbroken.errors import CheckpointError
from unbroken.program.contract import HandedOver, copied_states, loose_state, ready_states


class ContractKeeper(CommandSupervisor):
    """For a program that hands its states over by itself; the outputs are added here."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._waiting: list[HandedOver] = []
        self._count = 0

    def while_running(self) -> list[HandedOver]:
        self._waiting += [self._set_aside(found) for found in ready_states(self.task.attempt_folder)]
        ready = []
        while self._waiting and (not self.program.outputs or self.outputs.is_safe(_done(self._waiting[0]))):
            ready.append(self._with_outputs(self._waiting.pop(0), is_closed=False))
        return ready

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        found = self.while_running()
        if not has_left_well:
            return found
        loose = loose_state(self.task.attempt_folder, self.task.attempt_folder.root / "loose")
        waiting, self._waiting = [*self._waiting, *([loose] if loose else [])], []
        found += [self._with_outputs(each, is_closed=True) for each in waiting]
        if is_finished and found:
            self.add_results(found[-1].draft)
        return found

    def salvage(self) -> list[HandedOver]:
        """What it had handed over; with `outputs` nobody knows which of their records were on the disk by then."""
        if self.program.outputs:
            return []
        return [found for found in copied_states(self.task.attempt_folder) if found.handover is not None]

    def _set_aside(self, found: HandedOver) -> HandedOver:
        """Out of the folder in which the program saves, so that it is not found again."""
        if not self.program.outputs:
            return found
        self._count += 1
        draft = self.task.attempt_folder.root / f"waiting-{self._count:06d}"
        found.move(draft)
        found.forget()  # it is made anew if we are killed
        return HandedOver(draft, found.handover)

    def _with_outputs(self, found: HandedOver, is_closed: bool) -> HandedOver:
        if self.program.outputs:
            self.hand_over_outputs(found.draft, _done(found), is_closed)
        return found


def _done(found: HandedOver) -> float:
    if found.handover is None:
        raise CheckpointError(
            f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
        )
    return found.handover.progress.done
