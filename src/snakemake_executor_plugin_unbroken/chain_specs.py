"""The spec of each run of a driver (`spec.json`): what its jobs need to know, and whether they are one array.

An array runs ahead of Snakemake, so all its tasks must ask for the same, and need no Snakemake of their own: they run
the rule's script, where the rule and its script are ours as they came.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.segments import Interruptible, Segment
from snakemake_executor_plugin_unbroken.slurm_plugin import BatchStepExecutor, command, sbatch_words
from snakemake_executor_plugin_unbroken.snakemake_jobs import (
    asks_more_of_snakemake,
    limited_resources,
    local_script,
    plain_benchmark,
    plain_tmpdir,
    retries_of,
)
from unbroken.job.segment_script import only_hands_on
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions, path_of
from unbroken.runs import driver_start
from unbroken.runs.layout import LOGS
from unbroken.segment.job import Assignment
from unbroken.slurm import time_min

_SNAKEMAKE = f"{sys.executable} -m snakemake"
# More inputs make too long a command line; the job then waits for none.
MOST_INPUTS = 20
# The second alarm, as in a profile's site.yaml; not in the first half of a job, whose work would end by it.
WARN_SECONDS = 90
EARLY_SECONDS = 60
# What our rules have, and what the job's script is given.
_INPUTS, _PARAMS, _OUTPUTS = {"previous", "content"}, {"assignment"}, {"record"}


class Host(Protocol):
    """What chains need of the executor."""

    is_detached: bool
    latency_seconds: float

    def jobs_of_run(self, run: str) -> list[tuple[Segment, Any]]: ...
    def in_thread(self, function: Callable[..., None], *arguments: object) -> None: ...
    def submitted(self, info: SubmittedJobInfo) -> None: ...
    def succeeded(self, info: SubmittedJobInfo, segment: Segment) -> None: ...
    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str]) -> None: ...
    def log(self, line: str) -> None: ...


class ChainWords:
    """The words of an executor's chains."""

    def __init__(self, executor: BatchStepExecutor) -> None:
        self._executor = executor

    def of_sbatch(self, job: Any, segment: Segment) -> list[str]:
        """Return the words for sbatch of a segment's job: the same for all of a run whose segments ask for the same."""
        is_rule = isinstance(segment, Interruptible)
        own = early_signal(job.resources.get("runtime")) if is_rule else []
        is_less_enough = segment.run.least_minutes is not None and self._gives_all_time
        more = time_min.words(segment.run.least_minutes) if is_less_enough else []
        name = f"--job-name={segment.rule if is_rule else segment.run.name}-segments"
        return [name, *own, *sbatch_words(self._executor, job), *more]

    def batch(self, job: Any, segment: Segment, spec_path: Path) -> tuple[str, tuple[str, ...]]:
        """Return what a job of the chain runs, and the command by which Snakemake would run the rule's job in it."""
        is_rule = isinstance(segment, Interruptible)
        # Such a job may wait in the queue for longer than its driver lives; of a segment's job only the job itself
        # knows which record is before it.
        inputs = [str(path) for path in job.get_wait_for_files()] if is_rule else []
        waits_for = inputs if len(inputs) <= MOST_INPUTS else []
        text = command(self._executor, job, waits_for=waits_for, keeps_incomplete=not is_rule)
        before, found, after = text.partition(_SNAKEMAKE)
        if not found:
            raise WorkflowError(f"the command of a job lacks {_SNAKEMAKE!r}: another Snakemake than 9.27")
        if is_rule:  # where `unbroken` is this one; PATH is read by whichever shell runs the job
            before = f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; {before}'
        own = shlex.join(["-m", "unbroken.job", str(spec_path)])
        return f"{before}{sys.executable} {own}", (sys.executable, "-m", "snakemake", *shlex.split(after))

    @cached_property
    def _gives_all_time(self) -> bool:
        return time_min.gives_all_time()


