"""One job's part of a chain: a segment's work and, while it is done, the tasks behind it."""

from __future__ import annotations

from pathlib import Path

from unbroken.job import array
from unbroken.job.chain_job import ChainJob
from unbroken.job.next_attempt import next_attempt
from unbroken.job.page_keeper import PageKeeper
from unbroken.job.run_end import submit_left_out
from unbroken.job.segment_process import SegmentProcess, is_being_ended
from unbroken.runs import notify_process
from unbroken.runs.record import read_record
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.commands import has_command
from unbroken.slurm.queue import my_jobs


class Work:
    """The segment that this job does; afterwards `is_followed` and `has_no_room` say how the queue was left."""

    def __init__(self, job: ChainJob) -> None:
        self._job = job
        self._page = PageKeeper()
        self._has_successor = False
        self.has_tried = False  # an attempt was to be made
        self.has_no_room = False  # the queue took no further job, and there is little time to ask it twice
        self.is_followed = False  # the segment was done, more are to be done, and a task behind this one does them

    def do(self) -> tuple[int, SegmentEnd | None]:
        """Do one segment; return its exit code and its end.

        Segments whose record only had to be made again do not count.
        """
        try:
            code, end = self._do_next()
        finally:
            self._page.end()  # before the last page of all, which none may replace
        has_paused = end is not None and end.kind is EndKind.PAUSED
        self.is_followed = self._has_successor and has_paused and self._is_awaited()
        return code, end

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
        attempt = next_attempt(job, segment)
        self.has_tried = True
        job.log(f"segment {segment} of {job.now().last_segment}")
        words = job.command_for(segment, attempt)
        return SegmentProcess(job.folder, segment, job.job_id, words, job.log).run(self._look_ahead)

    def _is_awaited(self) -> bool:
        """Return True if a task waits still: somebody may have canceled those that were there at the beginning."""
        return self._job.now().next_segment() is not None and array.has_waiting(self._job.key)

    def _look_ahead(self) -> None:
        """Do what is done next to this segment's work, not before that begins."""
        self._submit_ahead()
        self._page.begin()

    def _submit_ahead(self) -> None:
        """Submit the next array if no task waits and more than one segment is left."""
        job = self._job
        if not has_command("sbatch") or is_being_ended():
            return
        submit_left_out(job.log)
        notify_process.start(Path())
        spec = job.now()
        if not spec.submission.refills or spec.remaining_segments() < 2:
            return
        jobs = my_jobs()
        if jobs is None:
            return  # asked again at the end
        if array.waiting(jobs, job.key):
            self._has_successor = True
            return
        done = array.submit(spec, at_work=job.job_id)
        job.log(f"no task of this run waits: submitting the next ones; {done.line}")
        # None if this segment was done meanwhile: the end of the job sees to the next one.
        self._has_successor = done.answer is array.Answer.DONE and done.tasks > 0
        self.has_no_room = done.answer is array.Answer.FULL
