"""Copies restart files that are complete, and finds out those that are not, whatever the config says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.open_files import Change, OpenState, OpenStates, is_held
from unbroken.engines.files.reading import why_not_whole
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import RestartState, Stamp, complete_states, copied
from unbroken.errors import SegmentError
from unbroken.system import fs


class RestartFileCopier:
    """Copies the states of one attempt; `why` is the last reason for which one was left out."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self._task, self._program, self._folder = task, program, folder
        self._is_renamed = program.saved_by is SavedBy.RENAME
        self._open = OpenStates()
        self._same: dict[str, OpenState] = {}
        self._refused: set[tuple[Stamp, ...]] = set()  # by check_command
        self.why = ""

    def look(self, is_due: bool) -> None:
        """Looks whether a program that is said to rename its files writes in place; SegmentError if it does."""
        if not self._is_renamed:
            return
        self._same, change = self._open.look(partial(complete_states, self._folder, self._program), is_due)
        if change is not None and not self._program.check_command:
            self.close()
            raise SegmentError(f"runs.{self._task.run.name}.settings.saved_by: {_in_place(change)}")

    def is_torn(self) -> bool:
        """True if the program was ended while it wrote in place."""
        if not self._is_renamed or self._program.check_command:
            return False
        _, change = self._open.look(tuple, is_due=False)
        self.why = _in_place(change) if change else ""
        return change is not None

    def steady(self) -> Iterable[RestartState]:
        """The states that are complete: of a program that renames, as they were at the last look, and still are."""
        steady = [each.state for each in self._same.values()]
        return steady or complete_states(self._folder, self._program)

    def copy(self, state: RestartState, draft: Path, is_running: bool) -> bool:
        """Copies a complete state to a new folder; False, and nothing there, if it is not whole after all."""
        if is_running and self._is_renamed and is_held(state):
            same = self._same.get(state.number)
            return same is not None and self._is_copied(draft, same.stamps, partial(same.copy, draft))
        stamps = state.stamps if state.complete_stamps is None else state.complete_stamps
        return self._is_copied(draft, stamps, partial(copied, state, draft))

    def is_whole(self, draft: Path, stamps: Mapping[str, Stamp]) -> bool:
        """Asks check_command about a copy; one that is not whole is removed, and told."""
        why = why_not_whole(self._task.run, self._program, draft)
        if not why:
            return True
        fs.remove_tree(draft)
        self._refused.add(tuple(stamps.values()))
        if why != self.why:
            self._task.tell(f"restart files are not taken: {why}; the next ones may be")
        self.why = why
        return False

    def close(self) -> None:
        """Gives back what is held open."""
        self._same = {}
        self._open.close()

    def _is_copied(self, draft: Path, stamps: Mapping[str, Stamp], copy: Callable[[], bool]) -> bool:
        return tuple(stamps.values()) not in self._refused and copy() and self.is_whole(draft, stamps)


def _in_place(change: Change) -> str:
    return (
        f"found 'rename', but the program writes {change.name} in place (the very same file had {change}); allowed: "
        "observed, exit, marker or next, a program that writes under another name and renames, or a check_command"
    )
