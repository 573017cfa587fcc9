"""A real executor with as much of Snakemake around it as it asks for, for states that no real driver can be kept in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.settings import SharedFSUsage
from support.toyrun import KEYS, ROOT

from snakemake_executor_plugin_unbroken import Executor, ExecutorSettings
from snakemake_executor_plugin_unbroken.interruptible import Interruptible
from snakemake_executor_plugin_unbroken.segments import Out, Segment, keep_out
from snakemake_executor_plugin_unbroken.watch import EndedChain
from unbroken.runs import driver_start
from unbroken.segment.job import Assignment

LATENCY_SECONDS = 5.0
START = "20260101T000000Z-0badcafe"


class Wildcards(dict[str, str]):
    """As Snakemake's: a list of values that are also found by name."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.values())


class Params(dict[str, Any]):
    """As Snakemake's: values that are found by name and as attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class File(str):
    """A file of a rule, which lies in no storage of Snakemake's."""

    is_storage = False


class Files(list[File]):
    """As Snakemake's: a list of files that have names."""

    def __init__(self, names: Iterable[str], files: Iterable[str]) -> None:
        super().__init__(map(File, files))
        self._names = list(names)

    def keys(self) -> list[str]:
        return self._names


class Words:
    """What `ChainWords` asks of Snakemake and the plugin, which need a whole workflow: a job's resources as words."""

    WORDS = ("-p", "short")

    def of_sbatch(self, job: Any, segment: Segment) -> list[str]:
        found = {name: value(job) if callable(value) else value for name, value in job.resources.items()}
        return [*self.WORDS, *(f"--{name}={value}" for name, value in found.items())]

    def batch(self, job: Any, segment: Segment, spec_path: Path) -> tuple[str, tuple[str, ...]]:
        return f"do {spec_path}", ("snakemake",)

    def takes_less_time(self, run: object) -> bool:
        return False


