"""What a job does that nobody drives: the next segment of its run, and then it looks after the jobs behind it.

    python -m longhaul.slurm.slot --run demo --segments 10 --after 17 ... -- python -m snakemake ...

The command after `--` does one segment.  Which one is decided when the job starts: the first that has no record.  So a
job that was killed costs one job of the chain and not a segment.  When it starts and no job waits behind it, it submits
the next ones, which then wait while it works.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longhaul.clock import utc_now
from longhaul.endings import ran_out_of_memory
from longhaul.history import History
from longhaul.outcome import Outcome
from longhaul.places import RunFolder
from longhaul.record import read_record
from longhaul.slurm import again, last_look, lessons
from longhaul.slurm.brake import failures_in_a_row, idle_in_a_row
from longhaul.slurm.commands import ask
from longhaul.slurm.job import restart_count
from longhaul.slurm.my_jobs import MyJob, ended_states, my_jobs, state_behind_completing
from longhaul.slurm.states import ALIVE
from longhaul.slurm.successors import run_of_slot, waiting
from longhaul.slurm.wanted import is_over, wanted

# The segment itself answers these; its job's first process has to outlive it.
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
# How long a job that is being ended may take to say how.
ENDING_SECONDS = 10.0
# How often a job whose own run is over starts again to see whether there is room in the queue for others.
LOOKS_FOR_ROOM = 3


@dataclass(frozen=True)
class Slot:
    """What the driver has told the job."""

    run: str
    told_segments: int
    after: str  # the job before, empty for the first
    since: str  # attempts before this time do not count
    retries: int
    idle_attempts: int
    memory_growth: float
    command: tuple[str, ...]

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run)

    @property
    def segments(self) -> int:
        """How many segments the run may have by now."""
        now = wanted(self.run)
        return now.segments if now else self.told_segments

    def next_segment(self) -> int | None:
        """The first segment without a record; None if all have one."""
        return next((n for n in range(1, self.segments + 1) if not self.places.record(n).exists()), None)

    def command_for(self, segment: int, attempt: int) -> list[str]:
        """The command that does this segment."""
        words = [re.sub(r"^(\w+:.*\bsegment=)\d+", rf"\g<1>{segment:03d}", word) for word in self.command]
        place = words.index("--attempt") + 1
        words[place] = str(attempt)
        return words

    def tell(self, line: str) -> None:
        """One line into Slurm's log of this job."""
        print(f"longhaul {utc_now()} {self.run}: {line}", file=sys.stderr, flush=True)


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def main(words: Sequence[str] | None = None) -> int:
    """Does the next segment; the exit code is that of its command."""
    slot = _slot(words)
    for number in DEAF_TO:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the segment would inherit
    job_id = os.environ.get("SLURM_JOB_ID", "")
    last_look.has_come_back(job_id)
    try:
        has_successor = _look_ahead(slot)
        code = _work(slot, job_id)
        if not (has_successor and _is_quiet(slot, job_id)):
            _look_after_the_rest(slot, job_id)
    except Stop as stop:
        slot.tell(f"the run stops: {stop}")
        _end_run(slot, my_jobs() or [], job_id)
        return 1
    return code


def _look_ahead(slot: Slot) -> bool:
    """True if a job waits behind this one.  Submits the next ones if none does and more than one segment is left."""
    segment = slot.next_segment()
    if segment is None:
        return False
    _attempt(slot, segment)
    _submit_left_out(slot)
    if segment == slot.segments or _has_waiting(slot):
        return segment != slot.segments
    slot.tell(f"no job of this run waits: submitting the next ones; {again.submit(slot.run, slot.since)}")
    return _has_waiting(slot)


def _has_waiting(slot: Slot) -> bool:
    jobs = my_jobs()
    return jobs is None or bool(waiting(jobs, slot.run, Path()))


def _submit_left_out(slot: Slot) -> None:
    """A run for which the queue had no room: the job before this one has made some."""
    with again.left_out() as other:
        if other:
            slot.tell(f"there may be room in the queue now for {other}; {again.submit(other, slot.since)}")


def _work(slot: Slot, job_id: str) -> int:
    """One segment's work; segments whose record only had to be made anew do not count."""
    code = 0
    while (segment := slot.next_segment()) is not None:
        attempt = _attempt(slot, segment)
        slot.tell(f"segment {segment} of {slot.segments}")
        code = subprocess.run(slot.command_for(segment, attempt), stdin=subprocess.DEVNULL).returncode
        has_worked = any(attempt.slurm_job == job_id for attempt in History(slot.places.history).attempts())
        record = read_record(slot.places.record(segment))
        if has_worked or record is None or record.outcome is Outcome.FINISHED:
            break
    return code


def _is_quiet(slot: Slot, job_id: str) -> bool:
    """True if the segment was done, more are to be done, and a job behind this one does them: Slurm is not asked."""
    attempts = History(slot.places.history).attempts()
    is_ours = bool(attempts) and attempts[-1].slurm_job == job_id
    return is_ours and attempts[-1].outcome is Outcome.PAUSED and slot.next_segment() is not None


def _attempt(slot: Slot, segment: int) -> int:
    """Counts the attempts at a segment from 1; Stop if no further one is to be made."""
    attempts = [attempt for attempt in History(slot.places.history).attempts() if attempt.started_utc >= slot.since]
    failures = failures_in_a_row(attempts, segment)
    last = attempts[-1] if attempts else None
    is_quiet = last is not None and last.outcome.settles and last.slurm_job == slot.after
    if slot.after and not is_quiet and _state(slot.after) == "CANCELLED":
        raise Stop(f"job {slot.after} was cancelled; to go on, start snakemake again")
    log = slot.places.log(segment)
    if failures > slot.retries and last is not None:
        raise Stop(
            f"segment {segment} failed {failures} times: {last.message}; "
            f"log: {log}; mend the cause, then start snakemake again"
        )
    # Want of memory is no reason to stop: the next attempt gets more.
    if idle_in_a_row(attempts, segment) >= slot.idle_attempts and last is not None and not ran_out_of_memory(last):
        raise Stop(
            f"segment {segment}: {slot.idle_attempts} attempts without a step forward, last: {last.message}; "
            f"log: {log}; mend the cause, then start snakemake again"
        )
    return 1 + failures


