"""The work of a chain whose rule is the user's own: the rule's job is run until it ends well.

Inside the rule's job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, so the code says nothing:
the job's own note names its run, and the history of that run says how it ended.
"""

from __future__ import annotations

import logging
import subprocess
from dataclasses import replace
from pathlib import Path

from unbroken.job import needs, rule_state
from unbroken.job.after_work import how_slurm_ends
from unbroken.job.next_attempt import Stop, next_attempt, stop_of
from unbroken.job.policy import Next, NextAction
from unbroken.job.rule_state import RuleState
from unbroken.job.segment_process import follow, is_being_ended
from unbroken.job.segment_script import unmark
from unbroken.job.spec import JobSpec
from unbroken.job.work import SegmentWork
from unbroken.slurm.job import EndState
from unbroken.store.exec_note import ExecNote, note_path, read_note
from unbroken.store.history import Attempt, EndCause, EndKind, History, SegmentEnd
from unbroken.store.progress import amount

logger = logging.getLogger(__name__)

# A file server is asked each time, for as long as the rule begins no run.
LOOK_SECONDS = 2.0
# Slurm ended the job at the limit of its time, which is the rule's own.
_AT_LIMIT = {EndState.TIMEOUT, EndState.DEADLINE}


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
        history = History(RuleState(note).folder(job.key).history).attempts() if note else []
        own = next((line for line in reversed(history) if line.slurm_job == job.job_id), None)
        end = end_of(note, own, _ended_by(job.job_id, note) if is_being_ended() else None)
        pauses = sum(line.kind is EndKind.PAUSED for line in history)
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
