"""The spec of each run of a driver: what the jobs of its chain need to know."""

from __future__ import annotations

from typing import Any, Protocol

from snakemake_executor_plugin_unbroken.chain_words import ChainWords
from snakemake_executor_plugin_unbroken.interruptible import Interruptible
from snakemake_executor_plugin_unbroken.job_specs import NotAsItCame, memory_by_attempt, rule_job_of, why_no_array
from snakemake_executor_plugin_unbroken.segments import Segment, segment_of
from snakemake_executor_plugin_unbroken.snakemake_jobs import retries_of
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions, path_of
from unbroken.runs import begun, driver_start


class SpecHost(Protocol):
    """What the specs need of the executor."""

    @property
    def is_detached(self) -> bool: ...
    def jobs_of_run(self, run: str) -> list[Any]: ...
    def latency_seconds(self) -> float: ...
    def log(self, line: str) -> None: ...


class ChainSpecs:
    """The specs that this driver has written, by the keys of their chains."""

    def __init__(self, host: SpecHost, words: ChainWords, most_tasks: int) -> None:
        self._host, self._words, self._most_tasks = host, words, most_tasks
        self._specs: dict[str, JobSpec] = {}

    def known(self, segment: Segment) -> JobSpec:
        """Return the spec that was written; KeyError if none was."""
        return self._specs[segment.key]

    def of(self, job: Any, segment: Segment) -> JobSpec:
        """Return the run's spec, written once for each start; for single jobs once for each of them.

        FormatError if that of a newer unbroken is there; OSError if it cannot be written.
        """
        known = self._specs.get(segment.key)
        if known is not None and known.submission.refills:
            return known
        if known is None and not isinstance(segment, Interruptible):
            begun.note_if_there(segment.places)
        spec, why = self._made(job, segment)
        if why and known is None:
            self._host.log(f"{segment.run.name}: single jobs instead of one array: {why}")
        spec.write()
        self._specs[segment.key] = spec
        return spec

    def _made(self, job: Any, segment: Segment) -> tuple[JobSpec, str]:
        """Return the spec, and why the segments are single jobs; empty for an array."""
        batch, command = self._words.batch(job, segment, path_of(segment.key))
        if isinstance(segment, Interruptible):
            memory_mb = memory_by_attempt(job)
            rule_job = RuleJob(job.rule.name, command=command, outputs=tuple(map(str, job.output)), memory_mb=memory_mb)
            return self._with(job, segment, rule_job, self._submission(job, segment, batch, ""), segment.allowed), ""
        jobs = self._host.jobs_of_run(segment.run.name) or [job]
        try:
            rule_job = rule_job_of(job, segment, self._host.latency_seconds())
            why = why_no_array(job, jobs, lambda other: self._words.of_sbatch(other, segment))
            if not why and self._words.takes_less_time(segment.run):
                why = "the tasks of an array would all get segment_minutes: at_least"
        except NotAsItCame as error:
            rule_job, why = RuleJob(job.rule.name, command=command, threads=int(job.threads)), error.why
        last = max(found.number for other in (*jobs, job) if (found := segment_of(other)) is not None)
        return self._with(job, segment, rule_job, self._submission(job, segment, batch, why), last), why

    def _submission(self, job: Any, segment: Segment, batch: str, why_single: str) -> SubmitOptions:
        return SubmitOptions(
            tuple(self._words.of_sbatch(job, segment)),
            batch,
            str(segment.logs),
            1 if why_single else self._most_tasks,
            refills=self._host.is_detached or not why_single,
        )

    def _with(self, job: Any, segment: Segment, rule_job: RuleJob, submission: SubmitOptions, last: int) -> JobSpec:
        keys = None if isinstance(segment, Interruptible) else job.params.assignment.keys
        start, retries = driver_start.current(), retries_of(job)
        return JobSpec(segment.key, segment.run, keys, rule_job, submission, last, retries, start)
