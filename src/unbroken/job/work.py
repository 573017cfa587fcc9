"""One job's part of a chain: its work and, while it is done, the tasks behind it and the page of all runs.

The work is a segment of a run or, in a chain whose rule is the user's own, the rule's job, which is run until it ends
well.  Inside the rule's job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, so the code says
nothing: the job's own note names its run, and the history of that run says how it ended.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.job import array, background, needs, rule_state
from unbroken.job.after_work import PAGE_WRITER, how_slurm_ends, submit_left_out
from unbroken.job.background import PageProcess
from unbroken.job.next_attempt import Stop, next_attempt, stop_of
from unbroken.job.policy import Next, NextAction
from unbroken.job.rule_state import RuleState
from unbroken.job.segment_process import SegmentProcess, follow, is_being_ended
from unbroken.job.segment_script import unmark
from unbroken.job.spec import ChainJob, JobSpec
from unbroken.slurm.client import has_command
from unbroken.slurm.job import EndState, ListedJob
from unbroken.store.attempts import all_attempts
from unbroken.store.exec_note import ExecNote, note_path, read_note
from unbroken.store.history import Attempt, EndCause, EndKind, SegmentEnd
from unbroken.store.progress import amount
from unbroken.store.record import read_record

logger = logging.getLogger(__name__)

# Without a driver, one job of the folder keeps `results/report.html` fresh.
PAGE_SECONDS = 600.0
# A file server is asked each time, for as long as the rule begins no run.
LOOK_SECONDS = 2.0
# Slurm ended the job at the limit of its time, which is the rule's own.
_AT_LIMIT = {EndState.TIMEOUT, EndState.DEADLINE}


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
        self._page.begin(PAGE_SECONDS)

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
        try:
            done = array.submit(spec, at_work=job.job_id)
        except OSError as error:
            done = array.Submitted(array.Answer.LATER, said=str(error))
        self.has_no_room = done.answer is array.Answer.FULL
        if done.answer is array.Answer.LATER:
            logger.info(f"the next tasks of this run are seen to at the end of this job: {done.line}")
        elif done.answer is not array.Answer.FOUND:
            logger.info(f"no task of this run waits: submitting the next ones; {done.line}")


# --- a rule of the user's own ---


class RuleWork(SegmentWork):
    """The rule's job, once; Stop if no further one is to be made."""

    def _do_next(self) -> tuple[int, SegmentEnd | None]:
        job = self._job
        if rule_state.is_done(job.key):
            return 0, None
        if why := stop_of(job.key, job.spec.start):  # while Slurm ends a task at its limit, the next one starts
            raise Stop(why)
        before, kills = rule_state.read_state(job.key).of_start(job.spec.start), 0
        if before.note is not None:
            self.next_attempt(before.segment)
            kills = needs.out_of_memory_kills(job.spec)
            if kills > job.now().retries:
                raise Stop(_after_out_of_memory(kills, job.now()).why)
        self.has_tried = True
        code = self._run_rule(1 + kills)
        if code != 0:
            end = self._end(before)
            return (0, end) if end.kind is EndKind.PAUSED else (code, None)
        rule_state.note_done(job.key)
        for output in job.spec.rule_job.outputs:
            unmark(Path(output))
        return 0, None

    def _run_rule(self, attempt: int) -> int:
        """Run the rule's job; look after the queue once its run has begun."""
        path = note_path(Path())
        if path is not None:
            path.unlink(missing_ok=True)  # of another job that had this number
        child = subprocess.Popen(self._job.command_for(1, attempt), stdin=subprocess.DEVNULL)
        return follow(child, lambda: _note() is not None, self.look_ahead, LOOK_SECONDS)

    def _end(self, before: RuleState) -> SegmentEnd:
        """Write what the next task needs; return how the job ended, Stop if there is to be no next one."""
        job, note = self._job, _note()
        attempts = all_attempts(RuleState(note).folder(job.key)) if note else []
        own = next((line for line in reversed(attempts) if line.slurm_job == job.job_id), None)
        end = end_of(note, own, _ended_by(job.job_id, note) if is_being_ended() else None)
        pauses = sum(line.kind is EndKind.PAUSED for line in attempts)
        state, action = after(before, note, end, pauses, job.now())
        state.write(job.key)
        if end.ran_out_of_memory:
            action = _after_out_of_memory(needs.out_of_memory_kills(job.spec), job.now())
        if action.stops:
            raise Stop(action.why)
        if action.why:
            logger.info(action.why)
        if note is not None and note.kind is EndKind.FAILED and not end.ran_out_of_memory:
            next_attempt(job, state.segment)
        return replace(end, kind=EndKind.FAILED) if state.failures else end


