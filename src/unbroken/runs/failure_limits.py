"""The policy, asked with what the disk and Slurm say of a run now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from unbroken.runs import policy
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.policy import Rules, Situation
from unbroken.runs.store import Store
from unbroken.slurm.nodes import untried


def stop_reason(
    places: RunFolder,
    attempts: Sequence[Attempt],
    rules: Rules,
    segment: int,
    spare_nodes: Callable[[], int],
    log: object = "",
) -> tuple[str, Situation]:
    """Why no further attempt at the segment is made, empty if one is, and the situation that was judged.

    `attempts` as for the policy.  `spare_nodes` says how many nodes there are beside those that a job of the run needs;
    Slurm is asked only where that decides.
    """
    names = Store(places.checkpoints).names()[-2:] if places.checkpoints.is_dir() else []
    older, newest = ["", "", *names][-2:]
    now = Situation(segment, newest, older, log=log)
    why = policy.why_stop(attempts, rules, now)
    if why or policy.goes_back(attempts, rules, now):
        now = replace(now, other_nodes=untried(spare_nodes(), [attempt.slurm_node for attempt in attempts]))
        why = policy.why_stop(attempts, rules, now)
    return why, now
