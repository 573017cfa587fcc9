"""One piece of a rehearsal: a segment in a new folder, with TMPDIR and HOME of its own, ended in some way."""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import psutil

from unbroken.errors import SegmentError
from unbroken.job.spec import path_of
from unbroken.program import guard
from unbroken.program.contract import AttemptFolder
from unbroken.rehearsal.outputs import OutputWatch
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.stage import SEGMENT_LOG, Stage
from unbroken.runs import driver_start
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import read_progress
from unbroken.runs.record import read_record
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.segment.job import STARTING
from unbroken.system.file_events import FileEvents

LOOK_SECONDS = 0.05
QUICK_LOOK_SECONDS = 0.01
LEAVING_SECONDS = 60.0
PROGRAMS_SECONDS = 0.2
# So long after a save a kill costs some work.
LOST_SECONDS = 0.3
# So often a save may be over before it is met; then the kill comes where one has just been.
MOST_MISSES = 2


class Way(Enum):
    """How a piece ends."""

    WHOLE = "whole"
    STOP = "a polite stop"
    KILL = "a SIGKILL in mid-work"
    KILL_SAVE = "a SIGKILL in mid-save"
    END = "its end"
    CONTROL = "a wrong restore"


@dataclass
class Ended:
    """What came of a piece."""

    way: Way
    is_met: bool  # it ended in that way; False if the program was done before, or the time was up
    is_out_of_time: bool = False
    # By its record: a segment that finds the goal reached, by a piece that was killed right after, makes no attempt.
    kind: EndKind | None = None
    said: str = ""  # the last line of a segment that failed
    met_file: str = ""  # the file that was seen growing
    is_cut: bool = False  # its save was not over when the program was stopped dead
    seconds: float = 0.0
    has_saved: bool = False  # a save was seen to be complete
    is_behind: bool = False  # it said less progress than it was given


