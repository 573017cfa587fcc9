"""`PlainJobs` with as much of Snakemake around it as it asks for: no cluster gives every answer of Slurm when asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as plugin
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs


class PlainDriver:
    """The plain jobs of an executor that keeps what it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / ".snakemake").mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        self.said: list[str] = []
        self.active: list[SubmittedJobInfo] = []
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        scheduler = SimpleNamespace(_user_kill=None)
        self.workflow = SimpleNamespace(
            executor_settings=plugin.ExecutorSettings(init_seconds_before_status_checks=1, status_command="squeue"),
            remote_execution_settings=SimpleNamespace(
                immediate_submit=False,
                max_status_checks_per_second=10,
                seconds_between_status_checks=10,
                jobname="{jobid}",
                jobscript=None,
            ),
            storage_settings=SimpleNamespace(shared_fs_usage=frozenset()),
            main_snakefile="Snakefile",
            workdir_init=str(folder),
            dag=None,
            scheduler=scheduler,
        )
        say = self.said.append
        executor = SimpleNamespace(
            workflow=self.workflow,
            logger=SimpleNamespace(info=say, warning=say, error=say, debug=lambda line: None),
            report_job_submission=lambda info, register_job=True: self.active.append(info),
            report_job_success=lambda info: self.done.append(info.external_jobid),
            report_job_error=lambda info, msg=None, **more: self.failed.update({info.external_jobid: str(msg)}),
        )
        self.plain = PlainJobs(executor)  # type: ignore[arg-type]

    def submit(self, job_id: str, **resources: object) -> None:
        """A job is out."""
        job = SimpleNamespace(name="one", resources=resources, attempt=1, restart_times=3)
        log = Path(f"{job_id}.log")
        self.plain.prepare().report_job_submission(SubmittedJobInfo(job, job_id, aux={"slurm_logfile": log}))

    def check(self) -> list[str]:
        """Let all questions be due, and return the numbers of the jobs that are still active."""
        self.plain._due = 0.0

        async def collect() -> list[SubmittedJobInfo]:
            return [info async for info in self.plain.check(self.active)]

        self.active = asyncio.run(collect())
        return [str(info.external_jobid) for info in self.active]
