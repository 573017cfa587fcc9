"""Which attempt at a segment a job makes, or that none is to be made any more."""

from __future__ import annotations

from collections.abc import Sequence

from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.unnoted import unnoted
from unbroken.runs import attempts as endings
from unbroken.runs import policy
from unbroken.runs.failure_limits import stop_reason
from unbroken.runs.history import Attempt
from unbroken.slurm.nodes import own_spare_nodes


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def next_attempt(this_job: DetachedJob, segment: int, lost: Sequence[Attempt] = ()) -> int:
    """Counts the attempts at a segment from 1; Stop if no further one is to be made.

    `lost` are attempts for whose line the disk had no room.
    """
    # The others are in the history from now on.
    lost = [*unnoted(this_job.places, this_job.after, this_job.tell), *lost]
    attempts = endings.with_causes(policy.of_start([*endings.all_attempts(this_job.places), *lost], this_job.start))
    rules = policy.Rules(this_job.idle_attempts, this_job.retries)
    why, _ = stop_reason(this_job.places, attempts, rules, segment, own_spare_nodes, this_job.places.log(segment))
    if why:
        raise Stop(why)
    return 1 + policy.failures_in_a_row(attempts, segment)