@dataclass
class Piece:
    """A segment at work; `enough_seconds` is when it is given up."""

    stage: Stage
    folder: Path
    way: Way
    run: Run
    enough_seconds: float
    saves: SaveWatch
    says_progress: bool = False  # it is known to say how far it is while it works
    stop_at: float | None = None  # from this progress on it is told to stop, before its time is up
    # So long after its start it is ended where nothing is saved before it leaves, and nothing says how far it is.
    quiet_seconds: float = 0.0
    segment: int = 1
    _process: subprocess.Popen[bytes] = field(init=False)
    origin: float | None = None  # where it went on, as its segment says; None if it says nothing
    began_work_seconds: float | None = None  # after the start of the piece
    _done_before: float = 0.0
    first: tuple[float, float] | None = None  # when, and what, it first said of its progress
    _has_saved: bool = False
    _saved_at: list[float] = field(default_factory=list)  # the last two saves
    _programs: list[psutil.Process] = field(default_factory=list)
    _looked_at: float = 0.0
    _has_told: bool = False
    outputs: OutputWatch = field(init=False)

    def play(self) -> Ended:
        """Works until it has ended in its way, or cannot."""
        began = time.monotonic()
        self.places.root.mkdir(parents=True, exist_ok=True)
        self._done_before, self.outputs = self.done(), OutputWatch(self.folder)
        log = self.folder.parent / SEGMENT_LOG
        with FileEvents(self.folder) as events, log.open("wb") as output:
            words = [sys.executable, "-m", "unbroken.rehearsal.segment_process"]
            words += [str(path_of(self.run.name)), str(self.segment), str(os.getpid())]
            self._process = subprocess.Popen(
                words, cwd=self.folder, env=self._environment(), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
            try:
                ended = self._watch(events, log, began)
            finally:
                self._kill()
        lines = log.read_text(errors="replace").splitlines()
        self.origin = _origin_in(lines)
        if not ended.is_met or self._process.returncode not in (0, -signal.SIGKILL):
            told = [line for line in lines if line.startswith("stopped: ")]
            ended.said = next(reversed(told or lines), "")
        if self._process.returncode == 0 and (record := read_record(self.places.record(self.segment))):
            ended.kind = record.kind
        ended.seconds, ended.has_saved = time.monotonic() - began, self._has_saved
        return ended

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run.name, self.folder)

    def attempts(self) -> list[Attempt]:
        """Those of the run so far."""
        return History(self.places.history).attempts()

    def done(self) -> float:
        """How far the newest checkpoint is."""
        store = Store(self.places.checkpoints)
        newest = next(reversed(store.readable()), None) if self.places.checkpoints.is_dir() else None
        return newest.passport.progress.done if newest else 0.0

    def live(self) -> float | None:
        """How far the program at work says it is."""
        folders = sorted(self.places.work.glob("[0-9]*")) if self.places.work.is_dir() else []
        try:
            told = read_progress(AttemptFolder(folders[-1]).progress) if folders else None
        except (OSError, ValueError):
            return None
        return told.done if told else None

    # --- at work ---

    def _watch(self, events: FileEvents, log: Path, began: float) -> Ended:
        has_started = False
        while self._process.poll() is None:
            # Before the events: what was put back before the program started is no save.
            had_started, has_started = has_started, has_started or STARTING in log.read_text(errors="replace")
            happened = events.next(QUICK_LOOK_SECONDS if self._saved_at else LOOK_SECONDS)
            if had_started:  # else some of it may have been before the start
                self.outputs.note(happened)
            seen = self.saves.note(happened)
            now = time.monotonic()
            if has_started:
                self._note_pace(now - began)
            if has_started and self.way is Way.KILL_SAVE:
                self._look_for_programs(now)
                name = seen.writing or seen.unseen
                if name and (ended := self._kill_in_save(events, name)):
                    return ended
            self._has_saved |= has_started and bool(seen.complete_names)
            if has_started and seen.complete_names:
                self._saved_at = [*self._saved_at[-1:], now]
            if has_started and self.way is Way.KILL and self._is_mid_work(now, now - began):
                self._kill()
                return Ended(self.way, is_met=True)
            if self.way is Way.CONTROL and self.first is not None and self.first[1] < self._done_before:
                return Ended(self.way, is_met=False, is_behind=True)
            if self._saves_only_if_told(now - began):
                self.saves.misses, self._has_told = MOST_MISSES, True  # there is no other save to be cut
                self._process.send_signal(signal.SIGUSR1)
            if self.stop_at is not None and (self.live() or 0.0) >= self.stop_at:
                self.stop_at = None
                self._process.send_signal(signal.SIGUSR1)
            if now - began > self.enough_seconds:
                return Ended(self.way, is_met=False, is_out_of_time=True)
        self.outputs.note(events.next(0.0))
        is_met = self.way in (Way.WHOLE, Way.STOP, Way.END, Way.CONTROL) and self._process.returncode == 0
        return Ended(self.way, is_met)

    def _note_pace(self, seconds: float) -> None:
        """Where a straight line through the first and the last word of its progress begins, it began to work."""
        is_wanted = self.first is None or self.way is Way.WHOLE
        live = self.live() if is_wanted else None
        if not live:
            return
        if self.first is None:
            self.first = seconds, live
        first, done = self.first
        if live > done:
            self.began_work_seconds = max(0.0, first - done * (seconds - first) / (live - done))

    def _saves_only_if_told(self, seconds: float) -> bool:
        is_at_end = self.saves.files.at_end and not self.saves.is_as_declared
        return self.way is Way.KILL_SAVE and is_at_end and not self._has_told and seconds > self.quiet_seconds

    def _is_mid_work(self, now: float, seconds: float) -> bool:
        """It has saved, and worked since, so that some work is lost; all of it where it saves only when it leaves."""
        if self.says_progress and self.first is None:  # what it says is compared with where it was to go on
            return False
        if self.saves.files.at_end:
            live = self.live()
            return seconds > self.quiet_seconds if live is None else live > self._done_before
        if not self._saved_at:
            return False
        before, last = self._saved_at[0], self._saved_at[-1]
        usual = (last - before) / 2 if last > before else LOST_SECONDS
        return now - last > min(LOST_SECONDS, usual)

    def _kill_in_save(self, events: FileEvents, name: str) -> Ended | None:
        """Stops the program dead; kills it if the save is not over by then, or if too many were."""
        self._send(signal.SIGSTOP)
        self.saves.note(events.next(0.0))
        is_over = self.saves.is_complete(name)
        if is_over and self.saves.misses < MOST_MISSES:
            self.saves.misses += 1
            self._send(signal.SIGCONT)
            return None
        self._process.kill()
        self._send(signal.SIGKILL)
        return Ended(Way.KILL_SAVE, is_met=True, met_file=name, is_cut=not is_over)

    def _send(self, number: signal.Signals) -> None:
        """To the program at once: a save may take less than a millisecond."""
        for process in self._programs:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _look_for_programs(self, now: float) -> None:
        """All that the segment started, without the guards, which see to it that nothing stays."""
        if now - self._looked_at < PROGRAMS_SECONDS:
            return
        self._looked_at = now
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if guard.__file__ not in process.cmdline():
                        found.append(process)
        self._programs = found

    def _kill(self) -> None:
        """KILL, as a node that is lost; SegmentError if something of it stays alive."""
        family: list[psutil.Process] = []
        with suppress(psutil.Error):
            family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(family, LEAVING_SECONDS)
        if alive:
            raise SegmentError(f"{self.run.name}: process {alive[0].pid} does not end; nothing more is tried")

    def _environment(self) -> dict[str, str]:
        """Ours, but what the program may have left elsewhere: HOME, TMPDIR and what follows them are new and empty.

        Packages that somebody installed for himself are found all the same.
        """
        own: Mapping[str, str] = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("UNBROKEN_", "XDG_CACHE", "XDG_DATA_HOME", "XDG_STATE"))
        }
        places = {name: str((self.folder.parent / "tmp").resolve()) for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR")}
        packages = {"PYTHONUSERBASE": site.getuserbase(), "R_LIBS_USER": os.environ.get("R_LIBS_USER", "")}
        return {
            **{name: value for name, value in packages.items() if value},
            **own,
            **places,
            "HOME": str((self.folder.parent / "home").resolve()),
            driver_start.START: f"rehearsal-{self.stage.count}",
        }


def reason_of_end(ended: Ended, attempts: Sequence[Attempt]) -> str:
    """Return what a piece that ended otherwise than it should has said last."""
    said = ended.said.removeprefix("stopped: ")
    return said or (attempts[-1].line() if attempts else "") or "it says nothing"


_ORIGIN = re.compile(r"resuming from .* \((\S+) |saved from the killed attempt \d+: (\S+) ")


def _origin_in(lines: list[str]) -> float | None:
    """What a segment's log says of the checkpoint that it went on from, also of one that was killed later."""
    found = [match for line in lines if (match := _ORIGIN.search(line))]
    return float(found[-1][1] or found[-1][2]) if found else None
