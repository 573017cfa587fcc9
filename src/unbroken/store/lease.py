"""The lease: one writer per run, ever.

`results/<run>/lease/000007.json` is the claim of token 7.  The highest number holds the run.  Claiming means making
the next number's file, which exactly one process can do, so a take-over cannot remove another one's claim.  Works on
NFS: no locks, only exclusive creation.  The owner's heartbeat changes the file's time; a waiting job counts for how
many of its own polls it stays the same (`claim`).  An owner that slept and was replaced sees the higher number
(`confirm`) before it shows anything: the token is a fencing token.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.errors import FencedError, LeaseError, OutageError, StorageError, UnbrokenError
from unbroken.slurm.this_job import own_job_id
from unbroken.store.claim import STALE_POLLS, Claim, HolderWatch, Life, claim_path, life_of, read_claim
from unbroken.store.driver_start import START
from unbroken.system import disk, fs, host
from unbroken.system.clock import duration, utc_now

logger = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 10.0
# What the waiter's polls without a heartbeat take at least.
STALE_SECONDS = STALE_POLLS * HEARTBEAT_SECONDS
# A hand-over from one segment to the next is not logged, unless it takes longer.
LEAVING_SECONDS = 10.0


class Lease:
    """Hold a run for this process; released on leaving the `with` block."""

    def __init__(self, folder: Path, claim: Claim) -> None:
        self.folder = folder
        self.claim = claim
        # What this node's clock is ahead of the file server's, which all nodes share.
        self.clock_ahead_seconds = _ahead_seconds(claim_path(folder, claim.token))
        self._left = threading.Event()
        self.is_lost = False
        self._heart = threading.Thread(target=self._beat, name="lease-heartbeat", daemon=True)

    def confirm(self) -> None:
        """Raise FencedError if another process has the run by now, StorageError or OutageError if that is not known."""
        try:
            newest = _newest_token(self.folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StorageError(
                f"{self.folder}: gone; somebody moved, removed or linked the run's folder elsewhere while this job "
                "worked; nothing more was written",
                todo="put it back",
            ) from error
        except OSError as error:
            if error.errno in disk.OUTAGE_ERRNOS:
                raise OutageError(f"{self.folder}: {error.strerror}", todo=disk.PASSING) from error
            raise StorageError(f"{self.folder}: {error.strerror}") from error
        if newest != self.claim.token:
            self.is_lost = True
            raise FencedError(
                f"{self.folder}: this job (claim {self.claim.token}) was taken for dead and the run was taken over by "
                f"claim {newest}; nothing was written; the other job goes on"
            )

    def earlier_claims(self) -> list[Claim]:
        """Return the claims before this one that were not forgotten yet, oldest first."""
        return [read_claim(path) for path in claim_paths(self.folder) if int(path.stem) < self.claim.token]

    def forget_earlier(self) -> None:
        """Remove the earlier claims, once what their holders did is in the history; what stays does no harm."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                number = path.name.partition(".")[0]  # the files next to a claim have its number too
                if number.isdecimal() and int(number) < self.claim.token:
                    path.unlink(missing_ok=True)
            fs.remove_drafts(self.folder, fs.DRAFT_SECONDS)

    def __enter__(self) -> Lease:
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._heart.join()
        try:
            self.confirm()
        except (OSError, UnbrokenError):
            return
        path, text = claim_path(self.folder, self.claim.token), replace(self.claim, released_utc=utc_now()).text
        # A full disk must not hide the error that we may be leaving with, nor keep the run for a process that lives on.
        try:
            fs.write_atomic(path, text)
        except StorageError:
            with contextlib.suppress(OSError):
                fs.overwrite(path, text)

    def _beat(self) -> None:
        path = claim_path(self.folder, self.claim.token)
        while not self._left.wait(HEARTBEAT_SECONDS):
            # The file server may hang; if it lasts, another job takes over, which removes our file too.
            with contextlib.suppress(OSError):
                os.utime(path)
            try:
                self.confirm()
            except FencedError:
                return
            except (OSError, StorageError):
                continue


