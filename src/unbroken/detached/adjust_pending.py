"""What the pending jobs of a detached run ask for, changed after one of them failed.

They were submitted with what was known then.  A user may change what a job asks for while it waits [man scontrol:
MinMemoryNode, ExcNodeList].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unbroken.runs.attempts import grown_memory, nodes_to_avoid, out_of_memory_kills_of, ran_out_of_memory
from unbroken.runs.history import Attempt
from unbroken.slurm.commands import ask
from unbroken.slurm.excluded_nodes import more_to_exclude
from unbroken.slurm.nodes import numbers_of, own_partition, own_spare_nodes
from unbroken.slurm.tables import table


def learn(run: str, jobs: Sequence[str], last: Attempt, growth: float) -> Iterator[str]:
    """Changes the waiting jobs of a run after its last attempt; a line for each thing that was changed."""
    if ran_out_of_memory(last):
        yield _give_more_memory(run, jobs, last.mem_mb, growth)
    elif not last.outcome.settles and (avoid := nodes_to_avoid(run)):
        yield from _keep_off(jobs, avoid, own_spare_nodes())


def _give_more_memory(run: str, jobs: Sequence[str], mem_mb: int, growth: float) -> str:
    """At most what a node of this partition has; `mem_mb` is what the config says."""
    times = out_of_memory_kills_of(run, mem_mb)
    wanted = grown_memory(mem_mb, growth, times, max(numbers_of(own_partition(), "%m"), default=0))
    if not _change(jobs, f"MinMemoryNode={wanted}"):
        return f"out of memory; Slurm refused to raise the pending jobs' limit; type mem_mb: {wanted}"
    ended = f"{times} attempt{'s' if times > 1 else ''} ran out of memory"
    return f"{ended}; the pending jobs now ask for {wanted} MB; to start with that, set mem_mb: {wanted}"


def _keep_off(jobs: Sequence[str], avoid: Sequence[str], spare: int) -> Iterator[str]:
    """Excludes nodes beside those that the jobs exclude already; in all no more than the partition can spare."""
    rows = table("squeue", f"--jobs={','.join(jobs)}", columns=("%x",)) or []
    already = [nodes for (nodes,) in dict.fromkeys(rows) if nodes not in {"", "(null)", "n/a"}]
    if not (fresh := more_to_exclude(already, avoid, spare)):
        return
    where = f"{', '.join(fresh)}, where it failed repeatedly"
    is_done = _change(jobs, f"ExcNodeList={','.join([*already, *fresh])}")
    yield f"the pending jobs avoid {where}" if is_done else f"Slurm refused to let the pending jobs avoid {where}"


def _change(jobs: Sequence[str], what: str) -> bool:
    return all(ask("scontrol", "update", f"JobId={job}", what) is not None for job in jobs)
