"""What Slurm says of the job that we are in; the only module that knows its variables and time formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SlurmJob:
    """The job around this process."""

    job_id: str
    node: str
    partition: str
    end_unix: float | None

    def to_json(self) -> dict[str, object]:
        return {"job_id": self.job_id, "node": self.node, "partition": self.partition, "end_unix": self.end_unix}


def current_job(environment: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """The Slurm job of this process; None outside Slurm.

    SLURM_JOB_END_TIME (Unix seconds) is set by Slurm 23.02 and later [man srun, OUTPUT ENVIRONMENT VARIABLES].
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id:
        return None
    end = environment.get("SLURM_JOB_END_TIME", "")
    node = environment.get("SLURMD_NODENAME", "")
    return SlurmJob(job_id, node, environment.get("SLURM_JOB_PARTITION", ""), float(end) if end.isdecimal() else None)
