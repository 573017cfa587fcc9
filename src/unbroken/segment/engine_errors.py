"""What an engine raises that is no UnbrokenError: it becomes one, with its traceback in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unbroken.errors import SegmentError, UnbrokenError
from unbroken.segment.job import Job


@contextmanager
def engine_errors(job: Job, refused: Callable[[str], SegmentError]) -> Iterator[None]:
    """Turn any other error than an UnbrokenError or OSError into what `refused` makes of its one line.

    An engine may be somebody else's package, and a mistake in it must not end the process without a line of history.
    """
    try:
        yield
    except (UnbrokenError, OSError):
        raise
    except (Exception, SystemExit) as error:
        job.tell_traceback(error)
        raise refused(f"{type(error).__name__}: {error}") from error