def _look_after_the_rest(slot: Slot, job_id: str) -> None:
    """Ends the waiting jobs of a run that has reached its goal; submits the rest if no job waits."""
    jobs = _jobs_once_settled(job_id)
    if jobs is None:
        slot.tell("squeue does not answer; the jobs that wait stay as they are")
        return
    state = next((job.state for job in jobs if job.job_id == job_id), "")
    if state == "COMPLETING":  # until we leave; accounting hears of it later, if there is any
        state = state_behind_completing(job_id, restart_count()) or ended_states([job_id]).get(job_id, "")
    if state == "CANCELLED":
        raise Stop(f"job {job_id} was cancelled; to go on, start snakemake again")
    if state in {"PENDING", "REQUEUED"}:
        return  # put back into the queue: it will do the segment itself
    if is_over(slot.run, slot.told_segments):
        _end_run(slot, jobs, job_id)
    elif numbers := waiting(jobs, slot.run, Path()):
        _learn(slot, job_id, numbers)
    else:
        _go_on(slot, job_id)


def _learn(slot: Slot, job_id: str, numbers: Sequence[str]) -> None:
    last = History(slot.places.history).attempts()[-1:]
    if last and last[0].slurm_job == job_id:
        for line in lessons.learn(slot.run, numbers, last[0], slot.memory_growth):
            slot.tell(line)


def _go_on(slot: Slot, job_id: str) -> None:
    """Somebody has to do the next segment: a new job, or this one again where the queue has no room for another."""
    segment = slot.next_segment()
    if segment is not None:
        _attempt(slot, segment)  # no further job for a run that is to stop
    slot.tell(f"no job of this run waits: submitting the next ones; {again.submit(slot.run, slot.since)}")
    if not _has_waiting(slot):
        slot.tell("none was taken: this job goes back into the queue")
        ask("scontrol", "requeue", job_id)
        _learn(slot, job_id, [job_id])


def _end_run(slot: Slot, jobs: Sequence[MyJob], job_id: str) -> None:
    """Nothing more is to be done for this run; the last job of all runs makes the table and the report."""
    _cancel(slot, jobs)
    _submit_left_out(slot)
    here = Path().resolve()
    alive = [job for job in jobs if job.is_alive and job.job_id != job_id and job.folder.resolve() == here]
    others = {name for job in alive if (name := run_of_slot(job)) and name != slot.run}
    if again.any_left_out():
        _stay_for_left_out(slot, job_id)
    elif all(is_over(name) for name in others):
        slot.tell(f"all runs are over: the table of all runs and the report; {again.overview(slot.run)}")


def _stay_for_left_out(slot: Slot, job_id: str) -> None:
    """Runs that end together each count themselves, and so find no room for another: one must come back to look."""
    if last_look.may_leave(job_id, _may_still_look):
        return
    if restart_count() >= LOOKS_FOR_ROOM or ask("scontrol", "requeue", job_id) is None:
        slot.tell("other runs still wait for room in the queue: start snakemake again")
        return
    slot.tell("other runs still wait for room in the queue: this job goes back into it to look again")


def _may_still_look() -> list[str]:
    """The jobs of this folder that look for room when they start or end, and are neither stuck nor being ended."""
    here = Path().resolve()
    jobs = [job for job in my_jobs() or [] if run_of_slot(job) and job.folder.resolve() == here]
    return [job.job_id for job in jobs if job.is_alive and not job.is_leaving and not job.is_stuck]


def _cancel(slot: Slot, jobs: Sequence[MyJob]) -> None:
    numbers = waiting(jobs, slot.run, Path())
    if numbers:
        is_done = ask("scancel", "--state=PENDING", *numbers) is not None
        slot.tell(f"{'cancelled' if is_done else 'could not cancel'} the jobs that waited: {', '.join(numbers)}")


def _jobs_once_settled(job_id: str) -> list[MyJob] | None:
    """All jobs; waits a little while our own is just being ended, since only then it says how."""
    give_up = time.monotonic() + ENDING_SECONDS
    while True:
        jobs = my_jobs()
        is_ending = any(job.job_id == job_id and job.state == "COMPLETING" for job in jobs or [])
        if not is_ending or time.monotonic() > give_up:
            return jobs
        time.sleep(0.5)


def _state(job_id: str) -> str:
    """How a job ended; empty if nobody knows or it lives."""
    for job in my_jobs() or []:
        if job.job_id == job_id:
            return "" if job.state in ALIVE else job.state
    return ended_states([job_id]).get(job_id, "")


def _slot(words: Sequence[str] | None) -> Slot:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--segments", type=int, required=True)
    parser.add_argument("--after", default="")
    parser.add_argument("--since", default="")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--idle-attempts", type=int, default=2)
    parser.add_argument("--memory-growth", type=float, default=1.0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    command = tuple(given.command[1:] if given.command[:1] == ["--"] else given.command)
    return Slot(
        given.run,
        given.segments,
        given.after,
        given.since,
        given.retries,
        given.idle_attempts,
        given.memory_growth,
        command,
    )


if __name__ == "__main__":
    sys.exit(main())
