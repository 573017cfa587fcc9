"""Run one piece of a rehearsal: a segment as a process of its own, which is watched and ended in some way.

    python -m unbroken.rehearsal.piece .snakemake/unbroken/chains/demo/spec.json 2 4711 left.json

is that process, in the folder where it is started.  The numbers are the segment, and the process of the rehearsal, with
which it dies.  The files that the program wrote in the folder of its attempt are listed in the last argument.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

import psutil

from unbroken.engines.base import Task, When
from unbroken.engines.found import engine_of
from unbroken.errors import SegmentError, UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.job.spec import path_of, read
from unbroken.program import guard
from unbroken.program.contract import AttemptFolder
from unbroken.program.handover import HandedOver
from unbroken.rehearsal.stage import Stage, identity
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.progress import amount, read_progress
from unbroken.store.record import read_record
from unbroken.store.run import RunSpec
from unbroken.store.times import read_times
from unbroken.system import fs
from unbroken.system.file_events import FileEvents

POLL_SECONDS = 0.02
LEAVING_SECONDS = 60.0


class Way(Enum):
    """Name the way in which a piece ends."""

    WHOLE = "whole"
    STOP = "a polite stop"
    KILL = "a SIGKILL in mid-work"
    KILL_SAVE = "a SIGKILL in a save"
    END = "its end"
    CONTROL = "a wrong restore"


@dataclass
class Piece:
    """Run a segment; the fields below the line hold its outcome."""

    stage: Stage
    way: Way
    run: RunSpec
    enough_seconds: float  # when it is given up
    end_progress: float = math.inf  # it is ended when its program has done so much
    end_seconds: float = math.inf  # or, of a program that does not say how far it is, so long after its start
    # ---
    is_met: bool = False  # it ended in its way; False if the program was done before, or the time was up
    is_out_of_time: bool = False
    kind: EndKind | None = None  # by its record: a segment that finds the goal reached makes no attempt
    said: str = ""  # why it failed
    saved: str = ""  # the name of the file of a save at which it was killed
    seconds: float = 0.0
    first: float | None = None  # the progress that it said first
    _origin: float | None = None
    _started: float = math.inf  # on the monotonic clock
    _attempt: AttemptFolder | None = None
    _guards: list[psutil.Process] = field(default_factory=list)

    def work(self) -> None:
        """Run the piece until it has ended in its way, or cannot."""
        self.stage.write_spec(self.run)
        self._known, began = set(self._attempt_folders()), time.monotonic()
        words = [sys.executable, "-m", "unbroken.rehearsal.piece", str(path_of(self.run.name))]
        words += [str(segment := self._next_segment()), str(os.getpid()), str(self.stage.left.resolve())]
        folder, environment = self.stage.folder, self.stage.environment()
        with FileEvents(folder) as events, self.stage.log.open("wb") as log:
            self._process = subprocess.Popen(
                words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                self._watch(events, began)
            finally:
                self._kill()
            self.stage.saves.written(events.next(0.0))  # the last moves tell names, too
        self.seconds, code = time.monotonic() - began, self._process.returncode
        if code == 0 and (record := read_record(self.stage.places.record(segment))):
            self.kind = record.kind
        elif code == 1:
            self.said = next(reversed(self.stage.log.read_text(errors="replace").splitlines()), "")
        self.stage.saves.learn(self.checkpoints())

    @property
    def origin(self) -> float:
        """Return the progress from which the run was resumed."""
        worked = [attempt for attempt in self.attempts() if not attempt.kind.is_before_work]
        return self._origin if self._origin is not None else worked[-1].progress_from if worked else 0.0

    @property
    def is_behind(self) -> bool:
        """Return True if it said less progress than it resumed from."""
        return self.first is not None and self._origin is not None and self.first < self._origin

    @property
    def reason(self) -> str:
        """Return what a piece that ended otherwise than it should has said last."""
        attempts = self.attempts()
        return self.said or (attempts[-1].line() if attempts else "") or "it says nothing"

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the run so far."""
        return History(self.stage.places.history).attempts()

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of the run so far."""
        return Store(self.stage.places.checkpoints).readable() if self.stage.places.checkpoints.is_dir() else []

    def done(self) -> float:
        """Return how far the newest checkpoint is."""
        return max((each.passport.progress.done for each in self.checkpoints()[-1:]), default=0.0)

    def live(self) -> float | None:
        """Return how far the program says it is."""
        told = read_progress(self._attempt.progress) if self._attempt else None
        return told.done if told else None

    def line(self) -> str:
        """Return how it ended, in one line."""
        if self.way is Way.STOP:
            took = self.attempts()[-1].stop_seconds
            return f"{self.way.value}: saved at {amount(self.done())}" + (f", in {took:.1f} s" if took else "")
        return f"{self.way.value}{f' of {self.saved}' if self.saved else ''} after {self.seconds:.1f} s"

    # --- while it runs ---

    def _next_segment(self) -> int:
        settled = [each.segment for each in self.attempts() if each.kind.settles]
        # A control has no history.
        return 1 + max(settled or (each.passport.segment for each in self.checkpoints()), default=0)

    def _watch(self, events: FileEvents, began: float) -> None:
        has_started = False
        while self._process.poll() is None:
            # What was put back before the start is no save, nor is it if it is read only now.
            is_fresh, has_started = has_started, self._has_started()
            saved = self.stage.saves.written(events.next(POLL_SECONDS))
            if has_started:
                self.first = self.live() if self.first is None else self.first
                self._guards = self._guards or self._children()
                self._started = min(self._started, time.monotonic())
            if has_started and self._is_time():
                if self.way is Way.KILL:
                    self.is_met = True
                    return
                self.end_progress = self.end_seconds = math.inf
                self._process.send_signal(signal.SIGUSR1)  # to stop; of a program that saves only then, to save
            if self.way is Way.KILL_SAVE and is_fresh and saved:
                self._process.kill()  # at once, for a save may take some milliseconds
                self.saved, self.is_met = Path(saved).name, True
                return
            self.is_out_of_time = time.monotonic() - began > self.enough_seconds
            if self.is_behind or self.is_out_of_time:
                return
        self.is_met = self.way not in (Way.KILL, Way.KILL_SAVE) and self._process.returncode == 0

    def _attempt_folders(self) -> list[Path]:
        return sorted(self.stage.places.work.glob("[0-9]*"))

    def _has_started(self) -> bool:
        """Return True once the program has been started; note from where it resumes."""
        new = [folder for folder in self._attempt_folders() if folder not in self._known]
        if not new:
            return False
        self._attempt = AttemptFolder(new[-1])
        with suppress(OSError, ValueError):  # it is being written, or gone already
            if self._origin is None:
                name = json.loads(self._attempt.note.read_text())["origin"]
                done = {each.name: each.passport.progress.done for each in self.checkpoints()}
                self._origin = done.get(name, 0.0)
        return read_times(self._attempt.note).program_started is not None

    def _is_time(self) -> bool:
        live = self.live() if self.end_progress < math.inf else None
        if live is not None:
            return live >= self.end_progress + (self._origin or 0.0)
        return time.monotonic() - self._started > self.end_seconds

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return list(psutil.Process(self._process.pid).children())
        return []

    def _kill(self) -> None:
        """Send KILL, as a node that is lost; raise SegmentError if something of it stays alive.

        A child of the segment is a guard (`program.guard`), which ends when all that it has started is gone.
        """
        guards = self._guards if self.saved else self._children()
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(guards, LEAVING_SECONDS)
        if alive:
            raise SegmentError(f"{self.run.name}: process {alive[0].pid} does not end; nothing more is tried")


# --- the process ---


def main(spec: str, segment: str, parent: str, left: str) -> int:
    """Return 0 if the segment has its record; 1, with the reason as the last line, if not."""
    guard.die_with(int(parent))
    try:
        assignment = read(Path(spec)).assignment
        job = Job(assignment.run, assignment.keys, int(segment), 1)
        with fs.os_errors(job.places.root):
            engine = engine_of(job.run, job.base)
            engine.states = partial(_list_and_return, engine.states, Path(left))  # type: ignore[method-assign]
            run_segment(job, engine)
    except UnbrokenError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def _list_and_return(
    states: Callable[[Task, When], list[HandedOver]], left: Path, task: Task, when: When
) -> list[HandedOver]:
    """Return the states; first list what the program wrote, once it is gone and nothing is moved yet."""
    if when is not When.WORKS:
        times = read_times(task.attempt_folder.note)
        begun = (times.program_started or 0.0) + (times.clock_ahead_seconds or 0.0)
        left.write_text(json.dumps(dict(_written_since(begun, task.attempt_folder.root))))
    return states(task, when)


def _written_since(begun: float, folder: Path) -> Iterator[tuple[str, list[int]]]:
    for name in fs.tree_files(folder):
        with suppress(FileNotFoundError):
            if not (folder / name).is_symlink() and (folder / name).stat().st_mtime > begun:
                yield str(name), identity(folder / name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
