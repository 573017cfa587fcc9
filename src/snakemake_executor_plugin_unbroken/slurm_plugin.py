"""All that touches the inside of snakemake-executor-plugin-slurm 2.8, and of Snakemake for plain jobs.

Each touch has its reason; tests/unit/test_slurm_plugin_contract.py fails first when a release changes one of them.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import _select_logdir
from snakemake_executor_plugin_slurm.partitions import read_partition_file
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import delete_slurm_environment, set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from unbroken.slurm.commands import ask

# Slurm ends a job by a TERM to the first process of the batch step, a shell. While it waits, its programs have KillWait
# to save; if it dies, all are killed at once. Not `trap ''`, which they would inherit.
PATIENT_SHELL = "trap : TERM; "
# The plugin's resources for `sbatch --clusters`: squeue and scancel would have to ask there.
OTHER_CLUSTER = ("cluster", "clusters", "slurm_cluster")
_read = cache(read_partition_file)


class HeldExecutor(SlurmExecutor):  # type: ignore[misc]  # the plugin publishes no types
    """The plugin's own executor, whose reports go to another one and whose status check runs in the other's loop."""

    def __init__(self, workflow: Any, logger: Any, reports: Any) -> None:
        # Its jobs belong to the active jobs of the other executor; none may reach Snakemake twice.
        self.report_job_submission = reports.report_job_submission
        self.report_job_success, self.report_job_error = reports.report_job_success, reports.report_job_error
        self._offered, self._offers = list[Any](), threading.Lock()
        super().__init__(workflow, logger)

    def _wait_thread(self) -> None:
        """Let the monitoring thread end at once: an idle one sleeps for up to 180 s, and `shutdown` waits for it."""

    def run_job_pre(self, job: Any) -> None:
        """Note that `run_jobs` takes this job: the plugin calls it once for each job that it submits."""
        self._offered = [other for other in self._offered if other is not job]
        super().run_job_pre(job)

    def run_job(self, job: Any) -> None:
        """Submit one job; its own handler fails for a group, which has no `rule`, and Snakemake would wait for ever."""
        try:
            super().run_job(job)
        except AttributeError as error:
            self.report_job_error(SubmittedJobInfo(job), f"Job submission failed: {error.__context__ or error}. ")

    def offer(self, jobs: Sequence[Any]) -> bool:
        """Submit jobs; return True if the plugin keeps some until more of the same rule (`array_jobs`) come."""
        with self._offers:
            self._offered += jobs
            self.run_jobs(list(self._offered))
            return bool(self._offered)

    def submit_offered(self) -> None:
        """Submit the jobs that it keeps one by one."""
        with self._offers:
            for job in list(self._offered):
                self._submit_job(job)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
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


def command(
    executor: BatchStepExecutor, job: Any, *, waits_for: Sequence[str] = (), keeps_incomplete: bool = False
) -> str:
    """Return the shell command of a job with a Snakemake of its own; nothing is submitted."""
    words = ["--wait-for-files", *waits_for] if waits_for else []
    words += ["--keep-incomplete"] if keeps_incomplete else []
    return f"{PATIENT_SHELL}{executor.format_job_exec(job)} {shlex.join(words)}".rstrip()


def sbatch_words(executor: RemoteExecutor, job: Any) -> list[str]:
    """Return the arguments of sbatch for a job, without its name, log, comment and what it runs.

    WorkflowError where its resources cannot work.
    """
    validate_slurm_extra(job)
    settings = executor.workflow.executor_settings
    params = {"run_uuid": "", "slurm_logfile": "", "comment_str": "", "workdir": executor.workflow.workdir_init}
    params |= {"account": _account(job), "partition": _partition(executor, job)}
    avoided = {node.strip() for node in (settings.exclude_failed_nodes or "").split(",")} - {""}
    call = get_submit_command(job, params, settings=settings, failed_nodes=sorted(avoided)) + set_gres_string(job)
    for unnamed in ("--parsable ", "--job-name '' ", "--output '' ", "--comment '' "):
        call = call.replace(unnamed, "", 1)
    return shlex.split(call)[1:]


def _account(job: Any) -> str:
    """Return the first account, as the plugin does; Slurm is not asked before, since sbatch refuses a wrong one."""
    accounts = str(job.resources.get("slurm_account") or "").replace(",", " ").split()
    return f" -A {shlex.quote(accounts[0])}" if accounts else ""


def _partition(executor: RemoteExecutor, job: Any) -> str:
    """Return the plugin's choice, by its own method; without one, Slurm takes its default partition."""
    settings = executor.workflow.executor_settings
    file = settings.partition_config or os.getenv("SNAKEMAKE_SLURM_PARTITIONS")
    known = SimpleNamespace(
        _partitions=_read(Path(file)) if file else None, _fallback_partition="", logger=executor.logger
    )
    return str(SlurmExecutor.get_partition_arg(known, job))


def leave_own_job() -> None:
    """Forget the Slurm job around the driver, whose variables sbatch would take for options, as the plugin does."""
    if "SLURM_JOB_ID" in os.environ:
        delete_slurm_environment()


def log_folder(workflow: Any) -> Path:
    """Return where the plugin keeps logs, and removes old `*.log` and empty folders: ours must lie elsewhere."""
    return Path(workflow.workdir_init, _select_logdir(workflow)).resolve()


def is_told_to_end(workflow: Any) -> bool:
    """Return True after a TERM to the driver; the scheduler notes it and tells no executor."""
    return getattr(workflow.scheduler, "_user_kill", None) is not None
