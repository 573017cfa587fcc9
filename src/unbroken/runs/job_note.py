"""What the inside of a job tells the process around it: that its work has begun, or why it never did.

In a file without a name (memfd_create(2)), because the disk may be what is full.  The process around names it by a
variable; where there is none, or another PID namespace lies between, nothing is told and nothing is lost: the history
says the same of all that could write into it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from unbroken.errors import AbsentFileError, InterruptedSegment, LeaseError, OutageError, StorageError, UnbrokenError

FILE = "UNBROKEN_JOB_NOTE"
# When (time.monotonic(), which all processes of a node share) the process around stops waiting for what is missing.
GIVE_UP = "UNBROKEN_GIVE_UP_AT"
_BEGUN = "begun"


class BeforeWork(Enum):
    """Why the work of an attempt never began."""

    REFUSED = "refused"  # the same again brings the same
    UNAVAILABLE = "unavailable"  # a disk, a file: it may pass by itself
    NEVER_RAN = "never ran"  # Slurm says that the job is over, and nothing of us ran in it or could leave a line
    HELD = "held"  # another job does this run's work, or this one was told to leave while it waited
    STOPPED = "stopped"  # the run had stopped before; no attempt was made


# What a job's exit code says where its disk takes nothing; the first two are EX_CONFIG and EX_TEMPFAIL of sysexits.h.
_EXIT_CODES = {BeforeWork.REFUSED: 78, BeforeWork.UNAVAILABLE: 75, BeforeWork.HELD: 83, BeforeWork.STOPPED: 84}


@dataclass(frozen=True)
class JobNote:
    """All that was told so far; the rest is of the last refusal.

    `since` is when (time.monotonic()) what is missing was first missed, where the inside has waited for it.
    """

    has_begun: bool = False
    why: BeforeWork | None = None
    message: str = ""
    since: float | None = None


def kind_of(error: UnbrokenError) -> BeforeWork:
    """What an error means if it comes before the work."""
    if isinstance(error, LeaseError | InterruptedSegment):
        return BeforeWork.HELD
    return BeforeWork.UNAVAILABLE if isinstance(error, StorageError | AbsentFileError) else BeforeWork.REFUSED


def tell_begun(environment: Mapping[str, str] = os.environ) -> None:
    """The work begins."""
    _add({_BEGUN: True}, environment)


def tell_refused(error: UnbrokenError, environment: Mapping[str, str] = os.environ) -> None:
    """The process ends by this error."""
    since = error.since if isinstance(error, OutageError) else None
    _add({"why": kind_of(error).value, "message": str(error), "since": since}, environment)


def give_up_at(environment: Mapping[str, str] = os.environ) -> float | None:
    """When (time.monotonic()) the process around stops waiting, if it waits already."""
    return float(text) if (text := environment.get(GIVE_UP)) else None


def exit_code_for(why: BeforeWork | None, code: int) -> int:
    """The exit code of a job whose command ended so."""
    return code if why is None else _EXIT_CODES[why]


def said_by_exit_code(code: int) -> BeforeWork:
    """The same read back, of a job that left nothing else."""
    return next((why for why, known in _EXIT_CODES.items() if known == code), BeforeWork.NEVER_RAN)


class NoteFile:
    """The file without a name, held by the process around; open it with `with`."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("unbroken-job-note")

    @property
    def variable(self) -> dict[str, str]:
        """What the process inside is to find in its environment."""
        return {FILE: f"/proc/{os.getpid()}/fd/{self._descriptor}"}

    def read(self) -> JobNote:
        """What was told until now."""
        text = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0).decode(errors="replace")
        told = [data for line in text.splitlines() if (data := _parsed(line))]
        refusals = [data for data in told if "why" in data]
        has_begun = any(data.get(_BEGUN) for data in told)
        if not refusals:
            return JobNote(has_begun)
        last = refusals[-1]
        since = last.get("since")
        return JobNote(
            has_begun,
            BeforeWork(last["why"]),
            str(last["message"]),
            since if isinstance(since, float) else None,
        )

    def __enter__(self) -> NoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _add(data: Mapping[str, object], environment: Mapping[str, str]) -> None:
    path = environment.get(FILE, "")
    with contextlib.suppress(OSError):
        if path and Path(path).exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, (json.dumps(data) + "\n").encode())
            finally:
                os.close(descriptor)


def _parsed(line: str) -> dict[str, object]:
    try:
        data = json.loads(line)
        return data if isinstance(data, dict) else {}
    except ValueError:  # just being written
        return {}
