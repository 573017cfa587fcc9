"""Choose what the next jobs of a run ask for: more memory each time it ran out, and nodes where it did not fail.

A user may change what a job asks for while it waits [man scontrol: TimeLimit, Partition, MinMemoryNode, ExcNodeList].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.job import submissions
from unbroken.job.policy import of_start
from unbroken.job.spec import JobSpec
from unbroken.slurm.client import ask, table
from unbroken.slurm.job import EndState, in_short
from unbroken.slurm.partitions import ask_partition, own_partition, own_spare_nodes
from unbroken.slurm.sbatch_options import more_to_exclude
from unbroken.store.attempts import all_attempts, with_causes
from unbroken.store.history import Attempt, EndCause, EndKind, History
from unbroken.store.layout import RunFolder

# A node is avoided after so many attempts that failed there without progress ...
FAILURES_OF_A_NODE = 2
# ... but a program that fails everywhere must not exclude a whole cluster.
MOST_NODES = 3
# A node that was repaired a week ago should be used.
REMEMBERED_ATTEMPTS = 20
# What a user may change of tasks that wait: sbatch's options, and scontrol's words.
_CHANGEABLE = {"-t": "TimeLimit", "--time": "TimeLimit", "-p": "Partition", "--mem": "MinMemoryNode"}
_LOSES_AGE = {"Partition"}  # [measured, 22.05]
# Ends that say nothing against the node.
_OF_OTHERS = {EndState.OUT_OF_MEMORY, EndState.CANCELLED, EndState.PREEMPTED, EndState.REQUEUED}


def wanted_memory_mb(spec: JobSpec, partition: str) -> int:
    """Return what the next jobs ask for after others ran out of memory, at most what a node has; 0 if none did."""
    if not (times := out_of_memory_kills(spec)):
        return 0
    if spec.is_rule:
        return spec.rule_job.memory_after(times)
    asked = spec.run.resources
    wanted = round(asked.mem_mb * asked.memory_growth**times)
    return max(asked.mem_mb, min(wanted, ask_partition(partition).memory_mb or wanted))


def out_of_memory_kills(spec: JobSpec) -> int:
    """Return how often a run needed more than the `mem_mb` of its config; raising that starts again from 0.

    Of a user's rule the jobs since the start of snakemake count.
    """
    attempts = all_attempts(spec.folder)
    if spec.is_rule:
        attempts = with_causes(of_start(attempts, spec.start))
        return len({attempt.slurm_job for attempt in attempts if attempt.ran_out_of_memory})
    return sum(attempt.ran_out_of_memory and attempt.mem_mb >= spec.run.resources.mem_mb for attempt in attempts)


def nodes_to_avoid(run: str, base: Path = Path()) -> list[str]:
    """Return the nodes on which the run failed repeatedly without progress, those of the last failures first."""
    failures: Counter[str] = Counter()
    newest: list[str] = []
    for attempt in History(RunFolder(run, base).history).attempts(REMEMBERED_ATTEMPTS):
        node = attempt.slurm_node
        if attempt.has_advanced:
            failures.pop(node, None)
        elif node and _is_failure_of_node(attempt):
            failures[node] += 1
            newest = [node, *(other for other in newest if other != node)]
    return [node for node in newest if failures[node] >= FAILURES_OF_A_NODE][:MOST_NODES]


def _is_failure_of_node(attempt: Attempt) -> bool:
    """Return True also for a program's own crash; False where it ran out of memory, or the job was canceled.

    Return False too for a stop that got too little time, and for results that cannot be made of what was computed.
    """
    if attempt.kind is EndKind.REFUSED or attempt.cause in (EndCause.KILLED_STOPPING, EndCause.NO_RESULTS):
        return False
    return attempt.kind.is_failure and attempt.job_state not in _OF_OTHERS


# --- the tasks that wait ---


def learn(spec: JobSpec, jobs: Sequence[str], last: Attempt) -> Iterator[str]:
    """Change the waiting tasks of a run after its last attempt; yield a line for each thing that was changed."""
    if last.ran_out_of_memory and (wanted := wanted_memory_mb(spec, own_partition())):
        times = out_of_memory_kills(spec)
        ended = f"{times} attempt{'s' if times > 1 else ''} ran out of memory"
        if _change(jobs, f"MinMemoryNode={wanted}"):
            yield f"{ended}; the waiting tasks now ask for {wanted} MB; to start with that, set mem_mb: {wanted}"
        else:
            yield f"out of memory; Slurm refused to raise the waiting tasks' limit; type mem_mb: {wanted}"
    elif not last.kind.settles and not spec.is_rule and (avoid := nodes_to_avoid(spec.run.name)):
        yield from _keep_off(jobs, avoid, own_spare_nodes())


def _keep_off(jobs: Sequence[str], avoid: Sequence[str], spare: int) -> Iterator[str]:
    """Exclude nodes in addition to those that the jobs exclude already; in all no more than the partition can spare."""
    rows = table("squeue", f"--jobs={','.join(jobs)}", columns=("%x",))
    already = [nodes for (nodes,) in dict.fromkeys(rows or []) if nodes not in {"", "(null)", "n/a"}]
    if rows is None or not (fresh := more_to_exclude(already, avoid, spare)):
        return
    where = f"{', '.join(fresh)}, where it failed repeatedly"
    is_done = _change(jobs, f"ExcNodeList={','.join([*already, *fresh])}")
    yield f"the waiting tasks avoid {where}" if is_done else f"Slurm refused to let the waiting tasks avoid {where}"


def follow_plan(spec: JobSpec, waiting: Sequence[str]) -> tuple[str, bool]:
    """Change the waiting tasks to what the newest start wants; return a line about it.

    Return also False if Slurm cannot: the caller cancels them, and submits others.
    """
    newest, now = submissions.newest(spec.key), spec.submission.words
    if not waiting or newest is None or not newest.words or newest.words == now:
        return "", True
    changes = _changes(newest.words, now)
    if changes is None or not all(change_tasks(waiting, change) for change in changes):
        return "", False
    newest.fill(newest.job_id, now)
    age = "; they lose their age in the queue" if any(change.split("=")[0] in _LOSES_AGE for change in changes) else ""
    return f"the waiting tasks now ask for {', '.join(changes)}{age}" if changes else "", True


def _changes(before: Sequence[str], now: Sequence[str]) -> list[str] | None:
    """Return what differs as scontrol calls it, `TimeLimit=60`; None if anything else differs."""
    old, new = _options(before), _options(now)
    differing = sorted(option for option in {*old, *new} if old.get(option) != new.get(option))
    if not all(option in _CHANGEABLE and option in new for option in differing):
        return None
    return [f"{_CHANGEABLE[option]}={new[option]}" for option in differing]


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch's words with their values: `--mem 2000`, `--mem=2000`, `--requeue`."""
    found, last = dict[str, str](), ""
    for word in words:
        if word.startswith("-"):
            last, _, value = word.partition("=")
            found[last] = value
        elif last:
            found[last] = word
    return found


def change_tasks(waiting: Sequence[str], what: str) -> bool:
    """Return True if each task that still waits asks for it now: scontrol also fails if one has started meanwhile."""
    if _change(waiting, what):
        return True
    rows = table("squeue", "--array", f"--jobs={','.join(waiting)}", "--states=PENDING", columns=("%i",))
    return rows is not None and _change([number for (number,) in rows], what)


def _change(jobs: Sequence[str], what: str) -> bool:
    return all(ask("scontrol", "update", f"JobId={numbers}", what) is not None for numbers in in_short(jobs))
