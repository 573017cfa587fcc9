"""Hold the folder where the user called a program: the files that are kept, and what grows.

Only files are moved that match `keep` and that this run's program wrote.  Nothing is removed: files in the
way are moved to the store's `replaced/`.  What the program appends to is cut in place.
"""

from __future__ import annotations

import filecmp
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.growing import GrowingFiles
from unbroken.engines.files.kinds import Keep
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import ObservedFiles, SaveCycle, literal_names
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.place import Place, RunPlace
from unbroken.engines.files.put_back import LAST_SIGN_SECONDS, BeforeNote, PutBack
from unbroken.engines.files.reading import Reading, last_number
from unbroken.engines.files.states import PRINTED, SAVE, RestartState, Stamp, are_copied, plain_stamp
from unbroken.engines.files.stored import KEPT, kept_names, stored
from unbroken.errors import CheckpointError
from unbroken.program.handover import HandedOver
from unbroken.system import copying, fs

logger = logging.getLogger(__name__)


class CalledPlace(Place):
    """Hold the user's own folder: the state is every kept file that the program wrote."""

    names_results = True
    longest_rest_seconds = LAST_SIGN_SECONDS / 2  # what was written after the last sign may not be its own

    def __init__(self, task: Task, keep: Keep) -> None:
        attempt, printed = task.attempt_folder, {PRINTED: keep.printed} if keep.printed else {}
        observed = ObservedFiles(
            keep.folder,
            attempt,
            is_state=keep.is_state,
            is_measured=lambda name: name in observed.observer.appended or keep.is_output(name),
            is_watched=keep.is_watched,
            also={SAVE: attempt.save, **printed},
        )
        super().__init__(task, keep.program, observed)
        self.has_outputs = bool(keep.outputs or keep.printed or keep.program.files)
        self._keep, self._observer, self._before = keep, observed.observer, BeforeNote(keep.store)
        self._growing = GrowingFiles(keep, observed, task.segment)
        self._wanted = kept_names(task.origin)
        observed.cycle = SaveCycle(self._wanted or literal_names(keep.program.files))
        self._foreign: dict[str, Stamp] = {}  # how the files are that no attempt has written
        self._source = task.origin.folder / KEPT if task.origin else None  # the kept files of the last checkpoint

    # --- life ---

    def restore(self) -> bool:
        origin, before, listed = self.task.origin, self._before, read_outputs(self.task.origin)
        # What the attempts before have learned.
        self._observer.appended = {
            name for name in listed.files if self._keep.is_state(name) and name not in self._wanted
        }
        found, known = self._found(), before.foreign
        # State files that no attempt of this run has written, and that are not saved yet.
        is_there_before = origin is None and bool(found) and (before.is_new or (found == known and not before.late))
        self._growing.take(listed, PutBack(self._keep, before).put_back(origin, listed, found))
        found = self._found()
        self._put_back = frozenset(found.keys() & set(self._wanted))
        others = {name: stamp for name, stamp in found.items() if name not in self._wanted}
        foreign = {name: stamp for name, stamp in others.items() if not before.has_written(self.folder, name, stamp)}
        is_late = origin is None and not before.is_new
        before.late = {name: stamp for name, stamp in found.items() if is_late and known.get(name) != stamp}
        before.write(foreign)
        self._foreign = {} if is_there_before else foreign
        return is_there_before

    def observe(self) -> None:
        self._foreign = self._before.foreign
        self.stages.begin()
        self._growing.begin()

    def know_before(self) -> None:
        self._foreign = self._before.foreign
        self.observed.know_before()
        self.stages.know_before()
        self._growing.know_before(read_outputs(self.task.origin))

    def look(self, *, is_last: bool = False) -> None:
        if self.program.files or is_last:
            self._before.give_sign(self._observer.written(), is_last=is_last)

    # --- its states ---

    def _found(self) -> dict[str, Stamp]:
        """Return all state files that match now, by their names."""
        found = {name: plain_stamp(self.folder / name) for name in self._keep.names(self._observer.appended)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def states(self) -> list[RestartState]:
        """Return the states of this run's own files: the others are as they were before it began."""
        return self._keep.states(name for name, stamp in self._found().items() if self._foreign.get(name) != stamp)

    def kept_as(self, name: str) -> str:
        return f"{KEPT}/{stored(name)}"

    def is_as_saved(self, name: str, stamp: Stamp, saved: Stamp | None) -> bool:
        """Return True also for the same content: a program that writes the same again made no step."""
        source = self._source and self._source / stored(name)
        if stamp == saved or saved is None or source is None or stamp[1] != saved[1]:
            return stamp == saved
        with suppress(OSError):  # one of them is just being replaced
            return filecmp.cmp(self.folder / name, source, shallow=False)
        return False

    def reading(self, state: RestartState) -> Reading:
        program = self.program
        if not program.progress_file:
            return Reading(float(state.number) if state.number else None, "the number in their names")
        if (done := self.reached()) is None:
            raise CheckpointError(f"--progress: {program.progress_pattern} matches nothing in {program.progress_file}")
        return Reading(done, "--progress")

    def reached(self) -> float | None:
        program = self.program
        if program.progress_file:
            return last_number(self.folder / program.progress_file, program.progress_pattern)
        return super().reached()

    def live(self) -> float | None:
        return self.reached()

    def is_copied(self, state: RestartState, draft: Path, saved: Mapping[str, Stamp], *, is_over: bool = False) -> bool:
        """Copy the files to `draft/kept`; one that is as in the last checkpoint gets a second name there."""
        stamps = dict(state.complete_stamps or state.stamps)
        targets = {name: draft / self.kept_as(name) for name in stamps}
        same = {name for name, stamp in stamps.items() if saved.get(name) == stamp and self._is_linked(name, targets)}
        if are_copied(self.folder, {name: stamps[name] for name in stamps if name not in same}, targets):
            return True
        fs.remove_tree(draft)
        return False

    def _is_linked(self, name: str, targets: Mapping[str, Path]) -> bool:
        source, target = self._source / stored(name) if self._source else None, targets[name]
        if source is None or not source.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        copying.link_or_copy(source, target)
        return True

    def handed_over(self, done: float) -> None:
        self._source = self._keep.store / "checkpoints" / "latest" / KEPT  # by the next save

    def judged(self, found: HandedOver) -> HandedOver:
        """Return a state without its goal: only the program's end says that it is done."""
        if (handover := found.handover) is None:
            return found
        goal = None if handover.progress.is_finished else handover.progress.goal
        progress = replace(handover.progress, goal=goal)
        return replace(found, handover=replace(handover, progress=progress, is_finished=False))

    # --- what grows ---

    def outputs(self) -> Mapping[str, Path]:
        return self._growing.files()

    def list_outputs(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> bool:
        if self.has_outputs:
            self._growing.list_into(draft, lengths, end)
        return self.has_outputs

    def list_tables(self, draft: Path) -> None:
        """Return; no program has tables here."""

    def doubt(self, doubt: str) -> None:
        if doubt not in self._growing.doubts:
            self._growing.doubts = (*self._growing.doubts, doubt)
            logger.warning(doubt)


AnyPlace = RunPlace | CalledPlace
