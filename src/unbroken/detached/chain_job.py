"""A detached job: runs the next segment, then maintains the queue.

    python -m unbroken.detached.chain_job --run demo --segments 10 --after 17 ... -- python -m snakemake ...

The command after `--` does one segment.  Which one is decided when the job starts: the first that has no record.  So a
job that was killed costs one job of the chain and not a segment.  When it starts and no job waits behind it, it submits
the next ones, which then wait while it works.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.detached import adjust_pending, last_look, resubmit
from unbroken.detached.early_start import ask_to_leave, wait_until_left
from unbroken.detached.page_keeper import PageKeeper
from unbroken.detached.pending_jobs import cancel_waiting, is_detached_job_of, wait_for, waiting
from unbroken.detached.run_end import end_run, submit_left_out
from unbroken.detached.segment_command import (
    CommandEnd,
    SegmentCommand,
    become_deaf,
    give_up_at,
    is_being_ended,
    rest_seconds,
)
from unbroken.detached.successors import DONE, ENDED
from unbroken.detached.targets import is_over, wanted
from unbroken.detached.unnoted import unnoted
from unbroken.errors import FormatError, LeaseError
from unbroken.runs import attempts as endings
from unbroken.runs import driver_start, notify_process, policy
from unbroken.runs.failure_limits import stop_reason
from unbroken.runs.history import Attempt, History
from unbroken.runs.job_note import BeforeWork, exit_code_for
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import current_claim
from unbroken.runs.outcome import Outcome
from unbroken.runs.record import read_record
from unbroken.slurm.commands import ask, has_command
from unbroken.slurm.nodes import own_spare_nodes
from unbroken.slurm.queue import MyJob, ended_states, my_jobs, state_behind_completing
from unbroken.slurm.this_job import hide_array, own_job_id, restart_count
from unbroken.system.clock import utc_now

# What a job needs of Slurm to look after those behind it.
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")
# How long a job that is being ended may take to say how.
ENDING_SECONDS = 10.0


@dataclass(frozen=True)
class DetachedJob:
    """What the driver has told the job."""

    run: str
    told_segments: int
    after: tuple[str, ...]  # the jobs of this run before it
    start: str  # attempts of earlier starts of snakemake do not count
    retries: int
    idle_attempts: int
    memory_growth: float
    command: tuple[str, ...]
    is_early: bool = False  # it may start while the one before is at work
    is_driven: bool = False  # a driver submits the jobs behind it

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
        print(f"unbroken {utc_now()} {self.run}: {line}", file=sys.stderr, flush=True)


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def main(words: Sequence[str] | None = None) -> int:
    """Does the next segment; the exit code is that of its command."""
    this_job = _slot(words)
    tasks_before = hide_array()
    this_job = replace(this_job, after=(*this_job.after, *tasks_before))
    os.environ[driver_start.START] = this_job.start
    become_deaf()
    wait_until_left(tasks_before)
    job_id = own_job_id()
    last_look.has_come_back(job_id)
    if not this_job.is_driven:
        _tell_missing_commands(this_job)
    page = PageKeeper()
    try:
        refuse_newer(this_job.places)
        chain = _Chain(this_job, job_id, page)
        try:
            ended = chain.work()
        finally:
            page.end()  # before the last page of all, which none may replace
        if this_job.is_driven:
            _look_after_the_next(this_job, job_id)
        elif ended.why in (BeforeWork.REFUSED, BeforeWork.UNAVAILABLE):
            _leave_before_work(this_job, job_id, ended.why, ended.message)
        elif ended.why is BeforeWork.HELD:
            _leave_to_holder(this_job, job_id)
        elif this_job.is_early or not (chain.has_successor and _is_quiet(this_job, job_id)):
            _look_after_the_rest(this_job, job_id, chain.has_no_room)
    except Stop as stop:
        this_job.tell(f"the run stops: {stop}")
        if this_job.is_driven:
            return 1
        end_run(this_job.run, this_job.start, my_jobs() or [], job_id, this_job.tell)
        return 1
    except FormatError as error:  # the jobs behind may be those of the newer one, so none is cancelled
        this_job.tell(str(error))
        return exit_code_for(BeforeWork.REFUSED, 1)
    return exit_code_for(ended.why, ended.code)


class _Chain:
    """One job's part of the chain: a segment's work, and while it is done the jobs behind it."""

    def __init__(self, this_job: DetachedJob, job_id: str, page: PageKeeper) -> None:
        self.this_job, self.job_id, self._page = this_job, job_id, page
        self.has_successor = False
        self.has_no_room = False  # the queue took no further job, and there is little time to ask it twice
        self._segment = 0

    def work(self) -> CommandEnd:
        """One segment's work; segments whose record only had to be made anew do not count."""
        this_job, ended = self.this_job, CommandEnd(0)
        if this_job.is_early:
            ask_to_leave(this_job.places, this_job.after, self.job_id, this_job.tell)
        while (segment := this_job.next_segment()) is not None:
            attempt = _attempt(this_job, segment)
            self._segment = segment
            this_job.tell(f"segment {segment} of {this_job.segments}")
            words = this_job.command_for(segment, attempt)
            ended = SegmentCommand(this_job.places, segment, self.job_id, words, this_job.tell).run(self._look_ahead)
            has_worked = any(line.slurm_job == self.job_id for line in History(this_job.places.history).attempts())
            record = read_record(this_job.places.record(segment))
            if ended.code != 0 or has_worked or record is None or record.outcome is Outcome.FINISHED:
                break
        return ended

    def _look_ahead(self) -> None:
        """What is done beside this segment's work, not before that begins."""
        if self.this_job.is_driven:
            return
        self._submit_ahead()
        self._page.begin()

    def _submit_ahead(self) -> None:
        """Submits the next jobs if none waits and more than one segment is left."""
        this_job = self.this_job
        if not has_command("sbatch") or is_being_ended():
            return
        submit_left_out(this_job.start, this_job.tell)
        notify_process.start(Path())
        if self._segment == this_job.segments:
            return
        jobs = my_jobs()
        if jobs is None:
            return  # asked again at the end
        if not waiting(jobs, this_job.run, Path()):
            said = resubmit.submit(this_job.run, this_job.start, at_work=self._segment)
            this_job.tell(f"no job of this run is pending: submitting the next ones; {said}")
            self.has_no_room = said == DONE
        self.has_successor = _has_waiting(this_job)
        self.has_no_room = self.has_no_room and not self.has_successor


