"""The owner of a run: its claim, a file of the lease, and whether its process lives.

This machine, Slurm and the owner's heartbeat say that.  No clock decides, here or there, and no sleep of the one who
waits: an owner that cannot be seen from here is gone when so many polls in a row have found its claim unchanged, and
the waiter itself has made each of them.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from unbroken.errors import LeaseError
from unbroken.slurm.queue import ended
from unbroken.store.layout import Format, known_fields
from unbroken.system import host
from unbroken.system.clock import unix_seconds

FORMAT = Format()
# More than a claim has: it can be rewritten in its place.
CLAIM_BYTES = 1024
# Longer than a file server's usual hang, far shorter than a night.
STALE_POLLS = 12
# Two machines may share a name (localhost), so the heart of the other one is given a chance to beat.
RESTARTED_POLLS = 3
# How often a waiting job asks Slurm whether the owner's job still lives.
QUESTION_SECONDS = 30.0


@dataclass(frozen=True)
class Claim:
    """Identify the owner of a run, or a former one: the content of a file of the lease."""

    token: int
    segment: int
    host: str
    pid: int
    pid_start: str
    pid_namespace: str
    boot_id: str
    slurm_job: str
    user: str
    started_utc: str
    released_utc: str = ""
    slurm_node: str = ""
    slurm_cluster: str = ""  # a job's number means something there alone
    mem_mb: int = 0
    start: str = ""  # the start of snakemake that its attempt belongs to

    @property
    def of_attempt(self) -> dict[str, Any]:
        """Return what the history says of its attempt too, by the same names."""
        names = ("token", "host", "pid", "slurm_job", "slurm_node", "slurm_cluster", "mem_mb", "start")
        return {name: getattr(self, name) for name in names}

    @property
    def text(self) -> str:
        """Return what its file holds: of one size, whether it is released or not."""
        return FORMAT.text(vars(self)).rstrip().ljust(CLAIM_BYTES) + "\n"

    def describe(self) -> str:
        """Return a description of the owner for messages."""
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        return f"segment {self.segment} by process {self.pid} on {self.host}{job} since {self.started_utc}"


def claim_path(folder: Path, token: int) -> Path:
    """Return the file of a claim."""
    return folder / f"{token:06d}.json"


def read_claim(path: Path) -> Claim:
    """Return the claim in a file; raise LeaseError if it cannot be read, FileNotFoundError if it was just replaced."""
    try:
        return Claim(**known_fields(Claim, FORMAT.read(path)))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LeaseError(f"{path}: {error.strerror}; it says who holds the run") from error
    except (ValueError, TypeError) as error:
        raise LeaseError(
            f"{path}: not a claim of unbroken ({error}); if no job of this run lives, remove it"
        ) from error


class Life(Enum):
    """Name what this machine shows of an owner's process."""

    RUNS = "runs"
    STOPPED = "stopped"
    GONE = "gone"
    OUT_OF_SIGHT = "on another machine, or in another container"


def life_of(claim: Claim) -> Life:
    """Return what this machine shows of the process that made a claim."""
    is_here = claim.host == platform.node() and claim.boot_id == host.boot_id()
    if not is_here or claim.pid_namespace != host.pid_namespace() or not claim.pid_start:
        return Life.OUT_OF_SIGHT
    if host.process_start(claim.pid) == claim.pid_start:
        return Life.STOPPED if host.is_stopped(claim.pid) else Life.RUNS
    return Life.OUT_OF_SIGHT if host.is_hidden(claim.pid) else Life.GONE


class HolderWatch:
    """Poll an owner's claim, at most every `interval_seconds`, in which one heartbeat must have come."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._seen: tuple[str, int, int] | None = None
        self._silent_polls = 0
        self._next_poll = self._next_question = 0.0
        self.has_beaten = False

    def why_free(self, path: Path, claim: Claim) -> str:
        """Return why the run of an owner that did not release it is free; '' as long as that is not known."""
        self._poll(path)
        life = life_of(claim)
        if life is Life.GONE:
            return "its process is gone"
        if life is not Life.OUT_OF_SIGHT:
            return ""  # however silent it is, and whatever Slurm says: its process may write
        is_restarted = claim.host == platform.node() and claim.boot_id != host.boot_id()
        if is_restarted and self._silent_polls >= RESTARTED_POLLS:
            return "its machine was restarted"
        if self._silent_polls >= STALE_POLLS:
            return f"no heartbeat in {self._silent_polls} looks, one every {self._interval_seconds:g} s"
        return self._ask_slurm(claim)

    def remark(self, claim: Claim) -> str:
        """Return what to type about an owner on this machine that does nothing and would block for ever; else ''."""
        hangs = f"process {claim.pid} lives, but sends no heartbeat; if it hangs, type kill -KILL {claim.pid}"
        return if_stopped(claim) or (hangs if self._silent_polls >= STALE_POLLS else "")

    def _poll(self, path: Path) -> None:
        if time.monotonic() < self._next_poll:
            return
        try:
            state = path.stat()
        except OSError:  # replaced in this moment, or the file server does not answer: that was no look at it
            return
        seen = (path.name, state.st_mtime_ns, state.st_ctime_ns)
        self.has_beaten = self._seen is not None and seen != self._seen
        self._silent_polls = self._silent_polls + 1 if seen == self._seen else 0
        self._seen = seen
        # From the answer on: a file server that hung for minutes is no reason to hurry now.
        self._next_poll = time.monotonic() + self._interval_seconds

    def _ask_slurm(self, claim: Claim) -> str:
        """Return why Slurm says that the job is over; '' for a lost node, whose processes may still write."""
        if not claim.slurm_job or time.monotonic() < self._next_question:
            return ""
        self._next_question = time.monotonic() + QUESTION_SECONDS
        found = ended(claim.slurm_job, unix_seconds(claim.started_utc), claim.slurm_cluster)
        return f"its job ended as {found.ending}" if found and found.is_certainly_over else ""


def if_stopped(claim: Claim) -> str:
    """Return what to type about an owner on this machine that a signal has stopped; '' if none has."""
    if life_of(claim) is not Life.STOPPED:
        return ""
    todo = f"kill -CONT {claim.pid} and it goes on, or kill -KILL {claim.pid} and the run is free"
    return f"process {claim.pid} is stopped (SIGSTOP, or Ctrl-Z); type {todo}"