class Driver:
    """The executor, and what it says to the scheduler, to the user and of each job; its own thread never looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slurm: Any, is_detached: bool = False) -> None:
        self.said: list[str] = []
        self.done: list[Any] = []
        self.failed: list[Any] = []
        self.submitted: list[Any] = []
        self.errors: list[str] = []
        self.shown_logs: list[str] = []
        self.planned: list[Any] = []  # jobs that Snakemake is to run
        self.slurm = slurm
        slurm.answer("scontrol", "echo MaxArraySize = 1001")
        slurm.answer("sacct", "exit 1")
        slurm.answer("scancel", f'echo "$@" >> {slurm.folder}/canceled')
        Path(".snakemake").mkdir(exist_ok=True)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setenv(driver_start.START, START)
        monkeypatch.setattr(Executor, "_wait_thread", lambda self: None)
        self.workflow = self._workflow(is_detached)
        self.executor = Executor(self.workflow, SimpleNamespace(info=self.said.append, warning=print, error=print))
        self.executor._chains._specs._words = Words()  # type: ignore[assignment]
        self.said.clear()

    def _workflow(self, is_detached: bool) -> SimpleNamespace:
        scheduler = SimpleNamespace(
            finish_callback=self.done.append,
            error_callback=self.failed.append,
            submit_callback=self.submitted.append,
            _user_kill=None,
        )
        return SimpleNamespace(
            executor_settings=ExecutorSettings(),
            execution_settings=SimpleNamespace(latency_wait=LATENCY_SECONDS),
            remote_execution_settings=SimpleNamespace(
                immediate_submit=is_detached, max_status_checks_per_second=10, jobname="{jobid}", jobscript=None
            ),
            storage_settings=SimpleNamespace(shared_fs_usage=frozenset(SharedFSUsage), default_storage_provider=None),
            resource_settings=SimpleNamespace(overwrite_resources={}, resources={}),
            output_settings=SimpleNamespace(benchmark_extended=False),
            scheduler=scheduler,
            main_snakefile="Snakefile",
            workdir_init=str(Path().resolve()),
            rules=[],
            dag=SimpleNamespace(needrun_jobs=lambda: list(self.planned)),
            persistence=SimpleNamespace(),
        )

    def job(self, segment: Segment, is_single: bool = False, **changes: object) -> SimpleNamespace:
        """What is asked of a job of Snakemake's: of our rule as it came, but for `is_single`, or of somebody's."""
        is_rule = isinstance(segment, Interruptible)
        values: dict[str, object] = {
            "is_group": lambda: False,
            "name": segment.rule,
            "rule": self._rule(segment.rule, "" if is_rule else "toy_segment.py"),
            "params": Params({} if is_rule else {"assignment": Assignment(segment.run, KEYS)}),
            "wildcards": Wildcards(run=segment.run.name, segment=f"{segment.number:03d}"),
            "resources": {},
            "input": Files((), ()),
            "output": Files(["record"], [str(segment.record)]),
            "log": Files((), [str(segment.places.log(segment.number))]),
            "threads": 1,
            "benchmark": None,
            "attempt": 1,
            "restart_times": 2,
            "log_info": lambda: None,
            "log_error": self._log_error,
            "register": lambda external_jobid: None,
            **dict.fromkeys(("group", "conda_env_spec", "container_img_url", "env_modules")),
        }
        if is_rule:
            values["output"] = Files((), ["model.pt"])
            values["resources"] = {"segments": segment.allowed}
            values["wildcards"] = Wildcards()
        if is_single:
            values["conda_env_spec"] = "env.yaml"
        return SimpleNamespace(**{**values, **changes})

    def _log_error(self, msg: str | None = None, aux_logs: Iterable[str] = (), **words: object) -> None:
        self.errors.append(msg or "")
        self.shown_logs += aux_logs

    def _rule(self, name: str, script: str) -> SimpleNamespace:
        folder = SimpleNamespace(
            join=lambda file: SimpleNamespace(get_path_or_uri=lambda secret_free: ROOT / "scripts" / file)
        )
        nothing = dict.fromkeys(
            ("shadow_depth", "template_engine", "notebook", "cwl", "is_handover", "is_checkpoint", "benchmark")
        )
        return SimpleNamespace(
            name=name, script=script or None, basedir=folder, workflow=self.workflow, resources={}, **nothing
        )

    def plan(self, *segments: Segment, **changes: object) -> list[SimpleNamespace]:
        """The jobs that Snakemake is to run, in the order of their segments."""
        self.planned[:] = [self.job(segment, **changes) for segment in segments]  # type: ignore[arg-type]
        return list(self.planned)

    def out(self, job: Any, segment: Segment, job_id: str = "17") -> SubmittedJobInfo:
        """A job of Snakemake's whose run has jobs in the queue, as this driver submitted them."""
        chains = self.executor._chains
        chains._specs.of(job, segment)
        info = SubmittedJobInfo(job, external_jobid=job_id)
        keep_out(info, Out(segment, job_id))
        chains._out[segment] = info
        return info

    def postponed(self) -> list[Any]:
        """The jobs that are handed over again later, once the threads that submit have nothing left to do."""
        self.executor._threads.shutdown(wait=True)
        return self.executor._chains.postponed()

    def lines(self) -> list[str]:
        """What was said since this was asked last."""
        said = [line.removeprefix("unbroken: ") for line in self.said]
        self.said.clear()
        return said

    def canceled(self) -> list[list[str]]:
        """What scancel was asked, call by call."""
        path = self.slurm.folder / "canceled"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(state: str = "FAILED", job_id: str = "17", ago_seconds: float = 0.0) -> EndedChain:
    """The end of a run's last job, as Slurm has said it."""
    return EndedChain(job_id, state, time.monotonic() - ago_seconds)


def shows(slurm: Any, *jobs: str, key: str = "demo") -> None:
    """The whole of what squeue shows from now on, such as `17_1 RUNNING`, `17_[2-5%1] PENDING`."""
    (slurm.folder / "queue").write_text("")
    for job in jobs:
        number, state = job.rsplit(" ", 1)
        slurm.shows(number, state, key=key)


def ends_as(slurm: Any, job_id: str, state: str, exit_code: int = 1, more: Mapping[str, str] | None = None) -> None:
    """What scontrol says from now on of the run's last job."""
    words = {"JobState": state, "BatchHost": "node1", "NodeList": "node1", "ExitCode": f"{exit_code}:0", **(more or {})}
    shown = " ".join(f"{name}={value}" for name, value in words.items())
    slurm.answer("scontrol", f'case "$*" in *job*{job_id}*) echo "{shown}";; *) echo MaxArraySize = 1001;; esac')