def _tell_missing_commands(this_job: DetachedJob) -> None:
    if missing := [name for name in COMMANDS if not has_command(name)]:
        this_job.tell(
            f"{', '.join(missing)}: not found on this node, so no job of this run can submit or cancel others; those "
            "that wait in the queue do their segments, and when none is left: start snakemake again"
        )


def _has_waiting(this_job: DetachedJob) -> bool:
    """False also if Slurm does not answer: that is no job that waits."""
    return bool(waiting(my_jobs() or [], this_job.run, Path()))


def _is_followed(this_job: DetachedJob, job_id: str, jobs: Sequence[MyJob]) -> bool:
    """True if a job of the run waits, or one that may start early is there to take over from this one."""
    others = [job for job in jobs if job.job_id != job_id and is_detached_job_of(job, this_job.run, Path())]
    return any(job.state == "PENDING" or (this_job.is_early and job.is_alive) for job in others)


def _is_quiet(this_job: DetachedJob, job_id: str) -> bool:
    """True if the segment was done, more are to be done, and a job behind this one does them: Slurm is not asked."""
    attempts = History(this_job.places.history).attempts()
    is_ours = bool(attempts) and attempts[-1].slurm_job == job_id
    return is_ours and attempts[-1].outcome is Outcome.PAUSED and this_job.next_segment() is not None


