"""The policy, asked with what the disk and Slurm say of a run now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from unbroken.runs import policy
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.policy import Next, NextAction, Rules, Situation
from unbroken.runs.store import Store


def next_action(
    places: RunFolder,
    attempts: Sequence[Attempt],
    rules: Rules,
    segment: int,
    spare_nodes: Callable[[], int],
    log: object = "",
) -> NextAction:
    """Return what follows in a run; `attempts` as for the policy.

    `spare_nodes` says how many nodes there are in addition to those that a job of the run needs; Slurm is asked only
    where that decides.
    """
    names = Store(places.checkpoints).names()[-2:] if places.checkpoints.is_dir() else []
    older, newest = ["", "", *names][-2:]
    now = Situation(segment, newest, older, log=log)
    action = policy.next_action(attempts, rules, now)
    if action.kind in (Next.STOP, Next.FALL_BACK):
        tried = {attempt.slurm_node for attempt in attempts} - {""}
        # None where no node is known, as outside Slurm.
        now = replace(now, other_nodes=max(0, spare_nodes() - len(tried) + 1) if tried else 0)
        action = policy.next_action(attempts, rules, now)
    return action
