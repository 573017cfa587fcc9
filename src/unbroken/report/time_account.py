"""The account of a run as its folder tells it: its history, the attempt at work, the jobs that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from unbroken.accounting.account import Account, Waiting, account
from unbroken.accounting.kinds import Kind
from unbroken.report.run_folders import run_folder
from unbroken.runs.attempts import all_attempts, attempt_at_work
from unbroken.runs.history import Attempt
from unbroken.slurm.job_end import SLACK_SECONDS
from unbroken.slurm.job_times import JobTimes, times_of_waiting
from unbroken.slurm.jobs_out import Queue
from unbroken.system.clock import duration


def account_of(name: str, base: Path, queue: Queue, attempts: Sequence[Attempt] | None = None) -> Account:
    """Every second of a run from its first submission until now, or until its goal; `attempts` if they are known."""
    places = run_folder(name, base)
    attempts = all_attempts(places) if attempts is None else attempts
    live = attempt_at_work(places, attempts)
    waiting = list(dict.fromkeys(_waiting(name, queue)))  # the tasks of an array wait since the same moment
    return account([*_with_last_end(attempts, queue), *([live] if live else [])], time.time(), waiting)


def _with_last_end(attempts: Sequence[Attempt], queue: Queue) -> Sequence[Attempt]:
    """The last job's end stands in no history; the controller remembers it for some minutes."""
    if not attempts:
        return attempts
    *before, last = attempts
    if last.times.ended is None or last.times.job_ended is not None:
        return attempts
    ends = [job.end_unix for job in queue.over if job.job_id == last.slurm_job and job.end_unix is not None]
    if not ends or ends[0] < last.times.ended - SLACK_SECONDS:
        return attempts
    return [*before, replace(last, times=replace(last.times, job_ended=max(ends[0], last.times.ended)))]


def account_lines(name: str, found: Account) -> list[str]:
    """The same for people: each kind with its share, and what the kills have cost."""
    whole = found.end - found.begin
    if whole <= 0:
        return [f"{name}: no attempt yet"]
    goodput = "" if found.goodput is None else f", goodput {found.goodput:.1%}"
    lines = [f"{name}: {duration(whole)} since it was first wanted{goodput}"]
    kinds = [kind for kind in Kind if found.seconds[kind] > 0]
    lines += [
        f"  {kind.value:<12} {duration(found.seconds[kind]):>8} {found.seconds[kind] / whole:>7.1%}" for kind in kinds
    ]
    return [*lines, *_kills(found)]


def account_json(name: str, found: Account) -> dict[str, object]:
    """The same for programs: Unix seconds and lengths in seconds."""
    return {
        "run": name,
        "begin": found.begin,
        "end": found.end,
        "goodput": found.goodput,
        "kills": found.kills,
        "kept_by_checkpoints": found.kept_by_checkpoints,
        "seconds": {kind.name.lower(): found.seconds[kind] for kind in Kind},
        "spans": [[span.kind.name.lower(), span.begin, span.end, span.token] for span in found.spans],
    }


def _kills(found: Account) -> Iterator[str]:
    if found.kills:
        count = "1 kill" if found.kills == 1 else f"{found.kills} kills"
        cost, without = duration(found.seconds[Kind.LOST]), duration(found.kept_by_checkpoints)
        yield f"  {count} cost {cost}; without checkpoints: {without}"


def _waiting(name: str, queue: Queue) -> Iterator[Waiting]:
    waiting = [job for job in queue.out if job.run == name and job.is_waiting]
    for job in waiting:
        found = _times(queue).get(job.job_id)
        if found is not None and found.submitted is not None:
            yield Waiting(found.submitted, found.submitted if job.is_behind else found.eligible)


@lru_cache(maxsize=1)
def _times(queue: Queue) -> Mapping[str, JobTimes]:
    """Of all that wait, once for all runs of a look at the queue: a question for each job would be a thousand."""
    return times_of_waiting()
