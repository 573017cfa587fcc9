"""A job of a chain: does the next segment of its run, and decides what follows.

    python -m unbroken.job .snakemake/unbroken/chains/demo/spec.json

It takes the first segment that has no record, so a task that was killed costs one task of the array and not a segment.
When its work begins and no task waits behind it, it submits the next array, which then waits while it works.  It needs
no Snakemake and no driver.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from unbroken.errors import FormatError, UnbrokenError
from unbroken.job.after_work import end_run, leave_before_work, leave_to_owner, look_after_the_rest
from unbroken.job.end_note import exit_code_for
from unbroken.job.next_attempt import Stop, note_stop, wait_until_left
from unbroken.job.rule_work import RuleWork
from unbroken.job.segment_process import ignore_signals
from unbroken.job.spec import ChainJob, JobSpec, read
from unbroken.job.work import SegmentWork
from unbroken.slurm.client import has_command
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import my_jobs
from unbroken.slurm.this_job import hide_array, own_job_id
from unbroken.store import driver_start
from unbroken.store.history import EndKind
from unbroken.store.select import refuse_newer
from unbroken.system import log
from unbroken.system.clock import utc_now

logger = logging.getLogger("unbroken.job")  # not `__main__`

# A driver may be writing the spec again (`rm -rf .snakemake` is a habit), and a client of NFS may not see it yet.
SPEC_SECONDS = 10.0
# What a job needs of Slurm to look after those behind it.
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")


def main(words: Sequence[str] | None = None) -> int:
    """Do the next segment; return its exit code, or one that says why its work never began."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    given = parser.parse_args(words)
    ignore_signals()
    hide_array()
    try:
        job = ChainJob(_read_patiently(given.spec), own_job_id())
    except UnbrokenError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return exit_code_for(EndKind.REFUSED, 1)
    with log.lines_to(partial(_print, job.spec.name)):
        try:
            refuse_newer(job.spec.folder)
            jobs = wait_until_left(job)
            # The user may have started snakemake while it waited.
            return _do_next_segment(ChainJob(job.now(), job.job_id), jobs)
        except FormatError as error:  # the tasks behind may be those of the newer one, so none is canceled
            logger.error(str(error))
            return exit_code_for(EndKind.REFUSED, 1)


def _print(name: str, line: str) -> None:
    """Write one line into Slurm's log of this job."""
    print(f"unbroken {utc_now()} {name}: {line}", file=sys.stderr, flush=True)


def _read_patiently(path: Path) -> JobSpec:
    """Return the spec, waiting for a moment if it is not there."""
    give_up = time.monotonic() + SPEC_SECONDS
    while not os.path.exists(path) and time.monotonic() < give_up:
        time.sleep(1.0)
    return read(path)


def _do_next_segment(job: ChainJob, jobs: Sequence[ListedJob] | None) -> int:
    os.environ[driver_start.START] = job.spec.start
    _log_missing_commands(job)
    work = RuleWork(job, jobs) if job.spec.is_rule else SegmentWork(job, jobs)
    try:
        code, end = work.do()
        if end is not None and end.kind is EndKind.HELD:
            leave_to_owner(job)
        elif end is not None and end.kind.is_before_work:
            leave_before_work(job, end)
        else:
            look_after_the_rest(job, has_no_room=work.has_no_room)
    except Stop as stop:
        logger.info(f"the run stops: {stop}")
        note_stop(job.key, job.spec.start, str(stop))
        end_run(job, my_jobs())
        return 1 if work.has_tried else exit_code_for(EndKind.STOPPED, 1)
    return exit_code_for(end.kind, code) if end else code


def _log_missing_commands(job: ChainJob) -> None:
    if missing := [name for name in COMMANDS if not has_command(name)]:
        logger.info(
            f"{', '.join(missing)}: not found on this node, so no job of this run can submit or cancel others; those "
            "that wait in the queue do their segments, and when none is left: start snakemake again"
        )


if __name__ == "__main__":
    sys.exit(main())