class ChainSpecs:
    """Makes the specs of a driver."""

    def __init__(self, host: Host, words: ChainWords, most_tasks: int) -> None:
        self._host, self._words, self._most_tasks = host, words, most_tasks

    def made(self, job: Any, segment: Segment) -> tuple[JobSpec, str]:
        """Return the spec, and why the segments are single jobs; empty for an array."""
        batch, command = self._words.batch(job, segment, path_of(segment.key))
        if isinstance(segment, Interruptible):
            keys, last, why = None, segment.allowed, ""
            logs = LOGS / "rules" / f"{segment.rule}-{segment.key.rpartition('/')[2]}"
            outputs = tuple(map(str, job.output))
            rule_job = RuleJob(job.rule.name, command=command, outputs=outputs, memory_mb=_memory_by_attempt(job))
        else:
            jobs = self._host.jobs_of_run(segment.key) or [(segment, job)]
            keys, last = job.params.assignment.keys, max(segment.number, jobs[-1][0].number)
            logs = LOGS / segment.run.name
            why = why_only_snakemake(job, segment)
            by_snakemake = RuleJob(job.rule.name, command=command, threads=int(job.threads))
            rule_job = by_snakemake if why else self._by_script(job)
            why = why or self._why_no_array(job, segment, [jobs[0][1], jobs[-1][1]])
        submission = SubmitOptions(
            tuple(self._words.of_sbatch(job, segment)),
            batch,
            str(logs),
            1 if why else self._most_tasks,
            refills=self._host.is_detached or not why,
        )
        start, retries = driver_start.current(), retries_of(job)
        return JobSpec(segment.key, segment.run, keys, rule_job, submission, last, retries, start), why

    def _by_script(self, job: Any) -> RuleJob:
        resources = {name: value for name, value in job.resources.items() if isinstance(value, int | float | str)}
        resources.pop("tmpdir", None)
        if tmpdir := plain_tmpdir(job):
            resources["tmpdir"] = tmpdir
        latency, benchmark = self._host.latency_seconds, plain_benchmark(job) or ""
        return RuleJob(job.rule.name, str(local_script(job)), (), int(job.threads), resources, latency, benchmark)

    def _why_no_array(self, job: Any, segment: Segment, ends: Sequence[Any]) -> str:
        """Return why the segments of a run cannot be one array; `ends` are the first and the last job of it."""
        if limited := limited_resources(job):
            return f"--resources limits {', '.join(limited)}"
        words = self._words.of_sbatch(job, segment)
        if any(self._words.of_sbatch(other, segment) != words for other in ends):
            return "its resources depend on the segment"
        with _at_attempt(job, job.attempt + 1):
            if self._words.of_sbatch(job, segment) != words:
                return "its resources depend on the attempt"
        return ""


def why_only_snakemake(job: Any, segment: Segment) -> str:
    """Return why a job needs a Snakemake of its own, which plans the workflow again; empty if it does not."""
    script = local_script(job)
    if script is None or not only_hands_on(script):
        return "its rule has another script than unbroken's"
    if asks_more_of_snakemake(job):
        return "its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)"
    if not _is_as_it_came(job, segment):
        return "the input, output, params or log of its rule were changed"
    if plain_tmpdir(job) is None:
        return "only Snakemake can say its resource tmpdir"
    return "its benchmark: is repeated or extended" if plain_benchmark(job) is None else ""


def _is_as_it_came(job: Any, segment: Segment) -> bool:
    names = set(job.input.keys()), set(job.params.keys()), set(job.output.keys())
    has_ours = names[0] <= _INPUTS and names[1] == _PARAMS and names[2] == _OUTPUTS
    has_counts = len(job.params) == len(job.output) == len(job.log) == 1
    is_ours = has_ours and has_counts and isinstance(job.params.get("assignment"), Assignment)
    return is_ours and str(job.log[0]) == str(segment.places.log(segment.number))


def _memory_by_attempt(job: Any) -> tuple[int, ...]:
    """Return the mem_mb of a job at each attempt that Snakemake would make; nothing where a job asks for none."""
    found = list[int]()
    for attempt in range(1, retries_of(job) + 2):
        with _at_attempt(job, attempt):
            mem_mb = job.resources.get("mem_mb")
        if not isinstance(mem_mb, int):
            return ()
        found.append(mem_mb)
    return tuple(found)


@contextmanager
def _at_attempt(job: Any, attempt: int) -> Iterator[None]:
    """Let a job of Snakemake be at another attempt inside the block."""
    before, job.attempt = job.attempt, attempt
    try:
        yield
    finally:
        job.attempt = before


def early_signal(runtime_minutes: object) -> list[str]:
    """Return the words for sbatch that let Slurm warn the job; `slurm_extra` of the rule comes later and counts."""
    is_long = isinstance(runtime_minutes, int | float) and runtime_minutes * 30 - EARLY_SECONDS >= WARN_SECONDS
    return [f"--signal=URG@{WARN_SECONDS}"] if is_long else []
