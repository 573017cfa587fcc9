"""Keep the environment contract in a training program; standard library alone.

The file docs/contract.md describes the variables.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from unbroken.program.contract import HANDOVER_FILE, READY, Kind, Verdict, write_verdict
from unbroken.slurm.this_job import SlurmJob
from unbroken.store.checkpoint import FILE_NAME
from unbroken.store.history import EndCause, EndKind
from unbroken.store.progress import Handover

# A program that is this far ahead of the process that publishes would only fill the disk.
MAX_WAITING = 2
WAIT_POLL_SECONDS = 0.05


def say(line: str) -> None:
    """Write a line to the screen."""
    print(f"unbroken: {line}", flush=True)


@dataclass(frozen=True)
class Contract:
    """Hold what this process received at its start; `deadline` is on the monotonic clock."""

    run: str
    resume: Path | None
    save: Path
    deadline: float
    stop: Path | None
    progress: Path
    save_seconds: float
    deadline_file: DeadlineFile = field(default_factory=lambda: DeadlineFile())
    goal: float | None = None
    goal_unit: str | None = None
    mtbf_hours: float | None = None

    @property
    def live(self) -> Path:
        """Return the folder of the files to look at while the training runs."""
        return Path(os.environ.get("UNBROKEN_LIVE") or self.progress.parent / "live")


def read_contract(environment: Mapping[str, str] = os.environ) -> Contract | None:
    """Return the contract, or None if unbroken did not start this process."""
    if not environment.get("UNBROKEN_SAVE"):
        return None
    resume, goal = environment.get("UNBROKEN_RESUME"), environment.get("UNBROKEN_GOAL")
    mtbf_hours = environment.get("UNBROKEN_MTBF_HOURS")
    # Converted once: the wall clock may jump later, and this moment must not.
    left = float(environment.get("UNBROKEN_DEADLINE") or math.inf) - time.time()
    return Contract(
        run=environment["UNBROKEN_RUN"],
        resume=Path(resume) if resume else None,
        save=Path(environment["UNBROKEN_SAVE"]),
        deadline=time.monotonic() + left,
        deadline_file=DeadlineFile(environment.get("UNBROKEN_DEADLINE_FILE"), environment.get("UNBROKEN_DEADLINE")),
        stop=Path(environment["UNBROKEN_STOP"]),
        progress=Path(environment["UNBROKEN_PROGRESS"]),
        goal=float(goal) if goal else None,
        goal_unit=environment.get("UNBROKEN_GOAL_UNIT") or None,
        save_seconds=float(environment["UNBROKEN_SAVE_SECONDS"]),
        mtbf_hours=float(mtbf_hours) if mtbf_hours else None,
    )


def deadline_by_hand(job: SlurmJob | None, environment: Mapping[str, str] = os.environ) -> float:
    """Return the end of the Slurm job or UNBROKEN_DEADLINE, whichever comes first, on the monotonic clock."""
    told = environment.get("UNBROKEN_DEADLINE")
    job_end = job.end_here_unix if job else None
    ends = min(float(told) if told else math.inf, math.inf if job_end is None else job_end)
    return time.monotonic() + ends - time.time()


def manifest_of(resume: Path) -> dict[str, Any]:
    """Return the manifest of the checkpoint to resume from; an empty one where it cannot be read."""
    try:
        manifest = json.loads((resume / FILE_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


class DeadlineFile:
    """Read the file that is written again when the job's end is moved."""

    def __init__(self, path: str | None = None, told: str | None = None) -> None:
        self._path, self._told = path, told

    def moved(self) -> float | None:
        """Return the new deadline on the monotonic clock; None if it has not changed since the last call."""
        if not self._path:
            return None
        try:
            text = Path(self._path).read_text().strip()
            left = float(text) - time.time()
        except (OSError, ValueError):
            return None
        if text == self._told:
            return None
        self._told = text
        return time.monotonic() + left


_TOLD_BY = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
_LOOK_SECONDS = 0.2


