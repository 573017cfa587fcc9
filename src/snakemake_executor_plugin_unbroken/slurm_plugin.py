"""All that is used of snakemake-executor-plugin-slurm 2.8 and of its inside; of Snakemake's: unbroken.snakemake_inside.

Each use has its reason; tests/unit/test_slurm_plugin_contract.py fails first when a release changes one of them.
"""

import os
import shlex
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, Optional

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_executor_plugin_slurm.partitions import read_partition_file
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from unbroken.slurm.client import ask

_read = cache(read_partition_file)


# No postponed annotations here: Snakemake makes its command line from the types, and knows Optional in this spelling.
@dataclass
class ExecutorSettings(SlurmSettings):  # type: ignore[misc]  # no types there
    """Define the settings of a profile, `unbroken-...`: others by default than the parent's, and `ahead`."""

    init_seconds_before_status_checks: Optional[int] = field(  # noqa: UP045
        default=30,
        metadata={
            "help": "Slurm is first asked about a segment that has left no record so many seconds after it was "
            "submitted. Records are looked for about once a second whatever stands here."
        },
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
        if self.ahead < 1:
            raise WorkflowError(f"--unbroken-ahead: found {self.ahead}, allowed: 1 or more")
        super().__post_init__()


class HeldExecutor(SlurmExecutor):  # type: ignore[misc]  # the plugin publishes no types
    """The plugin's own executor, whose status check runs in another executor's loop."""

    def _wait_thread(self) -> None:
        """Let the monitoring thread end at once: an idle one sleeps for up to 180 s, and `shutdown` waits for it."""

    def submit_single(self, job: Any) -> None:
        """Announce a job and submit it in the plugin's threads, also where it waits for others of an array."""
        self._submit_job(job)

    def cancel_jobs(self, active_jobs: list[Any]) -> None:
        """Cancel jobs, also those that its threads, or an sbatch that got the same Ctrl-C, would leave in the queue."""
        self._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        try:
            super().cancel_jobs(active_jobs)
        finally:  # by the name of all jobs of this driver, by which the plugin asks for them too
            ask("scancel", f"--name={self.run_uuid}")


class BatchStepExecutor(RemoteExecutor):  # type: ignore[misc]
    """A base for an executor whose jobs run their Snakemake in the batch step, where Slurm's signals do not end it."""

    def additional_general_args(self) -> str:
        """Return, as a string, what the plugin replaces by a second Snakemake in a step of its own."""
        return "--executor local"

    def get_job_args(self, job: Any, **more: Any) -> str:
        """Return the words of a job that waits for no folder of this driver, which is gone when the driver ends."""
        return str(RealExecutor.get_job_args(self, job, **more))


def sbatch_words(executor: RemoteExecutor, job: Any) -> list[str]:
    """Return a job's sbatch arguments but name, log, comment and command; raise WorkflowError if they cannot work."""
    validate_slurm_extra(job)
    settings = executor.workflow.executor_settings
    # The first account, as the plugin takes it; Slurm is not asked before, since sbatch refuses a wrong one.
    account = str(job.resources.get("slurm_account") or "").replace(",", " ").split()[:1]
    params = {"run_uuid": "", "slurm_logfile": "", "comment_str": "", "workdir": executor.workflow.workdir_init}
    params["account"] = shlex.join(["-A", *account] if account else [])
    # The plugin's choice, by its own method; without one, Slurm takes its default partition.
    file = settings.partition_config or os.getenv("SNAKEMAKE_SLURM_PARTITIONS")
    known = SimpleNamespace(_partitions=_read(file) if file else None, _fallback_partition="", logger=executor.logger)
    params["partition"] = SlurmExecutor.get_partition_arg(known, job)
    avoided = {node.strip() for node in (settings.exclude_failed_nodes or "").split(",")} - {""}
    call = get_submit_command(job, params, settings=settings, failed_nodes=sorted(avoided)) + set_gres_string(job)
    for unnamed in ("--parsable ", "--job-name '' ", "--output '' ", "--comment '' "):
        call = call.replace(unnamed, "", 1)
    return shlex.split(call)[1:]
