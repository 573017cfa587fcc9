"""What follows in a run: the question of a task before its attempt, and of a driver where no job of the run is left.

The job that decides that a run stops notes why, for the tasks that start meanwhile and for the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

from unbroken.errors import FormatError
from unbroken.job.chain_job import ChainJob
from unbroken.job.spec import JobSpec
from unbroken.job.unrecorded import unrecorded
from unbroken.runs import attempts as endings
from unbroken.runs import policy
from unbroken.runs.failure_limits import next_action
from unbroken.runs.history import Attempt
from unbroken.runs.job_note import said_by_exit_code
from unbroken.runs.layout import CHAINS
from unbroken.runs.policy import Next, NextAction
from unbroken.runs.segment_end import EndKind
from unbroken.slurm.ended_job import EndedJob
from unbroken.slurm.job_end import EndState
from unbroken.slurm.nodes import default_partition, own_spare_nodes, spare_nodes
from unbroken.system import fs, jsontext

_STOPPED = "stopped.json"


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def note_stop(key: str, start: str, why: str) -> None:
    """Write why a run has stopped; a disk that takes no note ends no work."""
    with suppress(OSError):
        fs.write_atomic(CHAINS / key / _STOPPED, json.dumps({"start": start, "why": why}) + "\n")


def stop_of(key: str, start: str) -> str:
    """Return why the chain has stopped since this start of snakemake; empty if it has not, or nothing says so."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        data = jsontext.parse((CHAINS / key / _STOPPED).read_text())
        return str(data["why"]) if data["start"] == start else ""
    return ""


def next_attempt(job: ChainJob, segment: int, lost: Sequence[Attempt] = ()) -> int:
    """Count the attempts at a segment from 1; Stop if no further one is to be made.

    `lost` are attempts for whose line the disk had no room.
    """
    if why := stop_of(job.key, job.now().start):
        raise Stop(why)
    attempts, action = _by_policy(job.spec, segment, [*unrecorded(job.spec, job.log), *lost], own_spare_nodes)
    if action.stops:
        raise Stop(action.why)
    return 1 + policy.failures_in_a_row(attempts, segment)


def after_last_job(spec: JobSpec, segment: int, last: EndedJob, log: Callable[[str], None]) -> NextAction:
    """Return what follows in a run of which no job is left and `last` was the last one.

    OSError or OutageError while the file server is away.
    """
    run, said = spec.run, said_by_exit_code(last.exit_code)
    if why := stop_of(spec.key, spec.start):
        return NextAction(Next.STOP, why)
    if last.state == EndState.CANCELLED.value:
        return NextAction(Next.STOP, policy.canceled(last.job_id))
    if said is EndKind.HELD:
        return NextAction(Next.WAIT, "another job holds the run")
    if not spec.has_begun:
        is_taken = last.state in policy.TAKEN_AWAY
        return NextAction(Next.RESUME if is_taken else Next.RETRY, f"nothing began in it; log: {spec.submission.logs}")

    def spare() -> int:
        return spare_nodes(run.partition or default_partition(), run.nodes or run.tasks)

    try:
        _, action = _by_policy(spec, segment, unrecorded(spec, log, segment, last), spare)
    except FormatError as error:  # a newer unbroken was installed, and its job has written the history
        return NextAction(Next.STOP, str(error))
    return NextAction(Next.RESUME) if said is EndKind.STOPPED and not action.stops else action


def _by_policy(
    spec: JobSpec, segment: int, lost: Sequence[Attempt], spare_nodes: Callable[[], int]
) -> tuple[list[Attempt], NextAction]:
    """Return the attempts since the start of snakemake, with the `lost` ones that have no line, and what follows."""
    known = [*endings.all_attempts(spec.folder), *lost]
    attempts = endings.with_causes(policy.of_start(known, spec.start))
    rules = policy.Rules(spec.run.attempts_without_progress, spec.retries)
    return attempts, next_action(spec.folder, attempts, rules, segment, spare_nodes, spec.folder.log(segment))