def _attempt(this_job: DetachedJob, segment: int, lost: Sequence[Attempt] = ()) -> int:
    """Counts the attempts at a segment from 1; Stop if no further one is to be made.

    `lost` are attempts for whose line the disk had no room.
    """
    lost = [
        *unnoted(this_job.places, this_job.after, this_job.tell),
        *lost,
    ]  # the others are in the history from now on
    attempts = endings.with_causes(policy.of_start([*endings.all_attempts(this_job.places), *lost], this_job.start))
    rules = policy.Rules(this_job.idle_attempts, this_job.retries)
    why, _ = stop_reason(this_job.places, attempts, rules, segment, own_spare_nodes, this_job.places.log(segment))
    if why:
        raise Stop(why)
    return 1 + policy.failures_in_a_row(attempts, segment)


def _leave_before_work(this_job: DetachedJob, job_id: str, why: BeforeWork, message: str) -> None:
    """Submits nothing and goes back into no queue: the same would only happen again, there, in a minute."""
    segment = this_job.next_segment() or this_job.segments
    lines = History(this_job.places.history).attempts()
    is_noted = bool(lines) and lines[-1].slurm_job == job_id
    job = {"slurm_job": job_id, "slurm_node": os.environ.get("SLURMD_NODENAME", "")}
    own = endings.before_work(lines[-1] if lines else None, segment, why, message, **job)
    _attempt(this_job, segment, [] if is_noted else [own])
    this_job.tell(f"this job ends before its work and submits no other: {message}")
    if not _has_waiting(this_job):
        this_job.tell("no job of this run is pending; fix the cause, then start snakemake again")


def _leave_to_holder(this_job: DetachedJob, job_id: str) -> None:
    """Another job works on the run, such as another user's: those that wait behind this one wait for its end."""
    try:
        held, reason = current_claim(this_job.places.lease)
    except (LeaseError, OSError):
        return
    if held is None or reason or held.slurm_job in ("", job_id):
        return
    numbers = waiting(my_jobs() or [], this_job.run, Path())
    if not numbers:
        this_job.tell(f"no job of this run is pending behind this one; Slurm job {held.slurm_job} goes on with it")
    elif wait_for(held.slurm_job, numbers):
        this_job.tell(f"job {numbers[0]} waits for the end of Slurm job {held.slurm_job}, which works on this run")


def _look_after_the_rest(this_job: DetachedJob, job_id: str, has_no_room: bool) -> None:
    """Ends the waiting jobs of a run that has reached its goal; submits the rest if no job waits."""
    jobs = _jobs_if_slurm_answers()
    if jobs is None:
        this_job.tell(
            "squeue does not answer; nobody follows this job but those that wait already: see unbroken status"
        )
        return
    state = next((job.state for job in jobs if job.job_id == job_id), "")
    is_leaving = state == "COMPLETING"
    if is_leaving:
        state = _how_slurm_ends(job_id)
    if state == "CANCELLED":
        raise Stop(f"job {job_id} was cancelled; to go on, start snakemake again")
    if state in {"PENDING", "REQUEUED"}:
        return  # put back into the queue: it will do the segment itself
    if is_over(this_job.run, this_job.told_segments):
        end_run(this_job.run, this_job.start, jobs, job_id, this_job.tell)
    elif numbers := waiting(jobs, this_job.run, Path()):
        _learn(this_job, job_id, numbers)
    else:  # there may be too little time in the seconds (KillWait) of a job at its limit
        _go_on(this_job, job_id, has_no_room or is_leaving)


def _look_after_the_next(this_job: DetachedJob, job_id: str) -> None:
    """The job that a driver has queued early would start with our end, before the driver knows of it."""
    if is_over(this_job.run, this_job.told_segments):
        cancel_waiting(this_job.run)
    else:
        _learn(this_job, job_id, waiting(my_jobs() or [], this_job.run, Path()))


