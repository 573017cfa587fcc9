"""How long this job may work: what Slurm says of it, by when its segment must be done, and the margin before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.runs.history import Attempt
from unbroken.segment.classify import NEARLY_ALL
from unbroken.segment.deadline import NO_LIMIT_MINUTES, Deadline, Margin, deadline_for, learn_margin
from unbroken.segment.job import Job
from unbroken.slurm.this_job import SlurmJob, job_around_us


@dataclass(frozen=True)
class JobTime:
    """`slurm_job` is None outside of Slurm."""

    slurm_job: SlurmJob | None
    deadline: Deadline
    margin: Margin


def job_time(job: Job, attempts: Sequence[Attempt]) -> JobTime:
    """Counted from now, or by Slurm; the margin is learned from these attempts. What is unusual is told."""
    seconds = job.run.segment_minutes * 60
    slurm_job = job_around_us()
    if slurm_job is not None and slurm_job.end_unix is None:
        alone = f"counting on {job.run.segment_minutes:g} minutes alone"
        job.tell(f"Slurm does not say when it ends job {slurm_job.job_id}: {alone}")
    if slurm_job is not None and slurm_job.remark:
        job.tell(slurm_job.remark)
    deadline = deadline_for(seconds, slurm_job)
    left_seconds = deadline.left_seconds()
    margin = learn_margin(attempts, min(seconds, left_seconds), job.run.first_margin_seconds)
    if job.run.least_minutes is not None and left_seconds < NEARLY_ALL * seconds:
        job.tell(f"Slurm gives this job {left_seconds / 60:.3g} of {job.run.segment_minutes:g} minutes")
    first, stall = job.run.first_margin_seconds, job.run.stall_minutes
    if first is not None and first > margin.longest_seconds + 1:
        half = f"half of this segment's {2 * margin.longest_seconds:.0f} s counts"
        job.tell(f"first_margin_seconds: found {first:g}; {half}; for more set a longer segment_minutes")
    if stall is not None and stall * 60 >= left_seconds:
        never = f"this segment ends in {left_seconds / 60:.3g} minutes, before a stall could be seen"
        job.tell(f"stall_minutes: found {stall:g}; {never}; set a smaller one")
    if left_seconds < NO_LIMIT_MINUTES * 60 - margin.longest_seconds:
        job.tell(f"time: {left_seconds:.0f} s, told to stop {margin.stop_seconds:.1f} s before the end")
    return JobTime(slurm_job, deadline, margin)
