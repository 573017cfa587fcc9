"""Supervise a program that runs where the user called it: copy the kept files that are complete, and list growing ones.

Only files are moved that match `keep` and that this run's program wrote.  Nothing is removed: files in the
way are moved to the store's `replaced/`.  What the program appends to is cut in place.
"""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.base import Supervisor
from unbroken.engines.files.growing import GrowingFiles
from unbroken.engines.files.keep import Keep
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import ObservedFiles, SaveCycle, literal_names
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.put_back import LAST_SIGN_SECONDS, BeforeNote, PutBack
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import (
    ELSEWHERE,
    PRINTED,
    SAVE,
    TICKS_SECONDS,
    RestartState,
    Stamp,
    are_copied,
    is_as_in,
    newest_ns,
    plain_stamp,
)
from unbroken.engines.files.stored import KEPT, kept_names, stored
from unbroken.errors import CheckpointError
from unbroken.program.contract import HandedOver
from unbroken.system import copying, fs

# What was there before the first start, until it is published.
ADOPTED = "adopted"
# Two save intervals and so long without a save are worth a line.
LONGEST_WAIT_SECONDS = 10.0


class InPlaceSupervisor(Supervisor):
    """Supervise a program in the user's own folder, by the contract and by its kept files."""

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
        self._keep, self._observer = keep, observed.observer
        observed.cycle = SaveCycle(literal_names(keep.program.files))
        self._growing = GrowingFiles(keep, observed, task.segment)
        self._before = BeforeNote(keep.store)
        self._foreign: dict[str, Stamp] = {}
        # The last checkpoint's folder of kept files.
        self._source = task.origin.folder / KEPT if task.origin else None
        self._has_left_well = self._has_told_open = False

    # --- which files ---

    def found(self) -> dict[str, Stamp]:
        """Return all state files that match now, by their names."""
        found = {name: plain_stamp(self.folder / name) for name in self._keep.names(self._observer.appended)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def own(self) -> dict[str, Stamp]:
        """Return those that are this run's: the others are as they were before it began."""
        return {name: stamp for name, stamp in self.found().items() if self._foreign.get(name) != stamp}

    def _states(self) -> list[RestartState]:
        """Return all of its own files as one state; where the next one shows it, after those of the highest number."""
        own, is_next = self.own(), self._saved_by is SavedBy.NEXT
        number = self._keep.number(own)
        highest = [name for name in own if is_next and self._keep.number_in(name) == number]
        rest = [name for name in own if name not in highest]
        return [RestartState(self.folder, tuple(names)) for names in (highest, rest) if names]

    # --- before the program starts ---

    def begin(self) -> list[HandedOver]:
        """Make the files what they were at the checkpoint, or before the run began, and begin to observe.

        Return what was here before, saved first.  The program starts after this.
        """
        origin, before = self.task.origin, self._before
        wanted, listed = set(kept_names(origin)), read_outputs(origin)
        # What the attempts before have learned.
        self._observer.appended = {name for name in listed.files if self._keep.is_state(name) and name not in wanted}
        self.observed.cycle = SaveCycle(wanted or literal_names(self.program.files))
        found, known = self.found(), before.foreign
        # State files that no attempt of this run has written, and that are not saved yet.
        is_there_before = origin is None and bool(found) and (before.is_new or (found == known and not before.late))
        self._growing.take(listed, PutBack(self._keep, before, self.task.tell).put_back(origin, listed, found))
        found = self.found()
        self._seen = {name: stamp for name, stamp in found.items() if name in wanted}
        self._foreign = {name: stamp for name, stamp in found.items() if name not in wanted}
        is_late = origin is None and not before.is_new
        before.late = {name: stamp for name, stamp in found.items() if is_late and known.get(name) != stamp}
        before.write(self._foreign)
        adopted = self._adopted(found) if is_there_before else []
        self._growing.begin()
        return adopted

    def _adopted(self, files: Mapping[str, Stamp]) -> list[HandedOver]:
        """Make the first checkpoint of what the program had saved before its first start."""
        draft, adopted = self._draft(), self.task.attempt_folder.root / ADOPTED
        if not self._is_copied(files, draft, is_running=False, is_at_end=False):
            return []
        self.task.tell(f"saved first what was here before: {', '.join(files)}")
        os.rename(draft, adopted)
        return [self._found(adopted, self._done(files) or 0.0)]

    # --- while it works, at its end, and after a kill ---

    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        handed = self._handed_over()
        if not self.program.files:
            return handed
        self._before.give_sign(self._observer.written())
        files = self._complete(is_running=True)
        if files and self._is_due(is_urgent=is_urgent):
            return [*handed, *self._copies(files, is_running=True)]
        self._tell_of_open_files()
        return handed

    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        self._has_left_well = has_left_well
        self.observed.end()
        self._before.give_sign(self._observer.written(), is_last=True)
        handed = self._handed_at_end(has_left_well=has_left_well, is_finished=is_finished)
        files = self._new(self.own()) if has_left_well else self._complete(is_running=False)
        if is_finished:
            return [*handed[:-1], self._result(files, handed[-1] if handed else None)]
        return [*handed, *self._copies(files, is_running=False)] if self.program.files else handed

    def salvage(self) -> list[HandedOver]:
        """Return what a killed attempt handed over by the contract, and kept files that are complete by evidence."""
        self._know_before()
        handed = self._handed_by_killed()
        adopted = self.task.attempt_folder.root / ADOPTED
        if self.task.origin is None and adopted.is_dir():
            handed.append(self._found(adopted, 1.0))
        if self._saved_by is SavedBy.EXIT or not self.program.files:
            return handed
        return [*handed, *self._copies(self._complete(is_running=False), is_running=False)]

    def _know_before(self) -> None:
        """Take over from an attempt that was killed: what it put back or saved is no new state."""
        origin, self._foreign = self.task.origin, self._before.foreign
        wanted = set(kept_names(origin))
        self._seen = {
            name: stamp
            for name, stamp in self.found().items()
            if origin and name in wanted and is_as_in(origin, f"{KEPT}/{stored(name)}", self.folder / name)
        }
        self.observed.know_before()
        self._growing.know_before(read_outputs(origin))

    def _tell_of_open_files(self) -> None:
        since = time.monotonic() - self._saved_at
        if self._has_told_open or since <= 2 * self.task.run.save_minutes * 60 + LONGEST_WAIT_SECONDS:
            return
        if is_open := [name for name in self.own() if self._observer.is_open(name)]:
            self._has_told_open = True
            self.task.tell(f"not saved for {since:.0f} s: open for writing at each look: {', '.join(is_open[:3])}")

    # --- what is complete ---

    def _complete(self, *, is_running: bool) -> dict[str, Stamp]:
        """Return the files of a new state that is complete; none if there is no new one."""
        state = next(iter(self._complete_states(is_running=is_running)), None)
        return self._new((state.complete_stamps if state else None) or {})

    def _new(self, files: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Return these files, unless they are what was saved: a program that writes the same again made no step."""
        if files.keys() == self._seen.keys() and all(self._is_as_saved(name, files[name]) for name in files):
            self._seen = dict(files)
            return {}
        return dict(files)

    def _is_as_saved(self, name: str, stamp: Stamp) -> bool:
        saved, source = self._seen[name], self._source and self._source / stored(name)
        if stamp == saved:
            return True
        if source is None or stamp[1] != saved[1]:
            return False
        with suppress(OSError):  # one of them is just being replaced
            return filecmp.cmp(self.folder / name, source, shallow=False)
        return False

    # --- how far it is ---

    def reached(self) -> float | None:
        return self._keep.reached(() if self.program.progress_file else self.own())

    def _done(self, files: Mapping[str, Stamp]) -> float | None:
        """Return how far a state is: a count if nothing says it; None if --progress should, and does not."""
        number = self._keep.reached(files)
        return (self.last or 0.0) + 1 if number is None and not self.program.progress_file else number

    def _why_no_state(self, files: Mapping[str, Stamp], done: float | None) -> str:
        if not files and not self.own():
            return f"--keep: nothing that the program wrote matches {' '.join(self.program.files)}"
        if not files:
            return "the kept files are as they were"
        if done is None:
            return f"--progress: {self.program.progress_pattern} matches nothing in {self.program.progress_file}"
        return "" if self.last is None or done > self.last else f"the kept files say {done:.10g}, as before"

    # --- copies ---

    def _copies(self, files: Mapping[str, Stamp], *, is_running: bool) -> list[HandedOver]:
        """Return a copy of the files, if they are further than the last state and did not change meanwhile."""
        done, goal = self._done(files), self.task.run.goal
        self._why = self._why_no_state(files, done)
        if done is None or self._why or (is_running and goal is not None and done >= goal):
            return []  # at the goal it waits for the end of the program, which writes its results after it
        draft = self._draft()
        if not self._is_copied(files, draft, is_running=is_running, is_at_end=not is_running):
            return []
        self._seen = dict(files)
        self._source = self._keep.store / "checkpoints" / "latest" / KEPT  # by the next save
        return [self._found(draft, done)]

    def _result(self, files: Mapping[str, Stamp], handed: HandedOver | None) -> HandedOver:
        """Return the last checkpoint: from what the program resumes if its goal is raised."""
        draft, done = self._draft(), (self.last or 0.0) + 1
        if handed is None:
            draft.mkdir(parents=True)
        else:
            handed.move(draft)
            done = handed.handover.progress.done if handed.handover else done
        if not files:
            self.list_outputs(draft, None, ProgramEnd(has_saved_last=True))
        else:
            done = max(self.last or 0.0, self._done(files) or 0.0)
            if not self._is_copied(files, draft, is_running=False, is_finished=True):
                raise CheckpointError(f"{self.folder}: the kept files change although the program is gone")
        return self._found(draft, max(done, self.task.run.goal or 0.0), is_finished=True)

    def _is_copied(
        self,
        files: Mapping[str, Stamp],
        draft: Path,
        *,
        is_running: bool,
        is_at_end: bool = True,
        is_finished: bool = False,
    ) -> bool:
        """Copy the files of a state to `draft/kept`, and list what grows; return False, without a copy, on a change.

        What has not changed since the last checkpoint gets a second name there.
        """
        if is_running and self._saved_by is SavedBy.MARKER:
            time.sleep(TICKS_SECONDS)  # the clock of files goes by ticks
        lengths, blurred = self.lengths_at(files)
        has_saved_last = self._has_saved_last(newest_ns(files) / 1e9, has_left_well=self._has_left_well)
        if blurred and is_running:
            self._skip(f"{blurred} is written while the kept files are, so what of it belongs to them is unknown")
            return False
        if blurred and not is_finished and not has_saved_last:
            if self._source is not None:
                return False  # the checkpoint before is exact
            what = "what of it belongs to the first save is unknown; lines may be double"
            self.doubt(f"{blurred.lstrip(ELSEWHERE)}: {what}")
        targets = {name: draft / KEPT / stored(name) for name in files}
        new = {name: stamp for name, stamp in files.items() if not self._is_linked(name, stamp, targets[name])}
        if not are_copied(self.folder, new, targets):
            fs.remove_tree(draft)
            if is_running:
                self._skip(f"{', '.join(list(files)[:3])} changed while copied")
            return False
        self._skips = 0
        end = ProgramEnd(has_saved_last=has_saved_last) if is_at_end else None
        self.list_outputs(draft, None if blurred else lengths, end)
        return True

    def _is_linked(self, name: str, stamp: Stamp, target: Path) -> bool:
        """Give a file that is in the last checkpoint a second name; return False if it is another by now."""
        source = self._source / stored(name) if self._source else None
        if source is None or self._seen.get(name) != stamp or not source.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        copying.link_or_copy(source, target)
        return True

    def _judged(self, found: HandedOver) -> HandedOver:
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
            self.task.tell(doubt)
