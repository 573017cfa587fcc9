"""A detached job: runs the next segment, then maintains the queue.

    python -m unbroken.detached.chain_job --run demo --segments 10 --after 17 ... -- python -m snakemake ...

The command after `--` does one segment.  Which one is decided when the job starts: the first that has no record.  So a
job that was killed costs one job of the chain and not a segment.  When it starts and no job waits behind it, it submits
the next ones, which then wait while it works.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.detached import last_look, resubmit
from unbroken.detached.after_work import is_quiet, look_after_the_rest
from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.ended_before_work import leave_before_work, leave_to_holder
from unbroken.detached.next_attempt import Stop, next_attempt
from unbroken.detached.page_keeper import PageKeeper
from unbroken.detached.pending_jobs import has_waiting, wait_until_left, waiting
from unbroken.detached.run_end import end_run, submit_left_out
from unbroken.detached.segment_command import CommandEnd, SegmentCommand, become_deaf, is_being_ended
from unbroken.detached.successors import DONE
from unbroken.errors import FormatError
from unbroken.runs import driver_start, notify_process
from unbroken.runs.history import History
from unbroken.runs.job_note import BeforeWork, exit_code_for
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.outcome import Outcome
from unbroken.runs.record import read_record
from unbroken.slurm.commands import has_command
from unbroken.slurm.queue import my_jobs
from unbroken.slurm.this_job import hide_array, own_job_id

# What a job needs of Slurm to look after those behind it.
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")


def main(words: Sequence[str] | None = None) -> int:
    """Does the next segment; the exit code is that of its command."""
    this_job = DetachedJob.parse(words, __doc__)
    tasks_before = hide_array()
    this_job = replace(this_job, after=(*this_job.after, *tasks_before))
    os.environ[driver_start.START] = this_job.start
    become_deaf()
    wait_until_left(tasks_before)
    job_id = own_job_id()
    last_look.has_come_back(job_id)
    _tell_missing_commands(this_job)
    page = PageKeeper()
    try:
        refuse_newer(this_job.places)
        chain = _Chain(this_job, job_id, page)
        try:
            ended = chain.work()
        finally:
            page.end()  # before the last page of all, which none may replace
        if ended.why in (BeforeWork.REFUSED, BeforeWork.UNAVAILABLE):
            leave_before_work(this_job, job_id, ended.why, ended.message)
        elif ended.why is BeforeWork.HELD:
            leave_to_holder(this_job, job_id)
        elif not (chain.has_successor and is_quiet(this_job, job_id)):
            look_after_the_rest(this_job, job_id, chain.has_no_room)
    except Stop as stop:
        this_job.tell(f"the run stops: {stop}")
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
        while (segment := this_job.next_segment()) is not None:
            attempt = next_attempt(this_job, segment)
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
        self.has_successor = has_waiting(this_job.run)
        self.has_no_room = self.has_no_room and not self.has_successor


def _tell_missing_commands(this_job: DetachedJob) -> None:
    if missing := [name for name in COMMANDS if not has_command(name)]:
        this_job.tell(
            f"{', '.join(missing)}: not found on this node, so no job of this run can submit or cancel others; those "
            "that wait in the queue do their segments, and when none is left: start snakemake again"
        )


if __name__ == "__main__":
    sys.exit(main())