def take(
    folder: Path,
    segment: int,
    wait_seconds: float,
    *,
    check: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] = os.environ,
    mem_mb: int = 0,
    leaves_to: Callable[[Claim], bool] = lambda held: False,
) -> Lease:
    """Return the lease of a run, waiting up to `wait_seconds` for a live owner; LeaseError names that one then.

    `check` is called while waiting and may raise to give up.  `leaves_to` is asked about an owner whose heart was seen
    to beat, a few heartbeats after the first look: if it says yes, the wait ends.  `mem_mb`, the memory that
    the config gives, is noted.  Raise StorageError or OutageError if the disk is in the way.
    """
    began = time.monotonic()
    watch, told = HolderWatch(HEARTBEAT_SECONDS), list[str]()
    with fs.os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            held, reason = current_claim(folder)
            if held is not None and not reason:
                reason = watch.why_free(claim_path(folder, held.token), held)
            if held is None or reason:
                lease = _claim_next(folder, held, segment, environment, mem_mb)
                if lease is None:
                    continue
                if held is not None and not held.released_utc:
                    logger.warning("took the run over from %s: %s", held.describe(), reason)
                return lease
            remark = watch.remark(held)
            # The record of the segment before is there, so the job that owns the run for that one is about to end.
            is_leaving = held.segment < segment and time.monotonic() < began + LEAVING_SECONDS
            _log_news(told, held, remark, is_leaving=is_leaving)
            if time.monotonic() >= began + wait_seconds:
                todo = remark or "let it finish (or stop that job)"
                raise LeaseError(f"{folder.parent}: held, {held.describe()}; {todo} and start again")
            if watch.has_beaten and leaves_to(held):
                line = f"{folder.parent}: held, {held.describe()}, which is at work"
                raise LeaseError(line)
            check()
            time.sleep(min(0.5, HEARTBEAT_SECONDS))


def take_if_idle(folder: Path, segment: int) -> Lease:
    """Return the lease of a run on which no process works; wait until it is clear whether an owner elsewhere lives."""
    held, _ = current_claim(folder)
    is_seen = held is not None and life_of(held) is not Life.OUT_OF_SIGHT
    return take(folder, segment, 0.0 if is_seen else STALE_SECONDS + 30.0, leaves_to=lambda held: True)


def _log_news(told: list[str], held: Claim, remark: str, *, is_leaving: bool) -> None:
    """Log what is to be said of the owner that a job waits for, each line once."""
    line = f"waiting: the run is held, {held.describe()}; only one job may write it"
    news = [line] * (not told and bool(remark or not is_leaving)) + [remark] * (remark not in ("", *told))
    for each in news:
        logger.info(each)
    told += news


def current_claim(folder: Path) -> tuple[Claim | None, str]:
    """Return the owner of the run, and why it is free if one look shows that; else '', as where it takes more looks."""
    while True:
        try:
            held = newest_claim(folder)
        except FileNotFoundError:
            time.sleep(0.01)  # another process took the next number in between and removed this one
            continue
        if held is None:
            return None, "never held"
        if held.released_utc:
            return held, "released"
        return held, "its process is gone" if life_of(held) is Life.GONE else ""


def long_silence(folder: Path, held: Claim) -> str:
    """Return `no sign of life for 3.5 h` of an owner that cannot be seen from here; '' if that is not so.

    By its file's time, which a clock may have corrupted: for people to read, and never a reason to take over.
    """
    try:
        silent = fs.now_of(folder) - claim_path(folder, held.token).stat().st_mtime
    except FileNotFoundError:  # it was replaced in this moment
        return ""
    is_hidden = not held.released_utc and life_of(held) is Life.OUT_OF_SIGHT
    return f"no sign of life for {duration(silent)}" if is_hidden and silent > STALE_SECONDS else ""


def newest_claim(folder: Path) -> Claim | None:
    """Return the claim that counts, None if there is none; errors as of `read_claim`."""
    token = _newest_token(folder) if folder.is_dir() else 0
    return read_claim(claim_path(folder, token)) if token else None


def claim_paths(folder: Path) -> list[Path]:
    """Return the files of all claims that were not forgotten yet, oldest first."""
    return sorted(path for path in folder.glob("*.json") if path.stem.isdecimal())


def _claim_next(
    folder: Path, held: Claim | None, segment: int, environment: Mapping[str, str], mem_mb: int
) -> Lease | None:
    token = 1 + (held.token if held else 0)
    claim = Claim(
        token,
        segment,
        platform.node(),
        os.getpid(),
        host.process_start(os.getpid()),
        host.pid_namespace(),
        host.boot_id(),
        own_job_id(environment),
        getpass.getuser(),
        utc_now(),
        slurm_node=environment.get("SLURMD_NODENAME", ""),
        slurm_cluster=environment.get("SLURM_CLUSTER_NAME", ""),
        mem_mb=mem_mb,
        start=environment.get(START, ""),
    )
    if not fs.create_exclusive(claim_path(folder, token), claim.text):
        return None
    if _newest_token(folder) != token:  # we were so slow that this number was taken, given back and removed
        claim_path(folder, token).unlink(missing_ok=True)
        return None
    return Lease(folder, claim)


def _ahead_seconds(path: Path) -> float:
    """Return what this clock is ahead of the file server's, by a file that was made just now."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _newest_token(folder: Path) -> int:
    names = (name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json"))
    return max((int(name) for name in names if name.isdecimal()), default=0)
