"""List the outputs of a program that works in the run's folder, for each of its states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.base import Supervisor
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import ObservedFiles
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import ELSEWHERE, SAVE, is_handed_over
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import Workspace


class InRunSupervisor(Supervisor):
    """Supervise a program in a folder; its outputs are kept if that is the run's own."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self.kinds = kinds = FileKinds(program)
        is_contract, attempt = program.keeps_the_contract, task.attempt_folder
        observed = ObservedFiles(
            folder,
            attempt,
            is_state=is_handed_over if is_contract else kinds.is_state,
            is_measured=kinds.is_measured,
            is_watched=lambda name: not name.startswith(ELSEWHERE),
            also={SAVE: attempt.save} if is_contract else {},
        )
        super().__init__(task, program, observed)
        self.has_outputs = not program.folder
        origin = task.origin
        self._tracker = OutputTracker(
            Workspace(task.run_folder, folder, task.tell),
            task.segment,
            origin.passport.sequence if origin else 0,
            read_outputs(origin),
            kinds,
            observed.observer.is_rewritten,
            # The attempt has made the checkpoint itself, and did not resume from it: it was killed.
            is_own=origin is not None and attempt.root.name == f"{origin.passport.token:06d}",
        )

    def begin(self, restored: OutputList | None) -> None:
        """Begin to observe; the program starts after this.  `restored` are the outputs that were put back."""
        if restored is not None:
            self._tracker.listed = restored
        if self.has_outputs:
            self._tracker.begin()
            self.observed.begin({name: path.stat().st_size for name, path in self.outputs().items()})

    def outputs(self) -> Mapping[str, Path]:
        return self._tracker.files()

    def list_outputs(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> bool:
        if not self.has_outputs:
            return False
        self._doubt_tables(end.done if end else None)
        opened = [name for name in lengths or () if self.observed.is_open(name)]
        self._tracker.list_into(draft, lengths, opened, end)
        return bool(self._tracker.listed.files)

    def list_tables(self, draft: Path) -> None:
        if self.has_outputs and self.program.outputs:
            self._doubt_tables()
            self._tracker.list_tables(draft)

    def _doubt_tables(self, done: float | None = None) -> None:
        for doubt in self.tables.missing(self.task.run_folder, done):
            self.doubt(doubt)

    def doubt(self, doubt: str) -> None:
        if doubt not in self._tracker.listed.doubts:
            self.task.tell(doubt)
            self._tracker.listed = self._tracker.listed.with_doubt(doubt)
