"""The engine of `unbroken exec`: the user's command line where it was called, and what of it is kept."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.files.keep import Keep
from unbroken.engines.files.kept import KeptFiles
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.reading import last_number
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import Stamp
from unbroken.engines.files.stored import put_file
from unbroken.errors import CheckpointError
from unbroken.exec.options import Options, number_of
from unbroken.exec.results import keep_results, missing_results, put_back_results
from unbroken.exec.settings import NAME
from unbroken.exec.streams import is_empty_file, streams
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, TAKEN, HandedOver
from unbroken.program.process import Child, Streams
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import Run
from unbroken.slurm.this_job import current_job

# What the program has printed, if that is a result.
PRINTED_NAME = "stdout"
# What was there before the first start, until it is published.
ADOPTED = "adopted"
LOOK_SECONDS = 0.5
# A save interval and so long without a save are worth a line.
LONGEST_WAIT_SECONDS = 10.0
# Slurm's signals go to the program and to us, to us a moment later.
HEARING_SECONDS = 0.2


class ExecEngine(Engine):
    """One object serves one call."""

    name = NAME
    fills_final = False
    puts_results = False  # the program has
    ignored: tuple[str, ...] = ()

    def __init__(self, options: Options, folder: Path, store: Path) -> None:
        super().__init__(folder)
        self._options, self._store = options, store
        printed = store / PRINTED_NAME if options.stdout else None
        globs, outputs = tuple(map(os.path.normpath, options.keep)), options.outputs
        self._keep = Keep(globs, options.saved_by, options.marker, outputs, folder, store, printed)
        self._kept: dict[Path, KeptFiles] = {}
        self._pending: list[HandedOver] = []
        self._is_told = False
        self._is_ended = False  # by a signal
        self._is_done = False
        self.has_started = False
        self._count = 0
        self._next_look = 0.0
        self._saved_at = time.monotonic()
        self._last: float | None = None  # how far the last state is
        self._adopted: HandedOver | None = None
        self._why = ""
        self._has_told_open = False

    # --- before it starts ---

    def command(self, task: Task) -> list[str]:
        """Return the program as it was typed, or --resume, with all files in their places."""
        self.has_started = True
        self._last = task.origin.passport.progress.done if task.origin else None
        kept = self._files(task)
        is_there_before = bool(self._options.keep) and kept.is_there_before(task.origin)
        kept.restore(task.origin)
        if is_there_before:
            self._adopt(task, kept)
        kept.begin()
        if task.origin is not None and self._options.resume:
            return shlex.split(self._options.resume)
        return list(self._options.program)

    def folder(self, task: Task) -> Path:
        return self.base

    def environment(self, task: Task) -> dict[str, str]:
        """Return the contract's; the number of threads is the user's own matter here.

        What Python prints is in no buffer if it is a result: a kill would lose lines that the state counts as printed.
        """
        told = super().environment(task)
        del told["OMP_NUM_THREADS"]
        if self._keep.printed is not None and "PYTHONUNBUFFERED" not in os.environ:
            told["PYTHONUNBUFFERED"] = "1"
        return told

    def remarks(self, task: Task) -> list[str]:
        """Return what would surprise the user later."""
        options, found = self._options, []
        if task.origin is not None and is_empty_file(1) and not options.stdout:
            found.append(
                "standard output goes to a file that was emptied at this start; for a result add --stdout FILE"
            )
        return found

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        return streams(log, self._keep.printed)

    # --- while it works ---

    def states(self, task: Task) -> list[HandedOver]:
        """Return what the program hands over by the contract, and kept files that are complete."""
        found = [self._listed(task, _not_done_yet(each)) for each in super().states(task)]
        if self._adopted is not None:
            found, self._adopted = [self._adopted, *found], None
        found, self._pending = [*self._pending, *found], []
        if not self._options.keep or time.monotonic() < self._next_look:
            return found
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._note_progress(task)
        is_due = time.monotonic() - self._saved_at >= self._options.save_minutes * 60
        return [*found, *self._complete_state(task, is_due)]

    def _complete_state(self, task: Task, is_due: bool) -> list[HandedOver]:
        files = self._files(task).complete()
        if is_due and not files:
            self._tell_what_is_open(task)
        return self._state(task, files, is_running=True) if files and is_due else []

    def _tell_what_is_open(self, task: Task) -> None:
        """Say once which kept file was open at each look, if nothing was saved for two intervals."""
        waited = time.monotonic() - self._saved_at - self._options.save_minutes * 60
        why = self._files(task).why_not_complete()
        if why and not self._has_told_open and waited > max(LONGEST_WAIT_SECONDS, self._options.save_minutes * 60):
            self._has_told_open = True
            task.tell(f"not saved for {time.monotonic() - self._saved_at:.0f} s: {why}")

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """The stop file, and the signal."""
        self._is_told = True
        kept = self._files(task)
        kept.stop_asked_unix = time.time()
        if self._options.keep:
            self._pending += self._complete_state(task, is_due=True)  # it may be all that there is
        super().ask_to_stop(task, child)
        if (number := number_of(self._options.stop_signal)) is not None:
            child.send(number)

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """0 means done only if nobody has asked the program to leave; a death by our signal is a pause."""
        is_asked = self._is_told or self._is_warned(task, code)
        self._is_ended = code < 0 or (is_asked and code > 128)
        if code == EXIT_PAUSED or (is_asked and self._is_ended):
            return EXIT_PAUSED
        if code != 0:
            return code
        says = self._says_done()
        self._is_done = not is_asked if says is None else says
        return EXIT_FINISHED if self._is_done else EXIT_PAUSED

    def last_states(self, task: Task, has_left_well: bool) -> list[HandedOver]:
        """What it left; of one that is done its results too."""
        is_whole = has_left_well and not self._is_ended
        kept = self._files(task)
        kept.has_left_well = is_whole
        kept.end_observing()
        pending, self._pending = self._pending, []
        found = [*pending, *(self._at_end(task, each) for each in super().last_states(task, is_whole))]
        files: dict[str, Stamp] = {}
        if self._options.keep:
            files = kept.whole() if is_whole else kept.last()
        missing = missing_results(self.base, self._results) if self._is_done else []
        if missing:
            self._why = f"--outputs: it made no {', '.join(missing)}"
        if not self._is_done or missing:
            return [*found, *(self._state(task, files, is_running=False) if self._options.keep else [])]
        return [*found[:-1], self._result(task, files, found[-1] if found else None)]

    def why_nothing_newer(self, task: Task) -> str:
        return self._why

    def salvage(self, task: Task) -> list[HandedOver]:
        """What a killed attempt handed over by the contract, and kept files that are complete by evidence."""
        kept = self._files(task)
        kept.know_before(task.origin)
        self._last = task.origin.passport.progress.done if task.origin else None
        found = [self._listed(task, _not_done_yet(each)) for each in super().salvage(task)]
        adopted = task.attempt_folder.root / ADOPTED
        if task.origin is None and adopted.is_dir():
            found.append(self._handed_over(adopted, 1.0, is_finished=False))
        if self._options.saved_by is SavedBy.EXIT or not self._options.keep:
            return found
        files = kept.last()
        self._count = 1000  # its successor's own folder has other names
        return [*found, *(self._state(task, files, is_running=False) if files else [])]

    def result_doubts(self, run: Run, checkpoint: Checkpoint) -> Sequence[str]:
        return read_outputs(checkpoint).doubts

    # --- for the call ---

    def call_words(self) -> tuple[str, ...]:
        """Nothing beside the command line says which computation it is."""
        return ()

    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        """Puts the results in place that are missing or differ; their names."""
        return put_back_results(checkpoint, self.base, self._store)

    # --- inside ---

    @property
    def _results(self) -> dict[str, Path]:
        """Where each result lies, by the name that it has where the program was called."""
        printed = {self._options.stdout: self._keep.printed} if self._keep.printed is not None else {}
        return {**{name: self.base / name for name in self._options.outputs}, **printed}

    def _files(self, task: Task) -> KeptFiles:
        root = task.attempt_folder.root
        if root not in self._kept:
            self._kept[root] = KeptFiles(self._keep, task.attempt_folder, task.segment, task.tell)
        return self._kept[root]

    def _listed(self, task: Task, found: HandedOver) -> HandedOver:
        """Add to a state of the contract how long each growing file was when it was handed over."""
        if self._keep.printed is None and not self._options.outputs:
            return found
        taken = found.taken()
        kept = self._files(task)
        lengths, saved_unix = kept.lengths_when(taken.draft.name.removeprefix(TAKEN))
        kept.list_into(taken.draft, lengths, saved_unix)
        return taken

    def _at_end(self, task: Task, found: HandedOver) -> HandedOver:
        """Do the same for a state that was left as the last one."""
        found = _not_done_yet(found).taken()
        self._files(task).list_into(found.draft, None, time.time(), is_at_end=True)
        return found

    def _adopt(self, task: Task, kept: KeptFiles) -> None:
        """What the program had saved before unbroken came is the first checkpoint."""
        files, draft = kept.found(), self._draft(task)
        if kept.copy(files, draft, is_running=False):
            task.tell(f"saved first what was here before: {', '.join(files)}")
            adopted = task.attempt_folder.root / ADOPTED
            os.rename(draft, adopted)
            self._adopted = self._handed_over(adopted, self._done(kept, files), is_finished=False)

    def _is_warned(self, task: Task, code: int) -> bool:
        give_up = time.monotonic() + (HEARING_SECONDS if current_job() and code == 0 else 0.0)
        while not (heard := task.is_warned()) and time.monotonic() < give_up:
            time.sleep(0.01)
        return heard

    def _says_done(self) -> bool | None:
        """By --done-if and --goal; None if neither was given.  Notes what it was."""
        options = self._options
        says: list[bool] = []
        if options.done_if:
            says.append((self.base / options.done_if).exists())
        if options.goal is not None and (reached := self._reached()) is not None:
            says.append(reached >= options.goal)
        elif options.goal is not None:
            says.append(False)
        return all(says) if says else None

    def _reached(self) -> float | None:
        """How far the program is by its own files, where they say it."""
        options = self._options
        if options.progress_file:
            return last_number(self.base / options.progress_file, options.progress_pattern)
        kept = next(iter(self._kept.values()), None)
        return self._keep.number(kept.own()) if kept is not None else None

    def _done(self, kept: KeptFiles, files: dict[str, Stamp]) -> float | None:
        """How far a state is; None if that is to be read, and cannot be."""
        if self._options.progress_file:
            return last_number(self.base / self._options.progress_file, self._options.progress_pattern)
        number = self._keep.number(files)
        return (self._last or 0.0) + 1 if number is None else number

    def _state(self, task: Task, files: dict[str, Stamp], is_running: bool) -> list[HandedOver]:
        """A copy of the files, if they are further than the last state and did not change meanwhile."""
        kept, draft = self._files(task), self._draft(task)
        done = self._done(kept, files)
        goal = self._options.goal
        if not files:
            nothing = f"--keep: nothing that the program wrote matches {' '.join(self._options.keep)}"
            self._why = "the kept files are as they were" if kept.own() else nothing
            return []
        if done is None:
            self._why = f"--progress: {self._options.progress_pattern} matches nothing in {self._options.progress_file}"
            return []
        if self._last is not None and done <= self._last:
            self._why = f"the kept files say {done:.10g} {self._unit}, as before"
            return []
        if is_running and goal is not None and done >= goal:
            return []  # waits for the end of the program, which writes its results after it
        draft.mkdir(parents=True)
        if not kept.copy(files, draft, is_running, is_at_end=not is_running):
            return []
        kept.saved(files)
        return [self._handed_over(draft, done, is_finished=False)]

    def _result(self, task: Task, files: dict[str, Stamp], handed: HandedOver | None) -> HandedOver:
        """The last checkpoint: what the program goes on from, should its goal be raised, and its results."""
        draft, done = self._draft(task), (self._last or 0.0) + 1
        if handed is None:
            draft.mkdir(parents=True)
        else:
            handed.move(draft)
            done = handed.handover.progress.done if handed.handover else done
        if files:
            kept = self._files(task)
            done = max(self._last or 0.0, self._done(kept, files) or 0.0)
            if not kept.copy(files, draft, is_running=False, is_at_end=True, is_finished=True):
                raise CheckpointError(f"{self.base}: the kept files change although the program is gone")
        else:
            self._files(task).list_into(draft, None, time.time(), is_at_end=True)
        if self._keep.printed is not None:
            put_file(self._keep.printed, self.base / self._options.stdout)
        keep_results(self.base, self._results, draft, task.tell)
        return self._handed_over(draft, max(done, self._options.goal or 0.0), is_finished=True)

    def _handed_over(self, draft: Path, done: float | None, is_finished: bool) -> HandedOver:
        self._last = 0.0 if done is None else done
        self._saved_at = time.monotonic()
        progress = Progress(self._last, self._options.goal, self._unit)
        return HandedOver(draft, Handover(progress, is_finished=is_finished))

    @property
    def _unit(self) -> str:
        says = self._options.progress_file or any("{progress}" in name for name in self._options.keep)
        return self._options.unit if says else "saves"

    def _draft(self, task: Task) -> Path:
        while True:
            self._count += 1
            draft = task.attempt_folder.root / f"state-{self._count:06d}"
            if not draft.exists():
                return draft

    def _note_progress(self, task: Task) -> None:
        done = self._reached()
        if done is None:
            return
        draft = task.attempt_folder.progress.with_suffix(".tmp")
        draft.write_text(json.dumps(Progress(done, self._options.goal, self._unit).to_json()))
        os.replace(draft, task.attempt_folder.progress)


def _not_done_yet(found: HandedOver) -> HandedOver:
    """Done is a program that has ended so: until then it may still write its results."""
    handover = found.handover
    if handover is None:
        return found
    progress = replace(handover.progress, goal=None) if handover.progress.is_finished else handover.progress
    return replace(found, handover=replace(handover, progress=progress, is_finished=False))
