"""Runs that the full queue did not take: a job of another run submits them when it frees a place.

Jobs that end together each still count themselves, and find no place: exactly one of them comes back to look again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import quote, unquote

from unbroken.errors import UnbrokenError
from unbroken.job import array
from unbroken.job.spec import ChainJob, path_of, read
from unbroken.runs.layout import NOTES
from unbroken.slurm.client import ask
from unbroken.slurm.queue import my_jobs
from unbroken.slurm.this_job import restart_count
from unbroken.system import fs

LEFT_OUT = ".left-out"
ONLY_ONE = (
    "only one job may be there (MaxSubmitJobs), so when it is over start snakemake again, or use a driver: "
    "snakemake --profile slurm"
)
# Which jobs leave, and which one comes back.
LEAVING = NOTES / "leaving"
COMES_BACK = NOTES / "comes-back"
# How often a job whose own run is over starts again to see whether the queue takes others.
LOOKS_FOR_ROOM = 3


def leave_out(run: str) -> None:
    """Note that the queue took no job of this run."""
    NOTES.mkdir(parents=True, exist_ok=True)
    _note_of(run).touch()


def who_submits_it() -> str:
    """Return what submits a run that the full queue did not take: a job of another run counts itself while it lives."""
    alive = [job for job in my_jobs() or [] if job.is_alive]
    if not alive:
        return "none of your jobs is there to submit it later, so start snakemake again when there is room"
    return "a job of another run submits it later" if len(alive) > 1 else ONLY_ONE


def forget(run: str, base: Path = Path()) -> None:
    """Let no job submit a run later: it is submitted, or begins again when its user starts it."""
    (base / _note_of(run)).unlink(missing_ok=True)


def left_out() -> list[str]:
    """Return the runs that wait for a place in the queue, also while a process tries to submit one."""
    return [unquote(path.name.removesuffix(LEFT_OUT)) for path in sorted(NOTES.glob(f"*{LEFT_OUT}"))]


def submit_left_out(log: Callable[[str], None]) -> None:
    """Submit a run that the queue did not take: the job before this one has freed a place."""
    for run in left_out():
        try:
            done = array.submit(read(path_of(run)))
        except (UnbrokenError, OSError) as error:
            log(f"{run}: {error}")
            forget(run)
            return
        if done.answer is not array.Answer.SOON:  # else another process tries it
            log(f"there may be room in the queue now for {run}; {done.line}")
            if done.answer is array.Answer.DONE:
                forget(run)
            return


def _note_of(run: str) -> Path:
    return NOTES / f"{quote(run, safe='')}{LEFT_OUT}"


# --- the job that comes back ---


def stay_for_left_out(job: ChainJob) -> None:
    """Go back into the queue if no other job looks for a place later."""
    if may_leave(job.job_id, _may_still_look):
        return
    if restart_count() >= LOOKS_FOR_ROOM or ask("scontrol", "requeue", job.job_id) is None:
        job.log("other runs still wait for room in the queue: start snakemake again")
        return
    job.log("other runs still wait for room in the queue: this job goes back into it to look again")


def may_leave(job_id: str, alive: Callable[[], Collection[str]]) -> bool:
    """Return True if another job looks for a place later: one that does not leave yet, or the one that comes back.

    `alive` says which jobs may still look.  Each job first says that it leaves and asks then.  So of those that leave
    in the same moment the last one sees that all others do, and of several that see it exactly one comes back.
    """
    LEAVING.mkdir(parents=True, exist_ok=True)
    (LEAVING / job_id).touch()
    others = set(alive()) - {job_id}
    if others - {path.name for path in LEAVING.iterdir()}:
        return True
    if fs.create_exclusive(COMES_BACK, job_id) or (named := _named()) == job_id:
        return False
    if named in others:
        return True
    COMES_BACK.unlink(missing_ok=True)  # that of a job that was canceled while it waited
    return not fs.create_exclusive(COMES_BACK, job_id)


def has_come_back(job_id: str) -> None:
    """Remove the notes that this job leaves or comes back: it starts now, and the notes may be of an earlier start."""
    (LEAVING / job_id).unlink(missing_ok=True)
    if _named() == job_id:
        COMES_BACK.unlink(missing_ok=True)


def _named() -> str:
    try:
        return COMES_BACK.read_text()
    except FileNotFoundError:
        return ""


def _may_still_look() -> list[str]:
    """Return the jobs of this folder that look for a place when they start or end, neither stuck nor being ended."""
    jobs = [job for chain in array.by_chain(my_jobs() or []).values() for job in chain]
    return [job.job_id for job in jobs if job.is_alive and not job.is_leaving and not job.is_stuck]
