"""One job's part of a chain: a segment's work and, while it is done, the tasks behind it and the page of all runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from unbroken.job import array, background
from unbroken.job.background import PageProcess
from unbroken.job.left_out import submit_left_out
from unbroken.job.next_attempt import next_attempt
from unbroken.job.segment_process import SegmentProcess, is_being_ended
from unbroken.job.spec import ChainJob
from unbroken.slurm.client import has_command
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import my_jobs
from unbroken.store.history import EndKind, SegmentEnd
from unbroken.store.record import read_record

logger = logging.getLogger(__name__)

# Without a driver, one job of the folder keeps `results/report.html` fresh.
PAGE_SECONDS = 600.0
LAST_PAGE_SECONDS = 60.0
PAGE_WRITER = "A job of a run, while one is at work,"


class SegmentWork:
    """The segment that this job does; `jobs` are this user's, if squeue was asked just now."""

    def __init__(self, job: ChainJob, jobs: Sequence[ListedJob] | None = None) -> None:
        self._job, self._jobs = job, jobs
        self._page = PageProcess(Path(), PAGE_WRITER)
        self._has_looked = False
        self.has_tried = False  # an attempt was to be made
        self.has_no_room = False  # the queue took no further job, and there is little time to ask it twice

    def do(self) -> tuple[int, SegmentEnd | None]:
        """Do one segment; return its exit code and its end.

        Segments whose record only had to be made again do not count.
        """
        try:
            return self._do_next()
        finally:
            self.end_page()  # before the last page of all, which none may replace

    def look_ahead(self) -> None:
        """Submit the next tasks when this segment's work has begun, and write the page; called every minute."""
        if not self._has_looked:
            self._has_looked = True
            self._submit_ahead()
        self._page.begin(PAGE_SECONDS, at_most_every=PAGE_SECONDS)

    def end_page(self) -> None:
        """End the page that is being written: the job is about to leave, and waits for none."""
        self._page.kill()

    def _do_next(self) -> tuple[int, SegmentEnd | None]:
        code, end = 0, None
        while (segment := self._job.now().next_segment()) is not None:
            code, end = self._do(segment)
            record = read_record(self._job.folder.record(segment))
            if code != 0 or end is not None or record is None or record.kind is EndKind.FINISHED:
                break
        return code, end

    def _do(self, segment: int) -> tuple[int, SegmentEnd | None]:
        job = self._job
        attempt = self.next_attempt(segment)
        self.has_tried = True
        logger.info(f"segment {segment} of {job.now().last_segment}")
        return SegmentProcess(job.folder, segment, job.job_id, job.command_for(segment, attempt)).run(self.look_ahead)

    def next_attempt(self, segment: int) -> int:
        """Count the attempts at a segment from 1; raise Stop if no further one is to be made."""
        jobs, self._jobs = self._jobs, None  # after the first attempt they are old
        return next_attempt(self._job, segment, jobs=jobs)

    def _submit_ahead(self) -> None:
        """Submit the next array if no task waits and more than one segment is left."""
        job = self._job
        if not has_command("sbatch") or is_being_ended():
            return
        submit_left_out()
        background.notify(Path())
        spec = job.now()
        if not spec.submission.refills or spec.remaining_segments() < 2:
            return
        jobs = my_jobs()
        if jobs is None or array.waiting(jobs, job.key):
            return  # if Slurm does not answer, it is asked again at the end
        done = array.submit(spec, at_work=job.job_id)
        logger.info(f"no task of this run waits: submitting the next ones; {done.line}")
        self.has_no_room = done.answer is array.Answer.FULL


def write_last_page() -> None:
    """Write the page when no job will write another one, and wait for it: this job has nothing else to do."""
    page = PageProcess(Path(), PAGE_WRITER)
    page.begin(0.0)
    page.wait(LAST_PAGE_SECONDS)
    page.kill()
