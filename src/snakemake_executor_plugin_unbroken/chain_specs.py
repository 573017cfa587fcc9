"""The spec of each run of a driver (`spec.json`): what its jobs need to know, and whether they are one array.

An array runs ahead of Snakemake, so all its tasks must ask for the same, and need no Snakemake of their own: they run
the rule's script, where the rule and its script are ours as they came.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken import slurm_plugin
from snakemake_executor_plugin_unbroken.segments import Segment, work_of
from unbroken import snakemake_inside
from unbroken.job.attempt import Assignment
from unbroken.job.segment_script import only_hands_on
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions, path_of
from unbroken.slurm.sbatch import gives_all_time, time_min_words, warning_words
from unbroken.store import driver_start
from unbroken.store.layout import LOGS

_SNAKEMAKE = f"{sys.executable} -m snakemake"
# Slurm ends a job by a TERM to the first process of the batch step, a shell. While it waits, its programs have KillWait
# to save; if it dies, all are killed at once. Not `trap ''`, which they would inherit.
PATIENT_SHELL = "trap : TERM; "
# More inputs make too long a command line; the job then waits for none.
MOST_INPUTS = 20
# The second alarm, as in a profile's site.yaml.
WARN_SECONDS = 90
# What our rules have, and what the job's script is given; `prepared` is in that of GROMACS alone.
_INPUTS, _PARAMS, _OUTPUTS = {"previous", "prepared"}, {"assignment"}, {"record"}
_gives_all_time = cache(gives_all_time)


class ChainHost(slurm_plugin.BatchStepExecutor):
    """The executor as chains know it."""

    is_detached: bool  # it only submits
    latency_seconds: float  # until a file is seen here

    def submitted(self, info: SubmittedJobInfo) -> None:
        """Report that a job of the chain does the segment; without a driver, Snakemake then continues."""
        self.report_job_submission(info, register_job=not self.is_detached)

    def succeeded(self, info: SubmittedJobInfo, segment: Segment) -> None:
        """Report that the segment's record is there."""
        if self.is_detached:
            self.submitted(info)
        self.report_job_success(info)

    def failed(self, info: SubmittedJobInfo, line: str, *, is_final: bool, logs: Sequence[str]) -> None:
        """Report that the segment failed, in one line why."""
        if is_final:
            snakemake_inside.give_up(info.job)
        self.log(line)
        self.report_job_error(info, aux_logs=list(logs))

    def log(self, line: str, *, is_routine: bool = False) -> None:
        """Print a line of ours among Snakemake's; a console leaves out what `is_routine`."""
        self.logger.info(f"unbroken: {line}", extra={"is_routine": is_routine})


def spec_of(host: ChainHost, job: Any, segment: Segment) -> tuple[JobSpec, str]:
    """Return the spec of a job's chain, and why its segments are single jobs; empty for an array."""
    batch, command = commands(host, job, segment)
    words = submit_words(host, job, segment)
    if segment.is_rule:
        keys, last, why = None, segment.allowed, ""
        logs = LOGS / "rules" / f"{segment.rule}-{segment.key.rpartition('/')[2]}"
        outputs = tuple(map(str, job.output))
        rule_job = RuleJob(job.rule.name, command=command, outputs=outputs, memory_mb=_memory_by_attempt(job))
    else:
        planned = dict(_jobs_of_run(host, segment.key)) or {segment.number: job}
        keys, last = job.params.assignment.keys, max(segment.number, *planned)
        logs = LOGS / segment.key
        by_script, why = _by_script(host, job, segment)
        rule_job = by_script or RuleJob(job.rule.name, command=command, threads=int(job.threads))
        ends = [planned[min(planned)], planned[max(planned)]]
        why = why or _why_no_array(host, job, segment, words, ends)
    most = 1 if why else host.workflow.executor_settings.ahead
    submission = SubmitOptions(tuple(words), batch, str(logs), most, refills=host.is_detached or not why)
    start, retries = driver_start.current(), snakemake_inside.retries_of(job)
    return JobSpec(segment.key, segment.run, keys, rule_job, submission, last, retries, start), why


def _jobs_of_run(host: ChainHost, key: str) -> Iterator[tuple[int, Any]]:
    """Yield the segments of a run that Snakemake is to run, by their numbers, and their jobs."""
    for job in snakemake_inside.planned_jobs(host.workflow):
        if (segment := work_of(job)) is not None and segment.key == key:
            yield segment.number, job


