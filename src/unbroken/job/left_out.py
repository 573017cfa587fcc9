"""Runs that the full queue did not take: a job of another run submits them when it frees a place.

A job counts itself as long as it lives.  So of the jobs of a folder whose runs are over, the one with the highest
number goes back into the queue to look again while no other job is left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from unbroken.errors import UnbrokenError
from unbroken.job import array
from unbroken.job.spec import path_of, read
from unbroken.slurm.client import ask
from unbroken.slurm.job import ListedJob
from unbroken.slurm.this_job import restart_count
from unbroken.store.layout import NOTES

logger = logging.getLogger(__name__)

LEFT_OUT = ".left-out"
SUBMITTED_LATER = "a job of another run submits it later; if none is left, start snakemake again when there is room"
# How often a job whose own run is over starts again to see whether the queue takes others.
LOOKS_FOR_ROOM = 3


def leave_out(run: str) -> None:
    """Note that the queue took no job of this run."""
    NOTES.mkdir(parents=True, exist_ok=True)
    _note_of(run).touch()


def forget(run: str, base: Path = Path()) -> None:
    """Let no job submit a run later: it is submitted, or begins again when its user starts it."""
    (base / _note_of(run)).unlink(missing_ok=True)


def left_out() -> list[str]:
    """Return the runs that wait for a place in the queue, also while a process tries to submit one."""
    return [unquote(path.name.removesuffix(LEFT_OUT)) for path in sorted(NOTES.glob(f"*{LEFT_OUT}"))]


def submit_left_out() -> None:
    """Submit a run that the queue did not take: the job before this one has freed a place."""
    for run in left_out():
        try:
            done = array.submit(read(path_of(run)))
        except (UnbrokenError, OSError) as error:
            logger.warning(f"{run}: {error}")
            forget(run)
            return
        if done.answer is not array.Answer.SOON:  # else another process tries it
            logger.info(f"there may be room in the queue now for {run}; {done.line}")
            if done.answer is array.Answer.DONE:
                forget(run)
            return


def look_again(job_id: str, jobs: Sequence[ListedJob]) -> None:
    """Put this job back into the queue if runs are left out and no job with a higher number looks for a place later."""
    alive = [job for chain in array.by_chain(jobs).values() for job in chain if job.is_alive and job.job_id != job_id]
    others = [job.job_id for job in alive if not job.is_leaving and not job.is_stuck]
    if any(_age(other) > _age(job_id) for other in others):
        return
    if restart_count() < LOOKS_FOR_ROOM and ask("scontrol", "requeue", job_id) is not None:
        logger.info("other runs still wait for room in the queue: this job goes back into it to look again")
    elif not others:
        logger.warning("other runs still wait for room in the queue: start snakemake again")


def _age(job_id: str) -> list[int]:
    return [int(number) for number in job_id.split("_") if number.isdecimal()]


def _note_of(run: str) -> Path:
    return NOTES / f"{quote(run, safe='')}{LEFT_OUT}"
