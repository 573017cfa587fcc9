"""Pass notes from the process of a segment to its job: that its work has begun, and how it ended.

The notes are in a file without a name (memfd_create(2)), because the disk may be full.  The job names it by a variable.
Without one, or with another PID namespace in between, nothing is passed and nothing is lost: the history has the same
of every attempt that could write into it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from unbroken.errors import AbsentFileError, InterruptedSegment, LeaseError, StorageError, UnbrokenError
from unbroken.store.history import EndKind, SegmentEnd

FILE = "UNBROKEN_JOB_NOTE"
_BEGUN, _END = "begun", "end"
# What a job's exit code says where its disk takes nothing; the first two are EX_CONFIG and EX_TEMPFAIL of sysexits.h.
_EXIT_CODES = {EndKind.REFUSED: 78, EndKind.UNAVAILABLE: 75, EndKind.HELD: 83, EndKind.STOPPED: 84}


def end_before_work(error: UnbrokenError) -> SegmentEnd:
    """Return the end of an attempt that an error kept from its work."""
    kind = EndKind.UNAVAILABLE if isinstance(error, StorageError | AbsentFileError) else EndKind.REFUSED
    kind = EndKind.HELD if isinstance(error, LeaseError | InterruptedSegment) else kind
    return SegmentEnd(kind=kind, message=error.text, log=error.log, todo=error.todo)


def tell_begun(environment: Mapping[str, str] = os.environ) -> None:
    """Note for the job that the work begins."""
    _add({_BEGUN: True}, environment)


def tell_end(end: SegmentEnd, environment: Mapping[str, str] = os.environ) -> None:
    """Note for the job how the attempt ended; of several ends of one process the first counts."""
    _add({_END: end.to_json()}, environment)


def tell_refused(error: UnbrokenError, environment: Mapping[str, str] = os.environ) -> None:
    """Note for the job that the process ends by this error."""
    tell_end(end_before_work(error), environment)


def exit_code_for(kind: EndKind, code: int) -> int:
    """Return the exit code of a job whose attempt ended so and whose process ended with this code."""
    return _EXIT_CODES.get(kind, code)


def said_by_exit_code(code: int) -> EndKind:
    """Return the same read back, of a job that left nothing else."""
    return next((kind for kind, known in _EXIT_CODES.items() if known == code), EndKind.NEVER_RAN)


class NoteFile:
    """The file without a name, held by the job; open it with `with`."""

    def __enter__(self) -> NoteFile:
        self._descriptor = os.memfd_create("unbroken-job-note")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def variable(self) -> dict[str, str]:
        """Return what the segment's process must find in its environment."""
        return {FILE: f"/proc/{os.getpid()}/fd/{self._descriptor}"}

    @property
    def has_begun(self) -> bool:
        """Return True once the work has begun."""
        return bool(self._said().get(_BEGUN))

    @property
    def end(self) -> SegmentEnd | None:
        """Return how the attempt ended; None if its process did not say it."""
        end = self._said().get(_END)
        return SegmentEnd.parse(end) if end else None

    def _said(self) -> dict[str, Any]:
        text = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0).decode(errors="replace")
        said: dict[str, Any] = {}
        for line in reversed(text.splitlines()):
            with suppress(ValueError):  # just being written
                said |= json.loads(line)
        return said


def _add(data: Mapping[str, object], environment: Mapping[str, str]) -> None:
    if path := environment.get(FILE):
        with suppress(OSError), open(path, "ab", buffering=0) as file:
            file.write((json.dumps(data) + "\n").encode())