def submit_words(host: ChainHost, job: Any, segment: Segment) -> list[str]:
    """Return the words for sbatch of a segment's job: the same for all of a run whose segments ask for the same."""
    name = f"--job-name={segment.rule if segment.is_rule else segment.key}-segments"
    runtime = job.resources.get("runtime")
    # `slurm_extra` of the rule comes later and counts.
    own = warning_words(runtime, WARN_SECONDS) if segment.is_rule and isinstance(runtime, int | float) else []
    least = segment.run.least_minutes
    more = time_min_words(least) if least is not None and _gives_all_time() else []
    return [name, *own, *slurm_plugin.sbatch_words(host, job), *more]


def commands(host: ChainHost, job: Any, segment: Segment) -> tuple[str, tuple[str, ...]]:
    """Return what a job of the chain runs, and the command by which Snakemake would run the rule's job in it."""
    before, found, after = host.format_job_exec(job).partition(_SNAKEMAKE)
    if not found:
        raise WorkflowError(f"the command of a job lacks {_SNAKEMAKE!r}: another Snakemake than 9.27")
    own = shlex.join(["-m", "unbroken.job", str(path_of(segment.key))])
    batch, more = f"{PATIENT_SHELL}{before}{sys.executable} {own}", ["--keep-incomplete"]
    if segment.is_rule:
        # Where `unbroken` is this one; PATH is read by whichever shell runs the job.
        batch = f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; {batch}'
        # Such a job may wait in the queue for longer than its driver lives; of a segment's job only the job itself
        # knows which record is before it.
        inputs = [str(path) for path in job.get_wait_for_files()]
        more = ["--wait-for-files", *inputs] if 0 < len(inputs) <= MOST_INPUTS else []
    return batch, (sys.executable, "-m", "snakemake", *shlex.split(after), *more)


def _why_no_array(host: ChainHost, job: Any, segment: Segment, words: list[str], ends: Sequence[Any]) -> str:
    """Return why the segments of a run cannot be one array; `ends` are the first and the last job of it."""
    limits = host.workflow.resource_settings.resources
    if limited := sorted(name for name in limits if not name.startswith("_") and name in dict(job.resources.items())):
        return f"--resources limits {', '.join(limited)}"
    if any(submit_words(host, other, segment) != words for other in ends):
        return "its resources depend on the segment"
    is_the_same = _at_attempt(job, job.attempt + 1, lambda: submit_words(host, job, segment)) == words
    return "" if is_the_same else "its resources depend on the attempt"


def _by_script(host: ChainHost, job: Any, segment: Segment) -> tuple[RuleJob | None, str]:
    """Return how a task runs the rule's script itself, or why it needs a Snakemake, which plans the workflow again."""
    script, tmpdir = snakemake_inside.local_script(job), snakemake_inside.plain_tmpdir(job)
    if script is None or not only_hands_on(script):
        return None, "its rule has another script than unbroken's"
    if snakemake_inside.asks_more_of_snakemake(job):
        return None, "its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)"
    if not _is_as_it_came(job, segment):
        return None, "the input, output, params or log of its rule were changed"
    if tmpdir is None:
        return None, "only Snakemake can say its resource tmpdir"
    resources = {name: value for name, value in job.resources.items() if isinstance(value, int | float | str)}
    resources = {**resources, "tmpdir": tmpdir}
    if not tmpdir:
        del resources["tmpdir"]  # the node's own
    return RuleJob(job.rule.name, str(script), (), int(job.threads), resources, host.latency_seconds), ""


def _is_as_it_came(job: Any, segment: Segment) -> bool:
    names = set(job.input.keys()), set(job.params.keys()), set(job.output.keys())
    has_ours = names[0] <= _INPUTS and names[1] == _PARAMS and names[2] == _OUTPUTS
    has_counts = len(job.params) == len(job.output) == len(job.log) == 1
    is_ours = has_ours and has_counts and isinstance(job.params.get("assignment"), Assignment)
    return is_ours and str(job.log[0]) == str(segment.folder.log(segment.number))


def _memory_by_attempt(job: Any) -> tuple[int, ...]:
    """Return the mem_mb of a job at each attempt that Snakemake would make; nothing where a job asks for none."""
    attempts = range(1, snakemake_inside.retries_of(job) + 2)
    found = tuple(_at_attempt(job, attempt, lambda: job.resources.get("mem_mb")) for attempt in attempts)
    return found if all(isinstance(mem_mb, int) for mem_mb in found) else ()


def _at_attempt(job: Any, attempt: int, look: Callable[[], Any]) -> Any:
    """Return what `look` returns while a job of Snakemake is at another attempt."""
    before, job.attempt = job.attempt, attempt
    try:
        return look()
    finally:
        job.attempt = before
