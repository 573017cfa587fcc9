"""The spec of each run of a driver (`spec.json`): what its jobs need to know, and whether they are one array.

An array runs ahead of Snakemake, so all its tasks must ask for the same, and need no Snakemake of their own: they run
the rule's script, where the rule and its script are ours as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain_words import ChainWords
from snakemake_executor_plugin_unbroken.segments import Interruptible, Segment
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

# What our rules have, and what the job's script is given.
_INPUTS, _PARAMS, _OUTPUTS = {"previous", "content"}, {"assignment"}, {"record"}


class Host(Protocol):
    """What chains need of the executor."""

    @property
    def is_detached(self) -> bool: ...
    def latency_seconds(self) -> float: ...
    def jobs_of_run(self, run: str) -> list[tuple[Segment, Any]]: ...
    def in_thread(self, function: Callable[..., None], *arguments: object) -> None: ...
    def submitted(self, info: SubmittedJobInfo) -> None: ...
    def succeeded(self, info: SubmittedJobInfo, segment: Segment) -> None: ...
    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str]) -> None: ...
    def log(self, line: str) -> None: ...


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
        latency, benchmark = self._host.latency_seconds(), plain_benchmark(job) or ""
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
        less = self._words.takes_less_time(segment.run)
        return "the tasks of an array would all get segment_minutes: at_least" if less else ""


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
