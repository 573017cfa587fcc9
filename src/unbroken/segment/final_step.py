"""The last step of a run: `final/` is made of the checkpoint that reached the goal, and checked.

It computes nothing, so it is repeated alone: by the next attempt, or the next start, from the same checkpoint.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from unbroken.engines.base import Engine
from unbroken.errors import LeaseError, ResultsError, StorageError, UnbrokenError
from unbroken.runs import results as final
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.history import Attempt
from unbroken.runs.progress import overshoot
from unbroken.runs.segment_end import EndCause, EndKind, SegmentEnd
from unbroken.segment.job import Job
from unbroken.system import fs

# What an engine that looks for a file or a program meets; no sign of a file server that is away.
_OF_THE_ENGINE = {None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL}
AGAIN = "nothing is computed again, the next start repeats this step alone"


def write_results(
    job: Job, engine: Engine, checkpoint: Checkpoint, attempts: Sequence[Attempt], confirm: Callable[[], None]
) -> None:
    """Make `final/` where it is missing.

    Raise LeaseError if the run is another job's by now.  Any other UnbrokenError is logged, and leaves what was there
    before; any other exception becomes one, with its traceback in the log.
    """
    if not engine.fills_final or final.is_current(job.places, checkpoint):
        return
    try:
        with fs.os_errors(job.places.root), job.engine_errors(partial(_refused, job, checkpoint), _OF_THE_ENGINE):
            fill, expected = partial(engine.finish, job.run), engine.expected_results(job.run, checkpoint)
            doubts = engine.result_doubts(job.run, checkpoint)
            final.write(job.places, checkpoint, fill, attempts, confirm, job.tell, expected, doubts)
    except LeaseError:
        raise
    except UnbrokenError as error:
        if isinstance(error, StorageError) and isinstance(error.__cause__, OSError):
            job.tell_traceback(error.__cause__)
        job.tell(f"the goal is reached ({describe_done(checkpoint)}), but its results were not written; {AGAIN}")
        if isinstance(error, ResultsError) and error.__cause__ is None:  # what was made is not what was expected
            raise _refused(job, checkpoint, str(error)) from error
        raise
    doubts = final.read_doubts(job.places)
    job.tell(f"results are in {job.places.final}{', joined with doubts' if doubts else ''}")
    for line in (*(f"doubt: {each}" for each in doubts), *engine.result_remarks(job.run, checkpoint)):
        job.tell(line)
    if line := overshoot(checkpoint.passport.progress, has_resumed=len(attempts) > 0):
        job.tell(line)


def end_without_results(error: UnbrokenError, checkpoint: Checkpoint) -> SegmentEnd:
    """Return the end of an attempt whose results were not written."""
    why = error.text if isinstance(error, ResultsError) else _not_written(checkpoint, str(error))
    return SegmentEnd(kind=EndKind.FAILED, message=why, log=error.log, cause=EndCause.NO_RESULTS)


def _refused(job: Job, checkpoint: Checkpoint, why: str) -> ResultsError:
    return ResultsError(_not_written(checkpoint, why), log=job.log, run=job.run.name)


def _not_written(checkpoint: Checkpoint, why: str) -> str:
    return f"the goal is reached ({describe_done(checkpoint)}), but its results were not written: {why}; {AGAIN}"
