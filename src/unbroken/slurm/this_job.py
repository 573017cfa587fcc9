"""The job around this process: its variables, when Slurm ends it, and by whose clock.

All times of Slurm are by the clock of its controller, which need not be this node's.  `squeue --format=%L`, the time
that is left, does not help: it subtracts the clock of the machine on which it is typed [squeue 22.05: print.c].
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from unbroken.slurm.client import SHORT_PATIENCE_SECONDS, ask, number_in
from unbroken.slurm.queue import end_of

# The number of a job of ours and, behind a colon, how its task is called; a job that it submits has another number.
_TASK = "UNBROKEN_ARRAY_TASK"
# A difference between clocks that the user should know; less may be the network.
TOLD_SECONDS = 60.0


@dataclass(frozen=True)
class SlurmJob:
    """The job around this process; `end_unix` is by Slurm's clock, and this node's may be ahead of that."""

    job_id: str
    node: str
    partition: str
    end_unix: float | None
    clock_ahead_seconds: float = 0.0
    number: str = ""  # by which its control groups are called; of a task in an array not by which it is asked for

    @property
    def end_here_unix(self) -> float | None:
        """Return when Slurm ends it, by the clock of this node."""
        return None if self.end_unix is None else self.end_unix + self.clock_ahead_seconds

    @property
    def remark(self) -> str:
        """Return a line about a clock that is wrong: `node1's clock is 400 s ahead of Slurm's; ...`; else nothing."""
        ahead = self.clock_ahead_seconds
        if abs(ahead) < TOLD_SECONDS:
            return ""
        way = "ahead of" if ahead > 0 else "behind"
        wrong = f"{self.node or platform.node()}'s clock is {abs(ahead):.0f} s {way} Slurm's"
        return f"{wrong}; the segment's length does not count on it, its time stamps do; tell the administrators"

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"job_id": self.job_id, "node": self.node, "partition": self.partition, "end_unix": self.end_unix}

    def asked(self) -> SlurmJob:
        """Return the job with its end as Slurm says it now; unchanged if it does not answer."""
        return self if (end := end_of(self.job_id)) is None else replace(self, end_unix=end)

    def timed(self) -> SlurmJob:
        """Return the job with what this node's clock is ahead of Slurm's; unchanged if Slurm does not say its time."""
        return self if (ahead := clock_ahead_seconds()) is None else replace(self, clock_ahead_seconds=ahead)


def current_job(environment: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """Return the Slurm job of this process by its variables alone; None outside Slurm.

    SLURM_JOB_END_TIME (Unix seconds) is set by Slurm 23.02 and later [man srun, OUTPUT ENVIRONMENT VARIABLES]; with an
    older one the end has to be asked for.
    """
    if not (job_id := own_job_id(environment)):
        return None
    end, number = number_in(environment.get("SLURM_JOB_END_TIME", "")), environment["SLURM_JOB_ID"]
    node, partition = environment.get("SLURMD_NODENAME", ""), environment.get("SLURM_JOB_PARTITION", "")
    return SlurmJob(job_id, node, partition, end, number=number)


def job_around_us() -> SlurmJob | None:
    """Return the job around this process with its end as Slurm says it now, and with Slurm's clock.

    The variable is believed only where Slurm does not answer: of a job that was started with `--time-min`, and given
    more at once, it says the least [Slurm 25.05.3].
    """
    job = current_job()
    return job.asked().timed() if job is not None else None


def clock_ahead_seconds() -> float | None:
    """Return by how much this machine's clock is ahead of Slurm's, to a second or two; None if it does not answer."""
    before = time.time()
    text = ask("sdiag", patience_seconds=SHORT_PATIENCE_SECONDS)
    now = (before + time.time()) / 2
    answered = re.search(r"^sdiag output at .*\((\d+)\)\s*$", text or "", re.MULTILINE)
    return now - float(answered[1]) if answered else None


def own_job_id(environment: Mapping[str, str] = os.environ) -> str:
    """Return how squeue, sacct and scontrol call this job: `17`, `17_3` of an array; '' outside Slurm.

    The last task of an array to start has the number of the whole array as SLURM_JOB_ID, by which all of them mean
    each of its tasks.
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    number, _, named = environment.get(_TASK, "").partition(":")
    if named and number == job_id:
        return named
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if job_id and array and task else job_id


def hide_array() -> list[str]:
    """Take Slurm's variables of the array from the environment: what is started next is to be the same in each task.

    `own_job_id` knows the task all the same.  Return how the tasks before it are called, those with a lower number.
    """
    own = own_job_id()
    array, _, task = own.rpartition("_")
    least = os.environ.get("SLURM_ARRAY_TASK_MIN", "")
    if array:
        os.environ[_TASK] = f"{os.environ['SLURM_JOB_ID']}:{own}"
    for name in [name for name in os.environ if name.startswith("SLURM_ARRAY_")]:
        del os.environ[name]
    if not array or not task.isdecimal() or not least.isdecimal():
        return []
    return [f"{array}_{number}" for number in range(int(least), int(task))]


def restart_count(environment: Mapping[str, str] = os.environ) -> int:
    """Return how often Slurm has started this job again (requeue); 0 outside Slurm."""
    return int(number_in(environment.get("SLURM_RESTART_COUNT", "")) or 0)
