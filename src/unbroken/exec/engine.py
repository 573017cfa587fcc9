"""Run the user's command line of `unbroken exec` where it was called, and keep its files."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.called_place import CalledPlace
from unbroken.engines.files.engine import SupervisedEngine
from unbroken.engines.files.kinds import Keep
from unbroken.engines.files.settings import Program
from unbroken.engines.files.stored import put_file
from unbroken.exec.options import Options
from unbroken.exec.outputs import CalledEngine, is_empty_file, keep_results, put_back_results
from unbroken.exec.presets import preset_of
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.handover import HandedOver
from unbroken.program.process import Child
from unbroken.slurm.this_job import own_job_id
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.run import RunSpec

NAME = "exec"
# What the program has printed, if that is a result.
PRINTED_NAME = "stdout"
# Slurm's signals go to the program and to us, to us a moment later.
HEARING_SECONDS = 0.2


class ExecEngine(CalledEngine, SupervisedEngine):
    """Run a program that has no engine, with its kept files or the contract."""

    name = NAME
    may_log_to_trackers = True

    def __init__(self, options: Options, folder: Path, store: Path, run: RunSpec) -> None:
        super().__init__(options, folder, store, run)
        self.printed = store / PRINTED_NAME if options.stdout else None
        program = Program(
            tuple(options.program),
            tuple(options.resume),
            files=tuple(map(os.path.normpath, options.keep)),
            saved_by=options.saved_by,
            saved_marker=options.marker,
            progress_file=options.progress[0],
            progress_pattern=options.progress[1],
            goal_unit=options.unit,
        )
        self._keep = Keep(program, tuple(options.outputs), folder, store, self.printed)
        self._is_ended = False  # by a signal
        self._is_done = False
        self._why = ""

    # --- before it starts ---

    def command(self, task: Task) -> list[str]:
        """Return the program as it was typed, or --resume, with all files in their places."""
        self._pending += self.supervisor(task).begin()
        program = self._keep.program
        return list(program.resume if task.origin else program.start)

    def place(self, task: Task) -> CalledPlace:
        return CalledPlace(task, self._keep)

    def folder(self, task: Task) -> Path:
        return self.base

    def environment(self, task: Task) -> dict[str, str]:
        """Return the contract's; the number of threads is the user's own matter here."""
        return {name: text for name, text in super().environment(task).items() if name != "OMP_NUM_THREADS"}

    def remarks(self, task: Task) -> list[str]:
        """Name the preset of a known program, and warn of `> FILE`, which has lost what was printed before."""
        if not self.options.keep and (name := preset_of(self.options.program)):
            return [f"nothing is kept of it but what it hands over; for {self.options.program[0]} add --preset {name}"]
        if task.origin is None or self.options.stdout or not is_empty_file(1):
            return []
        return ["standard output goes to a file that was emptied at this start; for a result add --stdout FILE"]

    # --- while it works ---

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Ask by the stop file, and the signal."""
        super().ask_to_stop(task, child)
        if self.options.stop_signal != "none":
            child.send(signal.Signals[f"SIG{self.options.stop_signal}"])

    # --- when it is gone ---

    def exit_meaning(self, task: Task, code: int) -> int:
        """Return 0 as done only if the program was not asked to leave; a death by our signal is a pause."""
        is_asked = self.supervisor(task).stop_asked_unix is not None or self._is_warned(task, code)
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
            reached = self.supervisor(task).place.reached()
            says.append(reached is not None and reached >= self.options.goal)
        return all(says) if says else None

    def left(self, task: Task, *, is_well: bool) -> list[HandedOver]:
        """Return what it left; of one that is done its results too."""
        missing = [name for name, path in self._results.items() if not os.path.lexists(path)] if self._is_done else []
        is_finished = self._is_done and not missing
        found = self.at_end(task, has_left_well=is_well and not self._is_ended, is_finished=is_finished)
        if is_finished:
            if self.printed is not None:
                put_file(self.printed, self.base / self.options.stdout)
            keep_results(self._results, found[-1].draft)
        elif self._is_done:
            self._why = f"--outputs: it made no {', '.join(missing)}"
        return found

    def why_nothing_newer(self, task: Task) -> str:
        return self._why or super().why_nothing_newer(task)

    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        return put_back_results(checkpoint, self.base, self.store)

    @property
    def _results(self) -> dict[str, Path]:
        """Return where each result lies, by the name that it has where the program was called."""
        printed = {self.options.stdout: self.printed} if self.printed is not None else {}
        return {**{name: self.base / name for name in self.options.outputs}, **printed}
