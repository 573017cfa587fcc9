"""A real executor with as much of Snakemake around it as it asks for, for states that no real driver can be kept in."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from support.toyrun import KEYS

from snakemake_executor_plugin_unbroken import Executor, ExecutorSettings
from snakemake_executor_plugin_unbroken.segments import Out, Segment, keep_out
from snakemake_executor_plugin_unbroken.watch import EndedJobOfSegment
from unbroken.runs import driver_start
from unbroken.segment.job import Assignment

LATENCY_SECONDS = 5.0


class Wildcards(dict[str, str]):
    """As Snakemake's: a list of values that are also found by name."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.values())


class Driver:
    """The executor, and what it says to the scheduler, to the user and of each job; its own thread never looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slurm: Any) -> None:
        self.said: list[str] = []
        self.done: list[Any] = []
        self.failed: list[Any] = []
        self.submitted: list[Any] = []
        self.errors: list[str] = []
        self.slurm = slurm
        slurm.answer("scontrol", "echo MaxArraySize = 1001")
        slurm.answer("sacct", "exit 1")
        slurm.answer("scancel", "exit 0")
        Path(".snakemake").mkdir(exist_ok=True)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setenv(driver_start.START, "")
        monkeypatch.setattr(Executor, "_wait_thread", lambda self: None)
        self.executor = Executor(self._workflow(), SimpleNamespace(info=self.said.append, warning=print, error=print))
        self.said.clear()

    def _workflow(self) -> SimpleNamespace:
        scheduler = SimpleNamespace(
            finish_callback=self.done.append, error_callback=self.failed.append, submit_callback=self.submitted.append
        )
        return SimpleNamespace(
            executor_settings=ExecutorSettings(),
            execution_settings=SimpleNamespace(latency_wait=LATENCY_SECONDS),
            remote_execution_settings=SimpleNamespace(
                immediate_submit=False, max_status_checks_per_second=10, jobname="{jobid}", jobscript=None
            ),
            storage_settings=SimpleNamespace(shared_fs_usage=frozenset()),
            scheduler=scheduler,
            main_snakefile="Snakefile",
            workdir_init=str(Path().resolve()),
            rules=[],
            dag=SimpleNamespace(needrun_jobs=lambda: []),
            persistence=SimpleNamespace(external_jobids=lambda job: []),
        )

    def job(self, segment: Segment, **changes: object) -> SimpleNamespace:
        """What is asked of a job of Snakemake's."""
        values: dict[str, object] = {
            "is_group": lambda: False,
            "name": segment.rule,
            "rule": SimpleNamespace(name=segment.rule, script=None),
            "params": {"assignment": Assignment(segment.run, KEYS)},
            "wildcards": Wildcards(run=segment.run.name, segment=f"{segment.number:03d}"),
            "resources": {},
            "output": [str(segment.record)],
            "attempt": 1,
            "restart_times": 2,
            "log_error": lambda msg, **words: self.errors.append(msg or ""),
            "register": lambda external_jobid: None,
        }
        return SimpleNamespace(**{**values, **changes})

    def out(self, job: Any, segment: Segment, job_id: str = "17", leaves_record: bool = True) -> SubmittedJobInfo:
        """A job that is in the queue."""
        info = SubmittedJobInfo(job, external_jobid=job_id)
        keep_out(info, Out(segment, job_id, leaves_record=leaves_record))
        return info

    def postponed(self) -> list[Any]:
        """The jobs that are handed over again later, once the threads that submit have nothing left to do."""
        self.executor._job_submission_executor.shutdown(wait=True)
        return self.executor._later.all()

    def lines(self) -> list[str]:
        """What was said since this was asked last."""
        said = [line.removeprefix("unbroken: ") for line in self.said]
        self.said.clear()
        return said


def ended(state: str = "FAILED", ago_seconds: float = 0.0) -> EndedJobOfSegment:
    """A job of which Slurm has said so."""
    return EndedJobOfSegment(state, time.monotonic() - ago_seconds)
