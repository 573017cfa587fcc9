"""The end of runs that a user asks for: what waits is canceled, what works saves first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from unbroken.job import array, submissions
from unbroken.job.next_attempt import note_stop
from unbroken.slurm.client import ask
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import my_jobs

# Running segments may take so long to save, as long as a driver waits for them.
SAVING_SECONDS = 60.0
LOOK_SECONDS = 1.0


def cancel_runs(keys: Collection[str], start: str, why: str, log: Callable[[str], None]) -> None:
    """Cancel all jobs of these chains; running ones are asked to save, and canceled if they do not end in time.

    `why` is noted for the running ones that belong to the start of snakemake that `start` names.
    """
    jobs = my_jobs()
    for key in keys:
        if jobs is None or array.alive_of(jobs, key):  # the running job submits no further task
            note_stop(key, start, why)
    if jobs is not None:
        jobs = _let_save([job for key in keys for job in array.alive_of(jobs, key)], log)
    alive = [job.job_id for key in keys for job in array.alive_of(jobs or [], key)]
    noted = [found.job_id for key in keys if jobs is None and (found := submissions.newest(key)) is not None]
    if numbers := array.arrays_of(number for number in [*alive, *noted] if number):
        ask("scancel", *numbers)


def _let_save(alive: Sequence[ListedJob], log: Callable[[str], None]) -> list[ListedJob] | None:
    """Cancel waiting jobs, ask running ones to save and end, and wait for that; return the jobs after that."""
    array.cancel([job.job_id for job in alive if job.state == "PENDING"])
    working = [job.job_id for job in alive if job.state == "RUNNING"]
    if not working:
        return my_jobs()
    log(f"what works saves and leaves within {SAVING_SECONDS:g} s: job {', '.join(working)}")
    ask("scancel", "--signal=INT", *working)
    give_up = time.monotonic() + SAVING_SECONDS
    while (jobs := my_jobs()) is not None and time.monotonic() < give_up:
        if not any(job.is_alive and job.job_id in working for job in jobs):
            break
        time.sleep(LOOK_SECONDS)
    return jobs
