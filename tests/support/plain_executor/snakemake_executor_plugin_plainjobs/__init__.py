"""The least executor around `PlainJobs`, as a plugin that Snakemake finds by PYTHONPATH: `--executor plainjobs`.

A rule with `resources: alone=1` stands for a chain: its job is submitted here, by our words and our command.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain_specs import PATIENT_SHELL
from snakemake_executor_plugin_unbroken.executor import leave_own_job, refuse_log_folder
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs
from snakemake_executor_plugin_unbroken.slurm_plugin import BatchStepExecutor, sbatch_words

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

LOGS = Path(".snakemake/alone_logs")


class Executor(BatchStepExecutor):
    """Every other job is a plain one; the loop runs every second, as that of `executor: unbroken`."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        leave_own_job()
        refuse_log_folder(workflow, LOGS)
        self._plain: PlainJobs | None = None  # before the thread starts that checks jobs
        super().__init__(workflow, logger)

    def run_jobs(self, jobs: list[Any]) -> None:
        alone = [job for job in jobs if job.resources.get("alone")]
        for job in alone:
            self.run_job_pre(job)
            self._submit(job)
        others = [job for job in jobs if job not in alone]
        if os.environ.get("PLAINJOBS_ONE_BY_ONE"):
            super().run_jobs(others)
        elif others:
            self.plain.run_jobs(others)

    def run_job(self, job: Any) -> None:
        self.plain.run_job(job)

    @property
    def plain(self) -> PlainJobs:
        self._plain = self._plain or PlainJobs(self.workflow, self.logger)
        return self._plain

    def _submit(self, job: Any) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        own = ["--parsable", "--job-name=alone", f"--output={LOGS / '%j.log'}", f"--comment=rule_{job.name}"]
        words = [*own, *sbatch_words(self, job)]
        waits_for = shlex.join(["--wait-for-files", *job.input]) if job.input else ""
        script = f"#!/bin/sh\n{PATIENT_SHELL}{self.format_job_exec(job)} {waits_for}\n"
        answer = subprocess.run(["sbatch", *words], input=script, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.report_job_submission(SubmittedJobInfo(job, answer.strip().partition(";")[0]))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        if self._plain is not None:
            await self._plain.check()
        for info in active_jobs:
            if all(Path(str(path)).exists() for path in info.job.output):
                self.report_job_success(info)
            else:
                yield info
        self.next_seconds_between_status_checks = 1.0

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        if self._plain is not None:
            self._plain.cancel_all()

    def shutdown(self) -> None:
        began = time.monotonic()
        super().shutdown()
        if self._plain is not None:
            self._plain.shutdown()
        print(f"shutdown took {time.monotonic() - began:.2f} s", file=sys.stderr, flush=True)
