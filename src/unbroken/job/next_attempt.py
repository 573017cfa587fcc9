"""What follows in a run: the question of a task before its attempt, and of a driver where no job of the run is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unbroken.errors import FormatError
from unbroken.job.chain_job import ChainJob
from unbroken.job.spec import JobSpec
from unbroken.job.stop_note import stop_of
from unbroken.job.unrecorded import has_tried, is_held, unrecorded
from unbroken.runs import attempts as endings
from unbroken.runs import policy
from unbroken.runs.failure_limits import next_action
from unbroken.runs.history import Attempt
from unbroken.runs.policy import Next, NextAction
from unbroken.slurm.ended_job import EndedJob
from unbroken.slurm.job_end import EndState
from unbroken.slurm.nodes import default_partition, own_spare_nodes, spare_nodes


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def next_attempt(job: ChainJob, segment: int, lost: Sequence[Attempt] = ()) -> int:
    """Count the attempts at a segment from 1; Stop if no further one is to be made.

    `lost` are attempts for whose line the disk had no room.
    """
    if why := stop_of(job.key, job.now().start):
        raise Stop(why)
    attempts = _attempts(job.spec, segment, job.log, lost)
    action = _by_policy(job.spec, segment, attempts, own_spare_nodes)
    if action.stops:
        raise Stop(action.why)
    return 1 + policy.failures_in_a_row(attempts, segment)


def after_last_job(spec: JobSpec, segment: int, last: EndedJob, log: Callable[[str], None]) -> NextAction:
    """Return what follows in a run of which no job is left and `last` was the last one.

    OSError or OutageError while the file server is away.
    """
    run = spec.run
    if why := stop_of(spec.key, spec.start):
        return NextAction(Next.STOP, why)
    if last.state == EndState.CANCELLED.value:
        return NextAction(Next.STOP, policy.canceled(last.job_id))
    if is_held(last):
        return NextAction(Next.WAIT, "another job holds the run")
    if not spec.has_begun:
        is_taken = last.state in policy.TAKEN_AWAY
        return NextAction(Next.RESUME if is_taken else Next.RETRY, f"nothing began in it; log: {spec.submission.logs}")

    def spare() -> int:
        return spare_nodes(run.partition or default_partition(), run.nodes or run.tasks)

    try:
        action = _by_policy(spec, segment, _attempts(spec, segment, log, last=last), spare)
    except FormatError as error:  # a newer unbroken was installed, and its job has written the history
        return NextAction(Next.STOP, str(error))
    return action if action.stops or has_tried(last) else NextAction(Next.RESUME)


def _attempts(
    spec: JobSpec,
    segment: int,
    log: Callable[[str], None],
    lost: Sequence[Attempt] = (),
    last: EndedJob | None = None,
) -> list[Attempt]:
    """Return the attempts since the start of snakemake, with those of jobs that could write no line."""
    lost = [*unrecorded(spec.folder, spec.key, spec.start, log, segment if last else 0, last), *lost]
    # The others are in the history from now on.
    return endings.with_causes(policy.of_start([*endings.all_attempts(spec.folder), *lost], spec.start))


def _by_policy(spec: JobSpec, segment: int, attempts: Sequence[Attempt], spare_nodes: Callable[[], int]) -> NextAction:
    rules = policy.Rules(spec.run.attempts_without_progress, spec.retries)
    return next_action(spec.folder, attempts, rules, segment, spare_nodes, spec.folder.log(segment))
