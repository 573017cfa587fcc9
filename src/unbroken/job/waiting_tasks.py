"""Change what the waiting tasks of a run ask for, after one of them failed, or when a new start asks for it.

They were submitted with what was known then.  A user may change what a job asks for while it waits [man scontrol:
MinMemoryNode, ExcNodeList].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbroken.job import submissions
from unbroken.job.array import cancel
from unbroken.job.needs import nodes_to_avoid, out_of_memory_kills_of, wanted_memory_mb
from unbroken.job.spec import JobSpec
from unbroken.runs.history import Attempt
from unbroken.slurm.client import ask, table
from unbroken.slurm.job import in_short
from unbroken.slurm.partitions import own_partition, own_spare_nodes
from unbroken.slurm.sbatch_options import more_to_exclude


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


# What a user may change of tasks that wait: sbatch's options, and scontrol's words [man scontrol: SPECIFICATIONS FOR
# UPDATE COMMAND, JOBS].
_CHANGEABLE = {"-t": "TimeLimit", "--time": "TimeLimit", "-p": "Partition", "--mem": "MinMemoryNode"}
_LOSES_AGE = {"Partition"}  # [measured, 22.05]


@dataclass(frozen=True)
class Update:
    """Hold the outcome for waiting tasks whose requests differ from the config: a line, and if they were canceled."""

    line: str = ""
    is_canceled: bool = False


def follow_plan(spec: JobSpec, waiting: Sequence[str]) -> Update:
    """Change the waiting tasks to what the newest start wants.

    Tasks that Slurm does not change are canceled: the caller submits others.
    """
    before = submissions.words_of_newest(spec.key)
    if not waiting or before is None or before == list(spec.submission.words):
        return Update()
    changes = _changes(before, spec.submission.words)
    if changes == {}:  # in another order
        submissions.note_words(spec.key, spec.submission.words)
        return Update()
    if changes is not None and all(change_tasks(waiting, f"{name}={value}") for name, value in changes.items()):
        submissions.note_words(spec.key, spec.submission.words)
        age = "; they lose their age in the queue" if _LOSES_AGE & set(changes) else ""
        changed = ", ".join(f"{name}={value}" for name, value in changes.items())
        return Update(f"the waiting tasks now ask for {changed}{age}")
    if cancel(list(waiting)) is not None:
        line = "Slurm cannot change the waiting tasks as the config wants: they are submitted again and lose their age"
        return Update(line, is_canceled=True)
    return Update("the waiting tasks still ask for what the config said before: Slurm does not answer")


def _changes(before: Sequence[str], now: Sequence[str]) -> dict[str, str] | None:
    """Return what differs as scontrol calls it; None if anything else differs."""
    old, new = _options(before), _options(now)
    differing = {option for option in {*old, *new} if old.get(option) != new.get(option)}
    if not all(option in _CHANGEABLE and option in new for option in differing):
        return None
    return {_CHANGEABLE[option]: new[option] for option in sorted(differing)}


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
