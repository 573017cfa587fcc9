"""Run the user's command line of `unbroken exec` where it was called, and keep its files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.keep import Keep
from unbroken.engines.files.kept import KeptFiles
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.reading import last_number
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import Stamp
from unbroken.engines.files.stored import put_file
from unbroken.errors import CheckpointError
from unbroken.exec.options import Options
from unbroken.exec.outputs import CalledEngine, is_empty_file, keep_results, put_back_results
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, TAKEN, HandedOver
from unbroken.program.process import Child
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.progress import Handover, Progress, write_progress
from unbroken.runs.run import RunSpec
from unbroken.slurm.this_job import own_job_id
from unbroken.system import fs

NAME = "exec"
# What the program has printed, if that is a result.
PRINTED_NAME = "stdout"
# What was there before the first start, until it is published.
ADOPTED = "adopted"
LOOK_SECONDS = 0.5
# Two save intervals and so long without a save are worth a line.
LONGEST_WAIT_SECONDS = 10.0
# Slurm's signals go to the program and to us, to us a moment later.
HEARING_SECONDS = 0.2


class ExecEngine(CalledEngine):
    """Run a program that has no engine, with its kept files or the contract."""

    name = NAME

    def __init__(self, options: Options, folder: Path, store: Path, run: RunSpec) -> None:
        super().__init__(options, folder, store, run)
        self.printed = store / PRINTED_NAME if options.stdout else None
        globs, outputs = tuple(map(os.path.normpath, options.keep)), tuple(options.outputs)
        self._keep = Keep(globs, options.saved_by, options.marker, outputs, folder, store, self.printed)
        self._kept: dict[Path, KeptFiles] = {}
        self._pending: list[HandedOver] = []
        self._is_ended = False  # by a signal
        self._is_done = False
        self._next_look = 0.0
        self._saved_at = time.monotonic()
        self._last: float | None = None  # how far the last state is
        self._why = ""
        self._has_told_open = False

    # --- before it starts ---

    def command(self, task: Task) -> list[str]:
        """Return the program as it was typed, or --resume, with all files in their places."""
        self._last = task.origin.passport.progress.done if task.origin else None
        kept = self._files(task)
        is_there_before = bool(self.options.keep) and kept.is_there_before(task.origin)
        kept.restore(task.origin)
        if is_there_before:
            self._adopt(task, kept)
        kept.begin()
        return list((task.origin and self.options.resume) or self.options.program)

    def _adopt(self, task: Task, kept: KeptFiles) -> None:
        """Make the first checkpoint of what the program had saved before its first start."""
        files, draft = kept.found(), self._draft(task)
        if kept.copy(files, draft, is_running=False):
            task.tell(f"saved first what was here before: {', '.join(files)}")
            adopted = task.attempt_folder.root / ADOPTED
            os.rename(draft, adopted)
            self._pending.append(self._handed_over(adopted, self._done(files), is_finished=False))

    def folder(self, task: Task) -> Path:
        return self.base

    def environment(self, task: Task) -> dict[str, str]:
        """Return the contract's; the number of threads is the user's own matter here."""
        return {name: text for name, text in super().environment(task).items() if name != "OMP_NUM_THREADS"}

    def remarks(self, task: Task) -> list[str]:
        """Warn of `> FILE`, which has lost what was printed before."""
        if task.origin is None or self.options.stdout or not is_empty_file(1):
            return []
        return ["standard output goes to a file that was emptied at this start; for a result add --stdout FILE"]

    # --- while it works ---

    def states(self, task: Task) -> list[HandedOver]:
        """Return what the program hands over by the contract, and kept files that are complete."""
        found = [*self._pending, *(self._listed(task, each) for each in super().states(task))]
        self._pending = []
        if not self.options.keep or time.monotonic() < self._next_look:
            return found
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._note_progress(task)
        is_due = time.monotonic() - self._saved_at >= self.options.save_minutes * 60
        return [*found, *self._complete_state(task, is_due=is_due)]

    def _complete_state(self, task: Task, *, is_due: bool) -> list[HandedOver]:
        """Return the kept files that are complete; log once which one is open at each look."""
        files, since = self._files(task).complete(), time.monotonic() - self._saved_at
        if files and is_due:
            return self._state(task, files, is_running=True)
        is_late = since > 2 * self.options.save_minutes * 60 + LONGEST_WAIT_SECONDS
        if is_late and not self._has_told_open and (why := self._files(task).why_not_complete()):
            self._has_told_open = True
            task.tell(f"not saved for {since:.0f} s: {why}")
        return []

    def _note_progress(self, task: Task) -> None:
        if (done := self._reached(task)) is not None:
            write_progress(task.attempt_folder.progress, self._progress(done))

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Ask by the stop file, and the signal."""
        self._files(task).stop_asked_unix = time.time()
        if self.options.keep:
            self._pending += self._complete_state(task, is_due=True)  # it may be all that there is
        super().ask_to_stop(task, child)
        if self.options.stop_signal != "none":
            child.send(signal.Signals[f"SIG{self.options.stop_signal}"])

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """Return 0 as done only if the program was not asked to leave; a death by our signal is a pause."""
        is_asked = self._files(task).stop_asked_unix is not None or self._is_warned(task, code)
        self._is_ended = code < 0 or (is_asked and code > 128)
        if code == EXIT_PAUSED or (is_asked and self._is_ended):
            return EXIT_PAUSED
        if code != 0:
            return code
        says = self._says_done(task)
        self._is_done = not is_asked if says is None else says
        return EXIT_FINISHED if self._is_done else EXIT_PAUSED

    def _is_warned(self, task: Task, code: int) -> bool:
        give_up = time.monotonic() + (HEARING_SECONDS if own_job_id() and code == 0 else 0.0)
        while not (heard := task.is_warned()) and time.monotonic() < give_up:
            time.sleep(0.01)
        return heard

    def _says_done(self, task: Task) -> bool | None:
        """Return what --done-if and --goal say; None if neither was given."""
        says = [(self.base / self.options.done_if).exists()] if self.options.done_if else []
        if self.options.goal is not None:
            reached = self._reached(task)
            says.append(reached is not None and reached >= self.options.goal)
        return all(says) if says else None

    def last_states(self, task: Task, has_left_well: bool) -> list[HandedOver]:
        """Return what it left; of one that is done its results too."""
        is_whole = has_left_well and not self._is_ended
        kept = self._files(task)
        kept.has_left_well = is_whole
        kept.end_observing()
        found, self._pending = self._pending, []
        handed = [self._listed(task, each, is_at_end=True) for each in super().last_states(task, is_whole)]
        files: dict[str, Stamp] = {}
        if self.options.keep:
            files = kept.whole() if is_whole else kept.last()
        missing = [name for name, path in self._results.items() if not os.path.lexists(path)]
        if self._is_done and not missing:
            return [*found, *handed[:-1], self._result(task, files, handed[-1] if handed else None)]
        states = self._state(task, files, is_running=False) if self.options.keep else []
        if self._is_done:
            self._why = f"--outputs: it made no {', '.join(missing)}"
        return [*found, *handed, *states]

    def why_nothing_newer(self, task: Task) -> str:
        return self._why

    def salvage(self, task: Task) -> list[HandedOver]:
        """Return what a killed attempt handed over by the contract, and kept files that are complete by evidence."""
        kept = self._files(task)
        kept.know_before(task.origin)
        self._last = task.origin.passport.progress.done if task.origin else None
        found = [self._listed(task, each) for each in super().salvage(task)]
        adopted = task.attempt_folder.root / ADOPTED
        if task.origin is None and adopted.is_dir():
            found.append(self._handed_over(adopted, 1.0, is_finished=False))
        if self.options.saved_by is SavedBy.EXIT or not self.options.keep:
            return found
        return [*found, *self._state(task, kept.last(), is_running=False)]

    def result_doubts(self, run: RunSpec, checkpoint: Checkpoint) -> Sequence[str]:
        return read_outputs(checkpoint).doubts

    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        return put_back_results(checkpoint, self.base, self.store)

    @property
    def _results(self) -> dict[str, Path]:
        """Return where each result lies, by the name that it has where the program was called."""
        printed = {self.options.stdout: self.printed} if self.printed is not None else {}
        return {**{name: self.base / name for name in self.options.outputs}, **printed}

    def _files(self, task: Task) -> KeptFiles:
        root = task.attempt_folder.root
        if root not in self._kept:
            self._kept[root] = KeptFiles(self._keep, task.attempt_folder, task.segment, task.tell)
        return self._kept[root]

    def _listed(self, task: Task, found: HandedOver, *, is_at_end: bool = False) -> HandedOver:
        """Add to a state of the contract how long each growing file was when it was handed over."""
        if (handover := found.handover) is not None:  # only the program's end says that it is done
            goal = None if handover.progress.is_finished else handover.progress.goal
            progress = replace(handover.progress, goal=goal)
            found = replace(found, handover=replace(handover, progress=progress, is_finished=False))
        if not self._results:
            return found
        taken, kept = found.taken(), self._files(task)
        name = taken.draft.name.removeprefix(TAKEN)
        lengths, saved_unix = (None, time.time()) if is_at_end else kept.lengths_when(name)
        kept.list_into(taken.draft, lengths, saved_unix, is_at_end=is_at_end)
        return taken

    def _number(self, files: Iterable[str]) -> float | None:
        """Return how far the program is by --progress, or by the names of these files; None if it is not known."""
        name, pattern = self.options.progress
        return last_number(self.base / name, pattern) if name else self._keep.number(files)

    def _reached(self, task: Task) -> float | None:
        return self._number(() if self.options.progress[0] else self._files(task).own())

    def _done(self, files: dict[str, Stamp]) -> float | None:
        """Return how far a state is: a count if nothing says it; None if --progress should, and does not."""
        number = self._number(files)
        return (self._last or 0.0) + 1 if number is None and not self.options.progress[0] else number

    def _state(self, task: Task, files: dict[str, Stamp], *, is_running: bool) -> list[HandedOver]:
        """Return a copy of the files, if they are further than the last state and did not change meanwhile."""
        done, goal = self._done(files), self.options.goal
        self._why = self._why_no_state(task, files, done)
        if self._why or (is_running and goal is not None and (done or 0.0) >= goal):
            return []  # at the goal it waits for the end of the program, which writes its results after it
        kept, draft = self._files(task), self._draft(task)
        draft.mkdir(parents=True)
        if not kept.copy(files, draft, is_running, is_at_end=not is_running):
            return []
        kept.saved(files)
        return [self._handed_over(draft, done, is_finished=False)]

    def _why_no_state(self, task: Task, files: dict[str, Stamp], done: float | None) -> str:
        if not files and not self._files(task).own():
            return f"--keep: nothing that the program wrote matches {' '.join(self.options.keep)}"
        if not files:
            return "the kept files are as they were"
        if done is None:
            name, pattern = self.options.progress
            return f"--progress: {pattern} matches nothing in {name}"
        is_further = self._last is None or done > self._last
        return "" if is_further else f"the kept files say {done:.10g}, as before"

    def _result(self, task: Task, files: dict[str, Stamp], handed: HandedOver | None) -> HandedOver:
        """Return the last checkpoint: from what the program resumes if its goal is raised, and its results."""
        draft, kept, done = self._draft(task), self._files(task), (self._last or 0.0) + 1
        if handed is None:
            draft.mkdir(parents=True)
        else:
            handed.move(draft)
            done = handed.handover.progress.done if handed.handover else done
        if not files:
            kept.list_into(draft, None, time.time(), is_at_end=True)
        else:
            done = max(self._last or 0.0, self._done(files) or 0.0)
            if not kept.copy(files, draft, is_running=False, is_at_end=True, is_finished=True):
                raise CheckpointError(f"{self.base}: the kept files change although the program is gone")
        if self.printed is not None:
            put_file(self.printed, self.base / self.options.stdout)
        keep_results(self._results, draft, task.tell)
        return self._handed_over(draft, max(done, self.options.goal or 0.0), is_finished=True)

    def _handed_over(self, draft: Path, done: float | None, *, is_finished: bool) -> HandedOver:
        self._last, self._saved_at = done or 0.0, time.monotonic()
        return HandedOver(draft, Handover(self._progress(self._last), is_finished=is_finished))

    def _progress(self, done: float) -> Progress:
        says = self.options.progress[0] or any("{progress}" in name for name in self.options.keep)
        return Progress(done, self.options.goal, self.options.unit if says else "saves")

    def _draft(self, task: Task) -> Path:
        return task.attempt_folder.root / fs.unique_name("state")
