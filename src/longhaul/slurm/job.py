"""The job around this process: its variables, and when Slurm ends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from longhaul.slurm.ending import end_of


@dataclass(frozen=True)
class SlurmJob:
    """The job around this process."""

    job_id: str
    node: str
    partition: str
    end_unix: float | None

    def to_json(self) -> dict[str, object]:
        return {"job_id": self.job_id, "node": self.node, "partition": self.partition, "end_unix": self.end_unix}

    def asked(self) -> SlurmJob:
        """The same job with its end as Slurm says it now; unchanged if it does not answer."""
        end = end_of(self.job_id)
        return replace(self, end_unix=end) if end is not None else self


def current_job(environment: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """The Slurm job of this process by its variables alone; None outside Slurm.

    SLURM_JOB_END_TIME (Unix seconds) is set by Slurm 23.02 and later [man srun, OUTPUT ENVIRONMENT VARIABLES]; with an
    older one the end has to be asked for.
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id:
        return None
    end = environment.get("SLURM_JOB_END_TIME", "")
    node = environment.get("SLURMD_NODENAME", "")
    return SlurmJob(job_id, node, environment.get("SLURM_JOB_PARTITION", ""), float(end) if end.isdecimal() else None)


def restart_count(environment: Mapping[str, str] = os.environ) -> int:
    """How often Slurm has started the job around this process again (requeue); 0 outside Slurm."""
    count = environment.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def job_around_us() -> SlurmJob | None:
    """The same with its end, which Slurm is asked for where no variable tells it."""
    job = current_job()
    return job.asked() if job is not None and job.end_unix is None else job
