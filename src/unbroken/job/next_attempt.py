"""Which attempt at a segment a job makes, or that none is to be made any more."""

from __future__ import annotations

from collections.abc import Sequence

from unbroken.job.chain_job import ChainJob
from unbroken.job.stop_note import stop_of
from unbroken.job.unrecorded import unrecorded
from unbroken.runs import attempts as endings
from unbroken.runs import policy
from unbroken.runs.failure_limits import next_action
from unbroken.runs.history import Attempt
from unbroken.slurm.nodes import own_spare_nodes


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def next_attempt(job: ChainJob, segment: int, lost: Sequence[Attempt] = ()) -> int:
    """Count the attempts at a segment from 1; Stop if no further one is to be made.

    `lost` are attempts for whose line the disk had no room.
    """
    if why := stop_of(job.key, job.now().start):
        raise Stop(why)
    # The others are in the history from now on.
    lost = [*unrecorded(job.folder, job.key, job.spec.start, job.log), *lost]
    attempts = endings.with_causes(policy.of_start([*endings.all_attempts(job.folder), *lost], job.spec.start))
    rules = policy.Rules(job.spec.run.attempts_without_progress, job.spec.retries)
    action = next_action(job.folder, attempts, rules, segment, own_spare_nodes, job.folder.log(segment))
    if action.stops:
        raise Stop(action.why)
    return 1 + policy.failures_in_a_row(attempts, segment)
