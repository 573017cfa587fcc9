"""The job around this process: its variables, when Slurm ends it, and by whose clock."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace

from unbroken.slurm import controller_clock
from unbroken.slurm.job_end import end_of

# The number of a job of ours and, behind a colon, how its task is called; a job that it submits has another number.
_TASK = "UNBROKEN_ARRAY_TASK"


@dataclass(frozen=True)
class SlurmJob:
    """The job around this process; `end_unix` is told by Slurm's clock, of which this node's may be ahead."""

    job_id: str
    node: str
    partition: str
    end_unix: float | None
    clock_ahead_seconds: float = 0.0
    number: str = ""  # by which its control groups are called; of a task in an array not by which it is asked for

    @property
    def end_here_unix(self) -> float | None:
        """When Slurm ends it, by the clock of this node."""
        return None if self.end_unix is None else self.end_unix + self.clock_ahead_seconds

    @property
    def remark(self) -> str:
        """A line about a clock that is wrong; '' if it is not."""
        return controller_clock.remark(self.node or platform.node(), self.clock_ahead_seconds)

    def to_json(self) -> dict[str, object]:
        return {"job_id": self.job_id, "node": self.node, "partition": self.partition, "end_unix": self.end_unix}

    def asked(self) -> SlurmJob:
        """The same job with its end as Slurm says it now; unchanged if it does not answer."""
        end = end_of(self.job_id)
        return replace(self, end_unix=end) if end is not None else self

    def timed(self) -> SlurmJob:
        """The same with what this node's clock is ahead of Slurm's; unchanged if Slurm does not say its time."""
        ahead = controller_clock.ahead_seconds()
        return replace(self, clock_ahead_seconds=ahead) if ahead is not None else self


def current_job(environment: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """The Slurm job of this process by its variables alone; None outside Slurm.

    SLURM_JOB_END_TIME (Unix seconds) is set by Slurm 23.02 and later [man srun, OUTPUT ENVIRONMENT VARIABLES]; with an
    older one the end has to be asked for.
    """
    job_id = own_job_id(environment)
    if not job_id:
        return None
    said, node = environment.get("SLURM_JOB_END_TIME", ""), environment.get("SLURMD_NODENAME", "")
    end = float(said) if said.isdecimal() else None
    number = environment["SLURM_JOB_ID"]
    return SlurmJob(job_id, node, environment.get("SLURM_JOB_PARTITION", ""), end, number=number)


def own_job_id(environment: Mapping[str, str] = os.environ) -> str:
    """How squeue, sacct and scontrol call the job around this process: `17`, `17_3` of an array; '' outside Slurm.

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
    """Takes Slurm's variables of the array from the environment: what is started next is to be the same in each task.

    `own_job_id` knows the task all the same.  How the tasks before it are called, those with a lower number.
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
    """How often Slurm has started the job around this process again (requeue); 0 outside Slurm."""
    count = environment.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def job_around_us() -> SlurmJob | None:
    """The same with its end as Slurm says it now, and with Slurm's clock.

    The variable is believed only where Slurm does not answer: of a job that was started with `--time-min`, and given
    more at once, it says the least [Slurm 25.05.3].
    """
    job = current_job()
    return job.asked().timed() if job is not None else None
