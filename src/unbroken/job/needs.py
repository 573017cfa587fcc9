"""Choose what the next jobs of a run need: more memory each time it ran out, and nodes where it did not fail.

Those that wait were submitted with what was known then.  A user may change what a job asks for while it waits
[man scontrol: MinMemoryNode, ExcNodeList].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.job import rule_state
from unbroken.job.spec import JobSpec
from unbroken.runs.attempts import all_attempts
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import RunFolder
from unbroken.runs.segment_end import EndCause, EndKind
from unbroken.slurm.client import ask, table
from unbroken.slurm.job import EndState, in_short
from unbroken.slurm.partitions import ask_partition, own_partition, own_spare_nodes
from unbroken.slurm.sbatch_options import more_to_exclude

# A node is avoided after so many attempts that failed there without progress ...
FAILURES_OF_A_NODE = 2
# ... but a program that fails everywhere must not exclude a whole cluster.
MOST_NODES = 3
# A node that was repaired a week ago should be used.
REMEMBERED_ATTEMPTS = 20


def wanted_memory_mb(spec: JobSpec, partition: str) -> int:
    """Return what the next jobs ask for after others ran out of memory, at most what a node has; 0 if none did."""
    if spec.is_rule:
        kills = len(rule_state.read_state(spec.key).of_start(spec.start).killed_jobs)
        return spec.rule_job.memory_after(kills) if kills else 0
    run = spec.run
    if not (times := out_of_memory_kills_of(run.name, run.resources.mem_mb)):
        return 0
    return grown_memory(run.resources.mem_mb, run.resources.memory_growth, times, ask_partition(partition).memory_mb)


def out_of_memory_kills_of(run: str, mem_mb: int, base: Path = Path()) -> int:
    """Return how often a run needed more than the `mem_mb` of its config; raising that starts again from 0."""
    killed = [attempt for attempt in all_attempts(RunFolder(run, base)) if attempt.ran_out_of_memory]
    return sum(attempt.mem_mb >= mem_mb for attempt in killed)


def grown_memory(mem_mb: int, growth: float, times: int, most: int) -> int:
    """Return what to ask for after so many ends for memory: at most what a node has, where that is known (not 0)."""
    wanted = round(mem_mb * growth**times)
    return max(mem_mb, min(wanted, most or wanted))


def nodes_to_avoid(run: str, base: Path = Path()) -> list[str]:
    """Return the nodes on which the run failed repeatedly without progress, those of the last failures first."""
    failures: Counter[str] = Counter()
    newest: dict[str, None] = {}
    for attempt in History(RunFolder(run, base).history).attempts(REMEMBERED_ATTEMPTS):
        node = attempt.slurm_node
        if attempt.has_advanced:
            failures.pop(node, None)
        elif node and _is_failure_of_node(attempt):
            failures[node] += 1
            newest.pop(node, None)
            newest[node] = None
    bad = [node for node in reversed(newest) if failures[node] >= FAILURES_OF_A_NODE]
    return bad[:MOST_NODES]


def _is_failure_of_node(attempt: Attempt) -> bool:
    """Return True also for a program's own crash; False where it ran out of memory, or the job was canceled.

    Return False too for a stop that got too little time, and for results that cannot be made of what was computed.
    """
    of_others = {EndState.OUT_OF_MEMORY, EndState.CANCELLED, EndState.PREEMPTED, EndState.REQUEUED}
    if attempt.kind is EndKind.REFUSED or attempt.cause in (EndCause.KILLED_STOPPING, EndCause.NO_RESULTS):
        return False
    return attempt.kind.is_failure and attempt.job_state not in of_others


# --- the tasks that wait ---


def learn(spec: JobSpec, jobs: Sequence[str], last: Attempt) -> Iterator[str]:
    """Change the waiting tasks of a run after its last attempt; yield a line for each thing that was changed."""
    if last.ran_out_of_memory:
        yield _give_more_memory(spec, jobs)
    elif not last.kind.settles and (avoid := nodes_to_avoid(spec.run.name)):
        yield from _keep_off(jobs, avoid, own_spare_nodes())


def _give_more_memory(spec: JobSpec, jobs: Sequence[str]) -> str:
    wanted = wanted_memory_mb(spec, own_partition())
    if not _change(jobs, f"MinMemoryNode={wanted}"):
        return f"out of memory; Slurm refused to raise the waiting tasks' limit; type mem_mb: {wanted}"
    times = out_of_memory_kills_of(spec.run.name, spec.run.resources.mem_mb)
    ended = f"{times} attempt{'s' if times > 1 else ''} ran out of memory"
    return f"{ended}; the waiting tasks now ask for {wanted} MB; to start with that, set mem_mb: {wanted}"


def give_rule_memory(spec: JobSpec, jobs: Sequence[str]) -> Iterator[str]:
    """Let the waiting tasks of a user's rule ask for what the rule says after a job ran out of memory."""
    memory_mb = wanted_memory_mb(spec, own_partition())
    if memory_mb and not _change(jobs, f"MinMemoryNode={memory_mb}"):
        yield f"Slurm refused to let the waiting tasks ask for {memory_mb} MB"


def _keep_off(jobs: Sequence[str], avoid: Sequence[str], spare: int) -> Iterator[str]:
    """Exclude nodes in addition to those that the jobs exclude already; in all no more than the partition can spare."""
    rows = table("squeue", f"--jobs={','.join(jobs)}", columns=("%x",))
    already = [nodes for (nodes,) in dict.fromkeys(rows or []) if nodes not in {"", "(null)", "n/a"}]
    if rows is None or not (fresh := more_to_exclude(already, avoid, spare)):
        return
    where = f"{', '.join(fresh)}, where it failed repeatedly"
    is_done = _change(jobs, f"ExcNodeList={','.join([*already, *fresh])}")
    yield f"the waiting tasks avoid {where}" if is_done else f"Slurm refused to let the waiting tasks avoid {where}"


def _change(jobs: Sequence[str], what: str) -> bool:
    return all(ask("scontrol", "update", f"JobId={numbers}", what) is not None for numbers in in_short(jobs))


def change_tasks(waiting: Sequence[str], what: str) -> bool:
    """Return True if each task that still waits asks for it now: scontrol also fails if one has started meanwhile."""
    if _change(waiting, what):
        return True
    rows = table("squeue", "--array", f"--jobs={','.join(waiting)}", "--states=PENDING", columns=("%i",))
    return rows is not None and _change([number for (number,) in rows], what)