def _note() -> ExecNote | None:
    path = note_path(Path())
    return None if path is None else read_note(path)


def _ended_by(job_id: str, note: ExecNote | None) -> EndState:
    """Return Slurm's word for how it ends this job, which is asked for only where that decides."""
    is_asked = note is None or note.kind is EndKind.FINISHED
    word = how_slurm_ends(job_id) if is_asked else ""
    return EndState.of(word) if word else EndState.REQUEUED


# --- what follows; pure ---


def end_of(note: ExecNote | None, own: Attempt | None, ended_by: EndState | None) -> SegmentEnd:
    """Return how a job ended that did not end well.

    By its own note, its line in the history of its run, and Slurm's word if Slurm ended it.
    """
    if note is not None and note.kind is EndKind.REFUSED:
        return SegmentEnd(kind=EndKind.REFUSED, message=note.reason)
    if note is not None and own is not None and own.ran_out_of_memory:
        return own
    if note is not None and own is not None and own.kind is EndKind.PAUSED:
        return replace(own, job_state=ended_by)
    if note is None:
        message = "no segment of `unbroken exec`, or of a training, began in it"
        return SegmentEnd(kind=EndKind.NEVER_RAN, message=message, job_state=ended_by)
    if note.kind is EndKind.FINISHED:
        message = "the rest of the rule failed although its program was done"
        return SegmentEnd(kind=EndKind.FAILED, cause=EndCause.NO_RESULTS, message=message, job_state=ended_by)
    return SegmentEnd(kind=note.kind or EndKind.DIED, job_state=ended_by)


def after(
    before: RuleState, note: ExecNote | None, end: SegmentEnd, pauses: int, spec: JobSpec
) -> tuple[RuleState, NextAction]:
    """Return the state that the next task finds, and what follows the end of a job.

    `pauses` are those of its run, this job's too.  What follows a want of memory, the history says.
    """
    state = replace(before, note=note or before.note)
    # Slurm ended the job before its time was over: the rule did nothing wrong.
    is_taken_away = end.job_state is not None and end.job_state not in _AT_LIMIT
    if end.kind is EndKind.REFUSED:
        return state, NextAction(Next.STOP, end.message)
    if end.ran_out_of_memory:
        return state, NextAction(Next.MORE_MEMORY)
    known = before.pauses if before.store == state.store else 0
    if end.kind is EndKind.PAUSED and (pauses > known or is_taken_away):
        return replace(state, pauses=pauses, failures=0), _after_pause(state, end, pauses, spec)
    if is_taken_away:
        return state, NextAction(Next.RESUME)
    why = "no more segments than before are done; has the rule --anew in it?"
    if end.kind is not EndKind.PAUSED:
        why = end.message if end.kind is EndKind.NEVER_RAN or end.cause is EndCause.NO_RESULTS else ""
    if not why:
        return replace(state, failures=0), NextAction(Next.RETRY)  # the history and the policy say more
    state = replace(state, failures=state.failures + 1)
    if state.failures <= spec.retries:
        return state, NextAction(Next.RETRY, f"{why}; tried again")
    times = f" {state.failures} times" if state.failures > 1 else ""
    return state, NextAction(Next.STOP, f"{spec.name} failed{times}: {why}")


def _after_pause(state: RuleState, end: SegmentEnd, pauses: int, spec: JobSpec) -> NextAction:
    if pauses < spec.last_segment:
        return NextAction(Next.RESUME)
    name = state.note.name if state.note else spec.rule_job.name
    used = f"{name}: its {spec.last_segment} segments are used up, with {amount(end.progress_to)} {end.unit} done"
    todo = f"to go on, raise `segments` of {spec.name}, then start snakemake again"
    return NextAction(Next.STOP, f"{used}; {todo}")


def _after_out_of_memory(kills: int, spec: JobSpec) -> NextAction:
    """Return what follows when so many jobs of this start ran out of memory."""
    had, gets = spec.rule_job.memory_after(kills - 1), spec.rule_job.memory_after(kills)
    what = f"{spec.name} ran out of memory{f' ({had} MB)' * bool(had)}"
    if kills > spec.retries:
        return NextAction(Next.STOP, f"{what}; raise its mem_mb, then start snakemake again")
    return NextAction(Next.MORE_MEMORY, f"{what}; tried again{f' with {gets} MB' * bool(gets)}")
