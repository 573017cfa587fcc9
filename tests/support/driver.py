"""A real executor with as much of Snakemake around it as it asks for, for states that no real driver can be kept in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.settings import SharedFSUsage
from support.toyrun import KEYS, ROOT, toy_run

from snakemake_executor_plugin_unbroken import Executor, ExecutorSettings, chain_specs
from snakemake_executor_plugin_unbroken.chain import NEVER, Chain
from snakemake_executor_plugin_unbroken.executor import SEGMENT
from snakemake_executor_plugin_unbroken.segments import Segment, work_of
from unbroken.job.array import Answer, Submitted
from unbroken.job.attempt import Assignment
from unbroken.slurm.job import ListedJob
from unbroken.store import driver_start
from unbroken.store.history import Attempt, EndKind

LATENCY_SECONDS = 5.0
START = "20260101T000000Z-0badcafe"


def segment(number: int = 1, **changes: object) -> Segment:
    """Return a segment of the run `demo`."""
    return Segment(toy_run(**changes), number, "toy_segment", ("demo", f"{number:03d}"))


def attempt(outcome: EndKind, **changes: object) -> Attempt:
    """Return a line of history of that run, of an attempt that failed."""
    values: dict[str, object] = {
        "token": 1,
        "segment": 1,
        "driver_attempt": 1,
        "kind": outcome,
        "started_utc": "2026-01-01T00:00:00Z",
        "ended_utc": "2026-01-01T00:10:00Z",
        "from_checkpoint": None,
        "to_checkpoint": None,
        "progress_from": 0.0,
        "progress_to": 0.0,
        "unit": "steps",
        "work_seconds": 1.0,
        "saves": 0,
        "save_seconds": 0.0,
        "stop_seconds": None,
        "unused_seconds": None,
        "exit_code": 1,
        "host": "node1",
        "pid": 1,
        "slurm_job": "17",
        "message": "the program ended with exit code 1",
    }
    return Attempt(**{**values, **changes})  # type: ignore[arg-type]


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


WORDS = ("-p", "short")


def words(executor: object, job: Any, segment: Segment) -> list[str]:
    """What the plugin makes of a job's resources, which needs a whole workflow."""
    found = {name: value(job) if callable(value) else value for name, value in job.resources.items()}
    return [*WORDS, *(f"--{name}={value}" for name, value in found.items())]


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
        self.executor = Executor(self.workflow, SimpleNamespace(info=self._info, warning=print, error=print))
        monkeypatch.setattr(self.executor, "in_thread", lambda function, *arguments: function(*arguments))
        monkeypatch.setattr(self.executor, "format_job_exec", lambda job: f"{sys.executable} -m snakemake")
        monkeypatch.setattr(chain_specs, "submit_words", words)
        self.said.clear()

    def _info(self, line: str, extra: object) -> None:
        self.said.append(line)

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
            scheduler=scheduler,
            main_snakefile="Snakefile",
            workdir_init=str(Path().resolve()),
            rules=[],
            dag=SimpleNamespace(needrun_jobs=lambda: list(self.planned)),
            persistence=SimpleNamespace(),
        )

    def job(self, segment: Segment, is_single: bool = False, **changes: object) -> SimpleNamespace:
        """What is asked of a job of Snakemake's: of our rule as it came, but for `is_single`, or of somebody's."""
        is_rule = segment.is_rule
        values: dict[str, object] = {
            "is_group": lambda: False,
            "is_local": False,
            "name": segment.rule,
            "rule": self._rule(segment.rule, "" if is_rule else "segment.py"),
            "params": Params({} if is_rule else {"assignment": Assignment(segment.run, KEYS)}),
            "wildcards": Wildcards(run=segment.run.name, segment=f"{segment.number:03d}"),
            "resources": {},
            "input": Files((), ()),
            "output": Files(["record"], [str(segment.record)]),
            "log": Files((), [str(segment.folder.log(segment.number))]),
            "threads": 1,
            "benchmark": None,
            "attempt": 1,
            "restart_times": 2,
            "log_info": lambda: None,
            "log_error": self._log_error,
            "register": lambda external_jobid: None,
            "get_wait_for_files": list,
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
        executor = self.executor
        chain = executor._chains.setdefault(segment.key, Chain(segment, executor, executor._queue))
        info = SubmittedJobInfo(job, external_jobid=job_id, aux={SEGMENT: segment})
        chain.active[segment] = info
        chain.found = Submitted(Answer.DONE, job_id, 1)
        chain._spec_for(segment)
        return info

    def chain(self, segment: Segment) -> Chain:
        """What the driver knows of a run."""
        return self.executor._chains[segment.key]

    def ends(self, info: SubmittedJobInfo, last: ListedJob) -> bool:
        """No job of the run is left; return False if it is too early to say what follows."""
        segment = info.aux[SEGMENT]
        self.chain(segment)._end = last
        self.chain(segment).see_to(segment)
        return self.chain(segment).due == NEVER

    def try_again(self, job: Any) -> None:
        """The time has come to see to a job again."""
        segment = work_of(job)
        assert segment is not None
        self.chain(segment).see_to(segment)

    def active(self) -> list[SubmittedJobInfo]:
        """The jobs of Snakemake that wait for their records."""
        return [info for chain in self.executor._chains.values() for info in chain.active.values()]

    def postponed(self) -> list[Any]:
        """The jobs that are seen to again later."""
        chains = self.executor._chains.values()
        return [info.job for chain in chains if chain.due != NEVER for info in chain.active.values()]

    def lines(self) -> list[str]:
        """What was said since this was asked last."""
        said = [line.removeprefix("unbroken: ") for line in self.said]
        self.said.clear()
        return said

    def canceled(self) -> list[list[str]]:
        """What scancel was asked, call by call."""
        path = self.slurm.folder / "canceled"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(state: str = "FAILED", job_id: str = "17", exit_code: int = 1) -> ListedJob:
    """The end of a run's last job, as Slurm has said it."""
    return ListedJob(job_id, state, node="node1", exit_code=exit_code)


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
