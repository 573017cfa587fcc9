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
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        scheduler = SimpleNamespace(
            finish_callback=lambda job: self.done.append(job.number),
            error_callback=lambda job: None,
            submit_callback=lambda job: None,
        )
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
        logger = SimpleNamespace(info=say, warning=say, error=say, debug=lambda line: None)
        self.plain = PlainJobs(self.workflow, logger)

    def submit(self, job_id: str, **resources: object) -> None:
        """A job is out."""
        job = SimpleNamespace(
            number=job_id,
            resources=resources,
            register=lambda external_jobid: None,
            log_error=lambda msg, **more: self.failed.update({job_id: msg}),
        )
        log = Path(f"{job_id}.log")
        self.plain.report_job_submission(SubmittedJobInfo(job, job_id, aux={"slurm_logfile": log}))

    def check(self) -> list[str]:
        """Let all questions be due, and return the numbers of the jobs that are still active."""
        self.plain._due = 0.0
        asyncio.run(self.plain.check())
        return [str(info.external_jobid) for info in self.plain.active_jobs]