def _learn(this_job: DetachedJob, job_id: str, numbers: Sequence[str]) -> None:
    if not numbers:
        return
    last = History(this_job.places.history).attempts()[-1:]
    if last and last[0].slurm_job == job_id:
        for line in adjust_pending.learn(this_job.run, numbers, last[0], this_job.memory_growth):
            this_job.tell(line)


def _go_on(this_job: DetachedJob, job_id: str, has_no_room: bool) -> None:
    """Somebody has to do the next segment: a new job, or this one again where the queue has no room for another."""
    segment = this_job.next_segment()
    if segment is None:
        return
    _attempt(this_job, segment)  # no further job for a run that is to stop
    said = DONE
    if not has_no_room:
        this_job.tell("no job of this run is pending: submitting the next ones")
        said = resubmit.submit_patiently(this_job.run, this_job.start, job_id, this_job.tell)
    jobs = my_jobs()
    if _is_followed(this_job, job_id, jobs or []):
        return
    if said.startswith(ENDED):  # which refuses nothing: how Slurm ends this job decides
        return _look_after_the_rest(this_job, job_id, has_no_room=True)
    if said != DONE:
        last = next(reversed(History(this_job.places.history).attempts()), None)
        message = f"the next jobs could not be submitted: {said}"
        endings.note(this_job.places, endings.before_work(last, segment, BeforeWork.REFUSED, message), this_job.tell)
        raise Stop(f"{message}; fix the cause, then start snakemake again")
    if jobs is None:
        this_job.tell("squeue does not answer, so nobody knows whether a job follows: see unbroken status")
        return
    _come_back(this_job, job_id)


def _come_back(this_job: DetachedJob, job_id: str) -> None:
    """Puts this job back into the queue; Stop if nothing goes on."""
    why = "Slurm ends this job and no other waits" if is_being_ended() else "none was taken (the queue is full)"
    this_job.tell(f"{why}: this job goes back into the queue")
    if ask("scontrol", "requeue", job_id) is not None:
        return _learn(this_job, job_id, [job_id])
    if state_behind_completing(job_id, restart_count()) == "CANCELLED":
        raise Stop(f"job {job_id} was cancelled; to go on, start snakemake again")
    said = resubmit.submit(this_job.run, this_job.start, job_id, is_last_chance=True)
    if not _has_waiting(this_job):
        raise Stop(
            f"Slurm refuses to requeue job {job_id} and takes no other one ({said}); to go on, start snakemake again"
        )
    this_job.tell(f"Slurm refuses to requeue job {job_id}: the next ones are submitted")


def _jobs_if_slurm_answers() -> list[MyJob] | None:
    """All jobs; a controller that does not answer has some minutes, and None is said if it does not come back."""
    give_up = give_up_at() if has_command("squeue") else time.monotonic() + ENDING_SECONDS
    while (jobs := my_jobs()) is None and time.monotonic() < give_up:
        time.sleep(rest_seconds())
    return jobs


def _how_slurm_ends(job_id: str) -> str:
    """How Slurm ends this job; empty if it does not say so within seconds."""
    give_up = time.monotonic() + ENDING_SECONDS
    while not (state := state_behind_completing(job_id, restart_count())) and time.monotonic() < give_up:
        time.sleep(0.5)
    # squeue shows COMPLETING until we leave; accounting hears of it later, if there is any.
    return state or ended_states([job_id]).get(job_id, "")


def _slot(words: Sequence[str] | None) -> DetachedJob:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--segments", type=int, required=True)
    parser.add_argument("--after", default="")
    parser.add_argument("--start", default="")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--idle-attempts", type=int, default=2)
    parser.add_argument("--memory-growth", type=float, default=1.0)
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--driven", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    command = tuple(given.command[1:] if given.command[:1] == ["--"] else given.command)
    return DetachedJob(
        given.run,
        given.segments,
        tuple(number for number in given.after.split(",") if number),
        given.start,
        given.retries,
        given.idle_attempts,
        given.memory_growth,
        command,
        given.early,
        given.driven,
    )


if __name__ == "__main__":
    sys.exit(main())
