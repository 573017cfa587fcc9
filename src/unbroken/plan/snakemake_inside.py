"""All that the plan touches of Snakemake's inside, as it is in 9.27; tests/unit/test_snakemake_inside.py fails first.

- `hide`: a dry run lists what a start would do, and changes nothing: Snakemake plans as if outdated records were gone.
- `leave_out_finished`: a segment that a finished run has left over costs a millisecond, not a job.
- `quicken`: ten thousand jobs are planned in less time than by a bare rule (docs/benchmarks.md, Planning).

Without `hide`, the user removes those records; without the others, a start is only slower.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.job.settled import settle_rest
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.store.record import read_record
from unbroken.store.run import RunSpec

logger = logging.getLogger(__name__)
# Python's own (700, 10, 10) looks through all jobs again and again, although none of them is ever garbage.
COLLECT_EVERY = (50_000, 20, 20)
# What `leave_out_finished` uses of Snakemake's DAG.  `finish(job)` is what the scheduler awaits for each job that ended
# well, one after the other, before it looks for jobs that are ready; it expects `register_running({job})` before.
OF_DAG = ("finish", "depending", "needrun", "ready_jobs", "register_running")
_OURS = "_is_of_unbroken"


def hide(records: Collection[Path]) -> bool:
    """Let Snakemake plan as if these records were not there; return False if this release does not allow that.

    What it asks before its first job starts it keeps in `iocache`, which is active until then; in a dry run to the end.
    """
    from snakemake.io import _IOFile  # loads all of Snakemake, which `unbroken status` need not wait for

    hidden = {os.path.abspath(path) for path in records}
    really = getattr(_IOFile, "exists_local", None)
    if not hidden or really is None:
        return not hidden

    async def exists_local(file: Any) -> bool:
        if file.rule.workflow.iocache.active and os.path.abspath(file.file) in hidden:
            return False
        return bool(await really(file))

    setattr(_IOFile, "exists_local", exists_local)  # noqa: B010  (mypy: a method is not assigned to)
    return True


def leave_out_finished(workflow: Any, runs: Iterable[RunSpec]) -> None:
    """Write the records of the segments behind a goal, once a run reaches it, and take their jobs out of the plan."""
    dag, by_name = workflow.dag, {run.name: run for run in runs}
    # Where records are touched nothing works, and without a driver nothing works yet.
    is_at_work = not workflow.touch and not workflow.remote_execution_settings.immediate_submit
    if not is_at_work or not all(hasattr(dag, name) for name in OF_DAG):
        return
    finish = dag.finish

    async def finish_with_rest(job: Any, *words: Any, **more: Any) -> Any:
        found = await finish(job, *words, **more)
        for left in _left_over(dag, job, by_name):
            if left not in dag.ready_jobs:
                break  # it waits for something else too, and will find its work done
            dag.register_running({left})
            await finish(left, *words, **more)
            workflow.scheduler.finished_jobs += 1  # for the lines about progress
        return found

    dag.finish = finish_with_rest


def _left_over(dag: Any, job: Any, runs: dict[str, RunSpec]) -> list[Any]:
    """Return the jobs behind the one that reached a run's goal, in order, with their records written; mostly none."""
    run = None if job.is_group() else runs.get(job.wildcards.get("run", ""))
    number = _number(job, run) if run is not None else 0
    if run is None or not number:
        return []
    # Where a job still holds the run, or the file server is away for a moment, the next segment is a job as usual.
    with suppress(UnbrokenError, OSError):
        record = read_record(RunFolder(run.name).record(number))
        if record is None or record.kind is not EndKind.FINISHED:
            return []
        left = list[Any]()
        while (job := _next(dag, job, run, number + len(left) + 1)) is not None:
            left.append(job)
        if left and settle_rest(run, range(number + 1, number + 1 + len(left))):
            return left
    return []


def _next(dag: Any, job: Any, run: RunSpec, number: int) -> Any:
    planned = (each for each in dag.depending[job] if dag.needrun(each) and each.group is None)
    return next((each for each in planned if _number(each, run) == number), None)


def _number(job: Any, run: RunSpec) -> int:
    """Return the number of the segment of `run` that a job of Snakemake is; 0 for any other job."""
    number = str(job.wildcards.get("segment", ""))
    # A workflow may import unbroken under a prefix of its own; its records then stand where we do not look.
    is_ours = number.isdecimal() and list(map(str, job.output)) == [str(RunFolder(run.name).record(int(number)))]
    return int(number) if is_ours else 0


def tune_gc() -> None:
    """Let this process collect garbage less often, and never what is loaded already."""
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def quicken() -> None:
    """Let Snakemake look once, not for each job, if a script is there."""
    if "snakemake.workflow" not in sys.modules:
        return
    from snakemake import dag

    processor = getattr(dag, "ScriptProcessor", None)
    if processor is None or hasattr(processor.process_job, _OURS):
        return
    look: Callable[[Any, Any], None] = processor.process_job

    def process_job(self: Any, job: Any) -> None:
        script = str(getattr(job.rule, self.script_type))
        seen = self.__dict__.setdefault("_seen_by_unbroken", set())
        if "{" in script or (job.rule.name, script) not in seen:  # one with wildcards is looked at as before
            look(self, job)
            seen.add((job.rule.name, script))

    setattr(process_job, _OURS, True)
    processor.process_job = process_job
