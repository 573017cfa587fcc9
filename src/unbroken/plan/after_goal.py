"""The segments that a finished run has left over: they need no job, and leave Snakemake's plan while it is under way.

Snakemake has no hook for that.  This is what is relied on of its `DAG`, in 9.27 and later:

- `finish(job)` is what the scheduler awaits for each job that has ended well, one after the other in its own thread,
  before it looks for jobs that are ready.
- `depending[job]` are the jobs that need its output, `needrun(job)` those that are in this plan, and `ready_jobs` those
  that wait for nothing more.
- `register_running({job})` is what the scheduler says of a job that it hands out; `finish` expects it.

And of its `JobScheduler`: `finished_jobs` counts what is done, for the lines about progress.

Where one of them is missing, each segment is a job that finds its work done, as without this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from unbroken.errors import FormatError, UnbrokenError
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import read_record
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.segment.settled import settle_rest

_NEEDED = ("finish", "depending", "needrun", "ready_jobs", "register_running")


def leave_out_finished(workflow: Any, runs: Iterable[Run], tell: Callable[[str], None]) -> None:
    """From now on, when a run reaches its goal, the records of the segments behind are written here, without jobs.

    `tell` is given a line where another process held the run and is gone.
    """
    if workflow.touch or workflow.remote_execution_settings.immediate_submit:
        return  # nothing works there, or not yet
    dag, by_name = workflow.dag, {run.name: run for run in runs}
    if not all(hasattr(dag, name) for name in _NEEDED):
        return
    finish = dag.finish

    async def finish_with_rest(job: Any, *words: Any, **more: Any) -> Any:
        found = await finish(job, *words, **more)
        for left in _left_over(dag, job, by_name, tell):
            if left not in dag.ready_jobs:
                break  # it waits for something else too, and will find its work done
            dag.register_running({left})
            await finish(left, *words, **more)
            workflow.scheduler.finished_jobs += 1
        return found

    dag.finish = finish_with_rest


def _left_over(dag: Any, job: Any, runs: dict[str, Run], tell: Callable[[str], None]) -> list[Any]:
    """The jobs behind that of a run's last segment, in order, with their records written; mostly none."""
    run = None if job.is_group() else runs.get(job.wildcards.get("run", ""))
    number = 0 if run is None else _number(job, run)
    if run is None or not number or not _has_finished(run, number):
        return []
    left = list(_behind(dag, job, run, number))
    # Where a job still holds the run, or the file server is away for a moment, the next segment is a job as ever.
    with suppress(UnbrokenError, OSError):
        if left and settle_rest(run, range(number + 1, number + 1 + len(left)), tell):
            return left
    return []


def _behind(dag: Any, job: Any, run: Run, number: int) -> Iterator[Any]:
    """The jobs of the chain behind a segment, as far as they are planned."""
    while job is not None:
        number += 1
        planned = (each for each in dag.depending[job] if dag.needrun(each) and each.group is None)
        job = next((each for each in planned if _number(each, run) == number), None)
        if job is not None:
            yield job


def _number(job: Any, run: Run) -> int:
    """The number of the segment of `run` that a job of Snakemake is; 0 for any other job."""
    number = str(job.wildcards.get("segment", ""))
    # A workflow may import unbroken under a prefix of its own; its records then stand where we do not look.
    is_ours = number.isdecimal() and [str(path) for path in job.output] == [
        str(RunFolder(run.name).record(int(number)))
    ]
    return int(number) if is_ours else 0


def _has_finished(run: Run, number: int) -> bool:
    try:
        record = read_record(RunFolder(run.name).record(number))
    except FormatError:  # of a newer unbroken, installed meanwhile: the next segment's job says what it finds
        return False
    return record is not None and record.kind is EndKind.FINISHED
