"""How long a segment waits for its turn while another job holds the run, and when it leaves its node instead."""

from __future__ import annotations

import os
from collections.abc import Mapping

from unbroken.runs import lease
from unbroken.runs.claim import Claim
from unbroken.runs.job_note import FILE
from unbroken.segment.job import Job
from unbroken.slurm.this_job import own_job_id

# A holder that works to its own end needs its length and a little more; one that cannot be seen, its silence.
WAITING_SECONDS = lease.STALE_SECONDS + 60.0


def patience_seconds(job: Job) -> float:
    """How long a segment waits for the one before it, which may be a longer one of an earlier config."""
    return 1.5 * job.run.segment_minutes * 60 + WAITING_SECONDS


def leaves_to(job: Job, held: Claim, environment: Mapping[str, str] = os.environ) -> bool:
    """True if a job of Slurm leaves its node while that holder works, because somebody starts the segment after it.

    Only of a holder that is another job the end can be waited for in the queue; one whose record is there is just
    leaving, and nobody queues for the few seconds of that.
    """
    own = own_job_id(environment)
    is_other_job = own != "" and held.slurm_job not in ("", own)
    return is_other_job and FILE in environment and not job.places.record(held.segment).exists()
