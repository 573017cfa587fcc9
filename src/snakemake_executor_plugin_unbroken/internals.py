"""All that touches the inside of snakemake-executor-plugin-slurm 2.8 and of Snakemake 9.27.

Each touch has its reason; tests/unit/test_slurm_plugin_contract.py fails first when a release changes one of them.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm.partitions import read_partition_file
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from unbroken.slurm.client import ask

_read = cache(read_partition_file)
# A resource as it was written: a path, or a quoted word in --default-resources; not a formula, nor `$SCRATCH`.
_PLAIN_TEXT = re.compile(r"""(/[\w./-]+)|(['"])([\w ./-]+)\2""")


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


def planned_jobs(workflow: Any) -> list[Any]:
    """Return the jobs that Snakemake is to run."""
    return list(workflow.dag.needrun_jobs())


def jobs_before(workflow: Any, job: Any) -> list[Any]:
    """Return the jobs whose outputs a job needs; none for a group."""
    return [] if job.is_group() else list(workflow.dag.dependencies.get(job, {}))


def is_told_to_end(workflow: Any) -> bool:
    """Return True after a TERM to the driver; the scheduler notes it and passes it to no executor."""
    return getattr(workflow.scheduler, "_user_kill", None) is not None


def retries_of(job: Any) -> int:
    """Return how many further attempts Snakemake makes after a failure: while `attempt` is at most that."""
    return int(job.restart_times)


def give_up(job: Any) -> None:
    """Let Snakemake make no further attempt."""
    job.attempt = max(job.attempt, retries_of(job) + 1)


def local_script(job: Any) -> Path | None:
    """Return the script of a job's rule, if it is a file here."""
    script = job.rule.script
    uri = job.rule.basedir.join(script).get_path_or_uri(secret_free=True) if isinstance(script, str) else ""
    return Path(str(uri)) if Path(str(uri)).is_file() else None


def asks_more_of_snakemake(job: Any) -> bool:
    """Return True for a job of a `script:` that needs more of Snakemake than that it starts it with this Python."""
    rule, storage = job.rule, job.rule.workflow.storage_settings
    of_rule = (rule.shadow_depth, rule.is_handover, rule.is_checkpoint, storage.default_storage_provider)
    of_job = (job.group, job.benchmark)
    of_machine = (job.conda_env_spec, job.container_img_url, job.env_modules, job.resources.get("shell_exec"))
    is_elsewhere = any(path.is_storage for path in (*job.input, *job.output, *job.log))
    return any((*of_rule, *of_job, *of_machine, is_elsewhere)) or storage.shared_fs_usage != frozenset(SharedFSUsage)


def plain_tmpdir(job: Any) -> str | None:
    """Return a job's resource `tmpdir`; '' for the node's own, None if only Snakemake could say."""
    given = job.rule.resources.get("tmpdir")
    raw = "system_tmpdir" if given is None else str(given.raw)
    found = _PLAIN_TEXT.fullmatch(raw)
    return "" if raw == "system_tmpdir" else found and (found[1] or found[3])
