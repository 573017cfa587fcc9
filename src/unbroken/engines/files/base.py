"""Make checkpoints of an attempt: while its program runs, after its end, and after it was killed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import ProgramEnd, UnsteadyOutputError
from unbroken.engines.files.observed import Lengths, ObservedFiles
from unbroken.engines.files.outputs import LIST, OutputList, read_outputs
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import ELSEWHERE, SAVE, Stamp, stamp_of
from unbroken.engines.files.tables import Tables
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import Workspace
from unbroken.errors import CheckpointError
from unbroken.program.contract import READY, TAKEN, HandedOver, copied_states, loose_state, ready_states

# A program that has left so soon after its last save has saved as its last action.
LAST_ACTION_SECONDS = 2.0
# So many saves that cannot be used are worth a line; of states that are handed over, the next is taken with a doubt.
MOST_SKIPS = 3


class Supervisor(ABC):
    """Decide what of an attempt becomes checkpoints; its outputs are kept if the folder is the run's own."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self.task, self.program, self.folder = task, program, folder
        self.last = task.origin.passport.progress.done if task.origin else None
        self.tables = Tables(program.outputs, folder)
        self.kinds = FileKinds(program)
        self.stop_asked_unix: float | None = None
        self.observed = ObservedFiles(
            folder,
            task.attempt_folder,
            task.tell,
            is_state=self.is_state_event,
            is_measured=self.kinds.is_measured,
            is_watched=lambda name: not name.startswith(ELSEWHERE),
            also=self.also_observed(),
        )
        self._tracker = None if program.folder else self._made_tracker()
        self._skips = 0

    def _made_tracker(self) -> OutputTracker:
        task, origin = self.task, self.task.origin
        return OutputTracker(
            Workspace(task.run_folder, self.folder, task.tell),
            task.segment,
            origin.passport.sequence if origin else 0,
            read_outputs(origin),
            self.kinds,
            self.observed.observer.is_rewritten,
            # The attempt has made the checkpoint itself, and did not resume from it: it was killed.
            is_own=origin is not None and task.attempt_folder.root.name == f"{origin.passport.token:06d}",
        )

    # --- observing ---

    def is_state_event(self, name: str) -> bool:
        """Return True for the name of a state whose completion is observed."""
        return self.kinds.is_state(name)

    def also_observed(self) -> Mapping[str, Path]:
        """Return what is observed in addition to the program's folder, by the names that it has there."""
        return {}

    def begin(self, restored: OutputList | None) -> None:
        """Begin to observe; the program starts after this.  `restored` are the outputs that were put back."""
        if self._tracker is None:
            return
        if restored is not None:
            self._tracker.listed = restored
        self._tracker.begin()
        self.observed.begin({name: path.stat().st_size for name, path in self._tracker.files().items()})

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        return (None, "") if self._tracker is None else self.observed.lengths_at(stamps, self._tracker.files)

    def lengths_when(self, name: str) -> Lengths:
        """Return the lengths of the outputs when a state of that name was handed over; else which is not known."""
        if self._tracker is None:
            return None, ""
        stamp = stamp_of(self.task.attempt_folder.save / name)
        seen = self.observed.lengths_when(f"{SAVE}/{name}")
        return seen or self.observed.lengths_by_time(stamp[2] if stamp else 0, self._tracker.files)

    def close(self) -> None:
        """Give back what is held open: the attempt is over."""
        self.observed.observer.close()

    # --- making checkpoints ---

    @abstractmethod
    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        """Return states that are complete, and whose outputs are; at once if it `is_urgent`, else when one is due."""

    @abstractmethod
    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone."""

    @abstractmethod
    def salvage(self) -> list[HandedOver]:
        """Return what counts of an attempt that was killed; copied, because its program may live on a lost node."""

    def why_nothing_newer(self) -> str:
        """Return why what the program left is no newer checkpoint; empty if it is one, or nothing is known."""
        return ""

    def reached(self) -> float | None:
        """Return how far the newest restart files are, once the program is gone; None if none say it."""
        return None

    def list_outputs(
        self,
        draft: Path,
        lengths: Mapping[str, int] | None,
        end: ProgramEnd | None = None,
        doubts: Sequence[str] = (),
    ) -> bool:
        """Write the list of outputs that belong to a state into its draft; return True if there are any.

        Raise UnsteadyOutputError if one changes meanwhile.
        """
        if self._tracker is None:
            return False
        self._note_doubts(self._tracker, doubts, end.done if end else None)
        opened = [name for name in lengths or () if self.observed.is_open(name)]
        self._tracker.list_into(draft, lengths, opened, end)
        return bool(self._tracker.listed.files)

    def list_tables(self, draft: Path) -> None:
        """List the tables that belong to a state, once they have a record after it."""
        if self._tracker is not None and self.program.outputs:
            self._note_doubts(self._tracker)
            self._tracker.list_tables(draft)

    def _note_doubts(self, tracker: OutputTracker, doubts: Sequence[str] = (), done: float | None = None) -> None:
        """Log doubts about the result, and those about its tables, once each; the next list has them."""
        for doubt in (*doubts, *self.tables.missing(self.task.run_folder, done)):
            if doubt not in tracker.listed.doubts:
                self.task.tell(doubt)
                tracker.listed = tracker.listed.with_doubt(doubt)


class ContractSupervisor(Supervisor):
    """Serve a program that hands its states over by itself (docs/contract.md)."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        super().__init__(task, program, folder)
        self._waiting: list[HandedOver] = []

    def is_state_event(self, name: str) -> bool:
        return name.startswith(f"{SAVE}/") and name.endswith(READY)

    def also_observed(self) -> Mapping[str, Path]:
        return {SAVE: self.task.attempt_folder.save}

    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        return self._handed_over()

    def _handed_over(self, *, is_over: bool = False) -> list[HandedOver]:
        """Return what was handed over, once its tables have a later record; `is_over`: the program has left well."""
        found = ready_states(self.task.attempt_folder)
        for each in found:
            known = self.lengths_when(each.draft.name)  # before it is taken away
            if is_over and known[1] and each is found[-1]:
                known = None, ""  # it is listed as the program has left it
            if self._is_listed(taken := each.taken(), known):
                self._waiting.append(taken)
        ready = []
        while self._waiting and self._are_tables_behind(self._waiting[0]):
            ready.append(self._waiting.pop(0))
            self.list_tables(ready[-1].draft)
        return ready

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        self.observed.end()
        if not has_left_well:
            return self._handed_over()
        loose = loose_state(self.task.attempt_folder, self.task.attempt_folder.root / "loose")
        found = self._handed_over(is_over=loose is None)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.list_tables(each.draft)
        found += [*waiting, *([loose] if loose else [])]
        if found:
            handover = found[-1].handover
            done = handover.progress.done if handover else None
            end = ProgramEnd(is_finished=is_finished, has_saved_last=True, done=done)
            self.list_outputs(found[-1].draft, None, end)
        return found

    def salvage(self) -> list[HandedOver]:
        self.observed.know_before()
        listed = []
        for found in copied_states(self.task.attempt_folder):
            lengths = self.lengths_when(found.draft.name.removeprefix(TAKEN))
            is_known = found.handover is not None and self._are_tables_behind(found)
            if is_known and self._is_listed(found, lengths):
                self.list_tables(found.draft)
                listed.append(found)
        return listed

    def _are_tables_behind(self, found: HandedOver) -> bool:
        """Return True if all records of the tables that belong to a state have left the program's buffers."""
        if not self.program.outputs:
            return True
        if found.handover is None:
            raise CheckpointError(
                f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
            )
        return self.tables.are_behind(found.handover.progress.done)

    def _is_listed(self, found: HandedOver, known: Lengths) -> bool:
        """List the outputs that belong to a state; return False for one whose outputs are not known."""
        if (found.draft / LIST).is_file():
            return True
        (lengths, blurred), doubts = known, []
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