class Signals:
    """Note that USR1, TERM or INT (Ctrl-C) came, instead of dying of it; a second INT interrupts as usual.

    Install it before other processes are started: they inherit it, still die of TERM, and survive the others.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.resumed_at = -math.inf  # on the monotonic clock, when this process was last stopped and continued
        self._is_interrupted = False
        self._owner = os.getpid()
        self._next_look = -math.inf

    def install(self) -> None:
        for number in _TOLD_BY:
            signal.signal(number, self._note)
        signal.signal(signal.SIGCONT, self._note_resumed)
        # At its end Python takes its handlers back, and a launcher may still be repeating what it has to say.
        atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)

    def heard(self) -> bool:
        """Return True if one of them came; call it between two steps, in the main thread.

        Where Triton compiles a kernel for a GPU, its LLVM takes the handlers of the process without Python's knowledge
        (llvm/lib/Support/Unix/Signals.inc): TERM and INT come back to us, a USR1 is lost.  So they are taken back.
        """
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            for number in _TOLD_BY:
                if signal.getsignal(number) == self._note:  # else Python code has replaced it
                    signal.signal(number, self._note)
        return self.has_come

    def _note_resumed(self, number: int, frame: FrameType | None) -> None:
        self.resumed_at = time.monotonic()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            if number == signal.SIGINT and self._is_interrupted:
                raise KeyboardInterrupt
            self.has_come = True
            self._is_interrupted = self._is_interrupted or number == signal.SIGINT
        elif number == signal.SIGTERM:  # a forked helper, whose parent ends it so and then waits for its death
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def check_thread() -> None:
    """Raise RuntimeError outside of the main thread: only there Python gets the signals that ask a training to leave.

    To be called before anything is taken, such as the lease of a folder.
    """
    here = threading.current_thread()
    if here is not threading.main_thread():
        raise RuntimeError(
            f"a training is made in the thread {here.name!r}; allowed: the main thread, because Python hears no "
            "signals in another one"
        )


class SavePlace:
    """Take checkpoints; this base class serves a rank that hands nothing over: the first rank does the rest."""

    @property
    def has_room(self) -> bool:
        """Return True if one more checkpoint may be handed over."""
        return True

    def new_draft(self) -> Path:
        """Make a new, empty folder to write one checkpoint into."""
        raise NotImplementedError

    def hand_over(self, draft: Path, handover: Handover) -> object:
        """Give the draft away in one step; it must not be touched any more."""
        raise NotImplementedError

    def reject(self, reason: str) -> Path | None:
        """Reject the checkpoint that was loaded; return the one before if this process must resume from it."""
        return None

    def note(self, moment: str) -> None:
        """Note that this happens now (a name of `store.times.Times`)."""

    def note_end(self, kind: EndKind, message: str = "", cause: EndCause | None = None) -> None:
        """Note how this process ends; of several ends the first counts."""

    def close(self) -> None:
        """Let others write here."""


class Outbox(SavePlace):
    """Pass checkpoints through a folder to the process that started us, which does and records all the rest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    @property
    def has_room(self) -> bool:
        return sum(name.endswith(READY) for name in os.listdir(self.folder)) < MAX_WAITING

    def new_draft(self) -> Path:
        self._count += 1
        draft = self.folder / f"draft-{self._count:06d}"
        draft.mkdir()
        return draft

    def hand_over(self, draft: Path, handover: Handover) -> None:
        (draft / HANDOVER_FILE).write_text(json.dumps(handover.to_json(), indent=1) + "\n")
        draft.rename(self.folder / f"{self._count:06d}{READY}")


def give_verdict(kind: Kind, message: str, environment: Mapping[str, str] = os.environ) -> None:
    """Report to the process that started us, if there is one that listens."""
    if path := environment.get("UNBROKEN_VERDICT"):
        write_verdict(Path(path), Verdict(kind, message))


def end_as_failed(kind: Kind, message: str, place: SavePlace | None, clean_up: Callable[[], None]) -> NoReturn:
    """End this process without saving, in one line."""
    give_verdict(kind, message)
    if place:
        place.note_end(EndKind.FAILED, message, EndCause.DIVERGED if kind is Kind.HOPELESS else None)
    clean_up()
    sys.exit(f"unbroken: {message}")
