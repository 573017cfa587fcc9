"""What of an attempt becomes checkpoints: while its program runs, when that is gone, and after it was killed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.folder import FINAL
from unbroken.engines.command.holes import MissingRecordsError
from unbroken.engines.command.joined_tables import Outputs, ends_at, without_outputs
from unbroken.engines.command.settings import Program
from unbroken.engines.command.states import matching
from unbroken.program.contract import HandedOver
from unbroken.system import fs


class CommandSupervisor(ABC):
    """What of an attempt becomes checkpoints."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self.task, self.program, self.folder = task, program, folder
        self.last = task.origin.passport.progress.done if task.origin else None
        self.outputs = Outputs(
            program.outputs, folder, self.last, ends_at(task.origin), with_gaps=program.outputs_with_gaps
        )

    @abstractmethod
    def while_running(self) -> list[HandedOver]:
        """States that are complete, and whose outputs are."""

    @abstractmethod
    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """What counts now that the program is gone."""

    def salvage(self) -> list[HandedOver]:
        """What counts of an attempt that was killed; copied, because its program may live on a lost node."""
        return []

    def why_nothing_newer(self) -> str:
        """Why what the program left is no newer checkpoint; empty if it is one, or nobody knows."""
        return ""

    def close(self) -> None:
        """The attempt is over: gives back what is held open."""
        return

    def hand_over_outputs(self, draft: Path, up_to: float, is_closed: bool, how: str = "") -> None:
        """Puts the pieces of the outputs into a draft; `how` is what says how far its restart files are."""
        try:
            self.outputs.hand_over(draft, up_to, is_closed)
        except MissingRecordsError as error:
            raise error.advised(self.task.run.name, how) from error

    def add_results(self, draft: Path) -> None:
        """Puts the results of a finished program beside the restart files."""
        for name in without_outputs(matching(self.folder, self.program.final_files), self.program.outputs):
            target = draft / FINAL / name
            target.parent.mkdir(parents=True, exist_ok=True)
            fs.link_or_copy(self.folder / name, target)
