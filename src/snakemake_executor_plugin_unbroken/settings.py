"""The settings of `executor: unbroken`: the parent's, with defaults that are right for chains, and two of its own."""

from dataclasses import dataclass, field
from typing import Optional

from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_interface_common.exceptions import WorkflowError

# No postponed annotations here: Snakemake makes its command line from the types, and knows Optional in this spelling.


@dataclass
class ExecutorSettings(SlurmSettings):  # type: ignore[misc]  # no types there
    """Define the settings that a profile may have as `unbroken-...`."""

    init_seconds_before_status_checks: Optional[int] = field(  # noqa: UP045
        default=30,
        metadata={
            "help": "Slurm is first asked about a segment that has left no record so many seconds after it was "
            "submitted. "
            "Records are looked for about once a second whatever stands here."
        },
    )
    record_seconds: float = field(
        default=1.0,
        metadata={"help": "The records of segments are looked for so often; raise it where the file server suffers."},
    )
    ahead: int = field(
        default=100,
        metadata={
            "help": "The job array of a run has at most so many tasks; the last of them submits the next array. "
            "Fewer where the site takes fewer."
        },
    )

    def __post_init__(self) -> None:
        if not self.no_requeue:
            # After a preemption or a lost node Slurm starts the job again under the same number.
            self.requeue = True
        if not 0.1 <= self.record_seconds <= 600:
            raise WorkflowError(f"--unbroken-record-seconds: found {self.record_seconds}, allowed: from 0.1 to 600")
        if self.ahead < 1:
            raise WorkflowError(f"--unbroken-ahead: found {self.ahead}, allowed: 1 or more")
        super().__post_init__()
