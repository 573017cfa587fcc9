"""The job around this process as a member of its chain."""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from unbroken.errors import ConfigError
from unbroken.job.array import alive_of
from unbroken.job.segment_process import is_being_ended
from unbroken.job.spec import JobSpec, path_of, read
from unbroken.runs.layout import RunFolder
from unbroken.slurm.job import LEAVING_SECONDS, ListedJob
from unbroken.slurm.queue import my_jobs
from unbroken.system.clock import utc_now

# How often the queue is asked.
LOOK_SECONDS = 1.0
# In Snakemake's words for a segment of ours: the number to be replaced.
_SEGMENT = re.compile(r"^(\w+:.*\bsegment=)\d+")


@dataclass(frozen=True)
class ChainJob:
    """A job that does a segment; `spec` is what it read when it started."""

    spec: JobSpec
    job_id: str

    @property
    def folder(self) -> RunFolder:
        """Return the map of the run's files."""
        return self.spec.folder

    @property
    def key(self) -> str:
        """Return the name of the chain."""
        return self.spec.key

    def now(self) -> JobSpec:
        """Return the spec as the newest start wants it: the run may have been extended meanwhile.

        The same spec if that cannot be read now.
        """
        with suppress(ConfigError, OSError):
            return read(path_of(self.key))
        return self.spec

    def command_for(self, segment: int, attempt: int) -> list[str]:
        """Return the command that does a segment, or that runs the job of a user's own rule.

        It is empty where the segment is done by its rule's script.
        """
        words = list(self.spec.rule_job.command)
        if not self.spec.is_rule:
            words = [_SEGMENT.sub(rf"\g<1>{segment:03d}", word) for word in words]
        if "--attempt" in words:
            words[words.index("--attempt") + 1] = str(attempt)
        return words

    def log(self, line: str) -> None:
        """Write one line into Slurm's log of this job."""
        print(f"unbroken {utc_now()} {self.spec.name}: {line}", file=sys.stderr, flush=True)


def wait_until_left(job: ChainJob) -> list[ListedJob] | None:
    """Wait until the task before has left: the next one of an array starts while Slurm still ends it.

    Until then it is unknown how it ended.  One that hangs at its end is not waited for: the lease says whether it
    still works.  Return this user's jobs as squeue showed them last; None if it does not answer.
    """
    jobs = None
    give_up = time.monotonic() + LEAVING_SECONDS
    while time.monotonic() < give_up and not is_being_ended():
        jobs = my_jobs()
        leaving = [other for other in jobs or [] if other.is_leaving and other.job_id != job.job_id]
        if not alive_of(leaving, job.key):
            break
        time.sleep(LOOK_SECONDS)
    return jobs
