"""The account of a run as its folder tells it: its history, the attempt at work, the jobs that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from unbroken.accounting.account import Account, Waiting, account
from unbroken.accounting.kinds import Kind
from unbroken.errors import LeaseError
from unbroken.report.run_folders import run_folder
from unbroken.runs import lease
from unbroken.runs.attempts import all_attempts
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.times import FILE_NAME, Times, read_times
from unbroken.slurm.job_times import times_of
from unbroken.slurm.jobs_out import Queue
from unbroken.system.clock import duration, unix_seconds


def account_of(name: str, base: Path, queue: Queue) -> Account:
    """Every second of a run from its first submission until now, or until its goal."""
    places = run_folder(name, base)
    attempts = all_attempts(places)
    live = _at_work(places, attempts)
    waiting = list(_waiting(name, queue))
    return account([*attempts, *([live] if live else [])], time.time(), waiting)


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


def _at_work(places: RunFolder, attempts: list[Attempt]) -> Attempt | None:
    """The attempt that works now, with what it has noted so far; None if none does, or the lease does not say."""
    try:
        claim, why_free = lease.current_claim(places.lease)
    except (LeaseError, OSError):
        return None
    if claim is None or why_free or any(attempt.token == claim.token for attempt in attempts):
        return None
    noted = read_times(places.work / f"{claim.token:06d}" / FILE_NAME)
    times: Times = replace(noted, job_started=noted.job_started or unix_seconds(claim.started_utc))
    done = attempts[-1].progress_to if attempts else 0.0
    return Attempt(
        token=claim.token,
        segment=claim.segment,
        driver_attempt=1,
        outcome=Outcome.INTERRUPTED,  # as long as it has none: no kill, and nothing lost
        started_utc=claim.started_utc,
        ended_utc=claim.started_utc,
        from_checkpoint=None,
        to_checkpoint=None,
        progress_from=done,
        progress_to=done,
        unit=attempts[-1].unit if attempts else "",
        work_seconds=0.0,
        saves=0,
        save_seconds=0.0,
        stop_seconds=None,
        unused_seconds=None,
        exit_code=None,
        host=claim.host,
        pid=claim.pid,
        slurm_job=claim.slurm_job,
        message="",
        times=times,
    )


def _waiting(name: str, queue: Queue) -> Iterator[Waiting]:
    for job in queue.out:
        if job.run == name and job.is_waiting and (found := times_of(job.job_id)) and found.submitted is not None:
            yield Waiting(found.submitted, found.eligible)
