"""Take the states that a program hands over by itself (docs/contract.md), with the outputs that belong to them."""

from __future__ import annotations

import logging

from unbroken.engines.base import Task
from unbroken.engines.files.called_place import AnyPlace
from unbroken.engines.files.listing import ProgramEnd, UnsteadyOutputError
from unbroken.engines.files.observed import Lengths
from unbroken.engines.files.outputs import LIST
from unbroken.engines.files.place import MOST_SKIPS
from unbroken.engines.files.states import SAVE, stamp_of
from unbroken.errors import CheckpointError
from unbroken.program.handover import TAKEN, HandedOver, copied_states, loose_state, ready_states

logger = logging.getLogger(__name__)


class HandedOverStates:
    """Follow the states that a program hands over; a state waits until its tables have a record after it."""

    def __init__(self, task: Task, place: AnyPlace) -> None:
        self._attempt, self._place = task.attempt_folder, place
        self._waiting: list[HandedOver] = []
        self._skips = 0

    def while_running(self, *, is_over: bool = False) -> list[HandedOver]:
        """Return what was handed over, once its tables have a later record; `is_over`: the program has left well."""
        found = ready_states(self._attempt)
        for each in found:
            known = self._lengths_when(each.draft.name)  # before it is taken away
            if is_over and known[1] and each is found[-1]:
                known = None, ""  # it is listed as the program has left it
            if self._is_listed(taken := self._place.judged(each.taken()), known):
                self._waiting.append(taken)
        ready = []
        while self._waiting and self._are_tables_behind(self._waiting[0]):
            ready.append(self._waiting.pop(0))
            self._place.list_tables(ready[-1].draft)
        return ready

    def at_end(self, *, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what was handed over until the end; of a program that has left well its loose files too."""
        if not has_left_well:
            return self.while_running()
        loose = loose_state(self._attempt)
        found = self.while_running(is_over=loose is None)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._place.list_tables(each.draft)
        found += [*waiting, *([self._place.judged(loose)] if loose else [])]
        if found:
            handover = found[-1].handover
            done = handover.progress.done if handover else None
            end = ProgramEnd(is_finished=is_finished, has_saved_last=True, done=done)
            self._place.list_outputs(found[-1].draft, None, end)
        return found

    def of_killed(self) -> list[HandedOver]:
        """Return copies of what an attempt that was killed had handed over."""
        listed = []
        for found in map(self._place.judged, copied_states(self._attempt)):
            lengths = self._lengths_when(found.draft.name.removeprefix(TAKEN))
            is_known = found.handover is not None and self._are_tables_behind(found)
            if is_known and self._is_listed(found, lengths):
                self._place.list_tables(found.draft)
                listed.append(found)
        return listed

    def _lengths_when(self, name: str) -> Lengths:
        """Return the lengths of the outputs when a state of that name was handed over; else which is not known."""
        place = self._place
        if not place.has_outputs:
            return None, ""
        stamp = stamp_of(self._attempt.save / name)
        seen = place.observed.lengths_when(f"{SAVE}/{name}")
        return seen or place.observed.lengths_by_time(stamp[2] if stamp else 0, place.outputs)

    def _are_tables_behind(self, found: HandedOver) -> bool:
        """Return True if all records of the tables that belong to a state have left the program's buffers."""
        if not self._place.program.outputs:
            return True
        if found.handover is None:
            raise CheckpointError(
                f"{found.draft}: without progress.json nobody knows which records of `outputs` belong to it"
            )
        return self._place.tables.are_behind(found.handover.progress.done)

    def _is_listed(self, found: HandedOver, known: Lengths) -> bool:
        """List the outputs that belong to a state; return False for one whose outputs are not known."""
        if (found.draft / LIST).is_file():
            return True
        lengths, blurred = known
        if blurred:
            self._skips += 1
            if self._skips <= MOST_SKIPS:
                return False
            self._place.doubt(
                f"{blurred} was written while a state was saved, so rows of it may be missing or there twice"
            )
        try:
            self._place.list_outputs(found.draft, lengths)
        except UnsteadyOutputError:
            return False
        self._skips = 0
        return True
