"""Run one piece of a rehearsal: a segment that is ended in some way."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import psutil

from unbroken.errors import SegmentError
from unbroken.job.spec import path_of
from unbroken.program.contract import AttemptFolder
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.stage import Stage
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.progress import read_progress
from unbroken.store.record import read_record
from unbroken.store.run import RunSpec
from unbroken.store.times import read_times
from unbroken.system.file_events import FileEvents, Happened

POLL_SECONDS = 0.02
LEAVING_SECONDS = 60.0


class Way(Enum):
    """Name the way in which a piece ends."""

    WHOLE = "whole"
    STOP = "a polite stop"
    KILL = "a SIGKILL in mid-work"
    KILL_SAVE = "a SIGKILL in mid-save"
    END = "its end"
    CONTROL = "a wrong restore"


@dataclass
class Piece:
    """Run a segment; the fields below the line hold its outcome."""

    stage: Stage
    way: Way
    run: RunSpec
    segment: int
    saves: SaveWatch
    enough_seconds: float  # when it is given up
    end_progress: float = math.inf  # it is ended when its program has done so much
    end_seconds: float = math.inf  # or, of a program that does not say how far it is, so long after its start
    # ---
    is_met: bool = False  # it ended in its way; False if the program was done before, or the time was up
    is_out_of_time: bool = False
    kind: EndKind | None = None  # by its record: a segment that finds the goal reached makes no attempt
    said: str = ""  # why it failed
    met_file: str = ""  # the file of a save that was seen growing
    is_cut: bool = False  # the save was not over when the program was killed
    seconds: float = 0.0
    first: float | None = None  # the progress that it said first
    _origin: float | None = None
    _started: float = math.inf  # on the monotonic clock
    _attempt: AttemptFolder | None = None
    _guards: list[psutil.Process] = field(default_factory=list)

    def work(self) -> None:
        """Run the piece until it has ended in its way, or cannot."""
        self.stage.write_spec(self.run)
        self.saves.begin()
        self._known, began = set(self._attempt_folders()), time.monotonic()
        words = [sys.executable, "-m", "unbroken.rehearsal.segment_process", str(path_of(self.run.name))]
        words += [str(self.segment), str(os.getpid()), str(self.stage.left.resolve())]
        with FileEvents(self.stage.folder) as events, self.stage.log.open("wb") as log:
            self._process = subprocess.Popen(
                words, cwd=self.stage.folder, env=self.stage.environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
            try:
                self._watch(events, began)
            finally:
                self._kill()
            # The kill closes what was open.
            self.saves.note(event for event in events.next(0.0) if not event.what & Happened.CLOSED)
        self.seconds, self.is_cut = time.monotonic() - began, not self.saves.is_over(self.met_file)
        code = self._process.returncode
        if code == 0 and (record := read_record(self.stage.places.record(self.segment))):
            self.kind = record.kind
        elif code == 1:
            self.said = next(reversed(self.stage.log.read_text(errors="replace").splitlines()), "")
        self.met_file = Path(self.met_file).name

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

    # --- while it runs ---

    def _watch(self, events: FileEvents, began: float) -> None:
        while self._process.poll() is None:
            has_started, happened = self._has_started(), events.next(POLL_SECONDS)
            if has_started:  # what was put back before is no save
                self.saves.note(happened)
                self.first = self.live() if self.first is None else self.first
                self._guards = self._guards or self._children()
                self._started = min(self._started, time.monotonic())
            if has_started and self._is_time():
                if self.way is Way.KILL:
                    self.is_met = True
                    return
                self.end_progress = self.end_seconds = math.inf
                self._process.send_signal(signal.SIGUSR1)  # to stop; of a program that saves only then, to save
            if self.way is Way.KILL_SAVE and self.saves.writing:
                self._process.kill()  # at once, for a save may take some milliseconds
                self.met_file, self.is_met = self.saves.writing, True
                self.saves.note(events.next(0.0))
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
        guards = self._guards if self.met_file else self._children()
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(guards, LEAVING_SECONDS)
        if alive:
            raise SegmentError(f"{self.run.name}: process {alive[0].pid} does not end; nothing more is tried")
