"""The work of a chain whose rule is the user's own: the rule's job is run until it ends well."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.job import rule_state
from unbroken.job.after_work import how_slurm_ends
from unbroken.job.next_attempt import Stop, next_attempt
from unbroken.job.rule_end import RuleEnd, after, rule_end
from unbroken.job.rule_state import RuleState
from unbroken.job.segment_process import is_being_ended
from unbroken.job.segment_script import unmark
from unbroken.job.stop_note import stop_of
from unbroken.job.work import Work
from unbroken.program.memory import Kills, out_of_memory_kills
from unbroken.runs import attempts, policy
from unbroken.runs.exec_note import ExecNote, note_path, read_note
from unbroken.runs.history import Attempt, History
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.job_end import EndState

# A file server is asked each time, for as long as the rule begins no run.
LOOK_SECONDS = 2.0


class RuleWork(Work):
    """The rule's job, once; Stop if no further one is to be made."""

    def _do_next(self) -> tuple[int, SegmentEnd | None]:
        job = self._job
        if rule_state.is_done(job.key):
            return 0, None
        state = self._state_before()
        self.has_tried = True
        kills = _memory_kills()
        code = self._run_rule(1 + len(state.killed_jobs))
        if code == 0:
            rule_state.note_done(job.key)
            for output in job.spec.rule_job.outputs:
                unmark(Path(output))
            return 0, None
        ended = self._end(kills)
        return (0, ended.end) if self._follow(state, ended) else (code, None)

    def _state_before(self) -> RuleState:
        """Return the state with the jobs of this start that ran out of memory; Stop by the policy.

        Stop also if the task before has just stopped the chain: while Slurm ends a task at its limit, the next starts.
        """
        job = self._job
        if why := stop_of(job.key, job.spec.start):
            raise Stop(why)
        state = rule_state.read_state(job.key).of_start(job.spec.start)
        if state.note is None:
            return state
        next_attempt(job, state.segment)
        known = policy.of_start(attempts.all_attempts(job.folder), job.spec.start)
        killed = [line.slurm_job for line in attempts.with_causes(known) if line.ran_out_of_memory]
        state = replace(state, killed_jobs=tuple(dict.fromkeys((*state.killed_jobs, *killed))))
        state.write(job.key)
        allowed = job.now().allowed
        if len(state.killed_jobs) > allowed.retries:
            raise Stop(f"rule {allowed.rule} ran out of memory; raise its mem_mb, then start snakemake again")
        return state

    def _run_rule(self, attempt: int) -> int:
        """Run the rule's job; look after the queue once its run has begun."""
        path = note_path(Path())
        if path is not None:
            path.unlink(missing_ok=True)  # of another job that had this number
        words = list(self._job.spec.rule_job.command)
        if "--attempt" in words:
            words[words.index("--attempt") + 1] = str(attempt)
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        while self._note() is None:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(LOOK_SECONDS)
        self._look_ahead()
        return child.wait()

    def _note(self) -> ExecNote | None:
        path = note_path(Path())
        return None if path is None else read_note(path)

    def _end(self, kills: Kills) -> RuleEnd:
        """Return how the rule's job ended."""
        job_id, note = self._job.job_id, self._note()
        ended_by = _ended_by(job_id, note) if is_being_ended() else None
        history = History(RuleState(note).folder(self._job.key).history).attempts() if note else []
        own = [attempt for attempt in history if attempt.slurm_job == job_id]
        return rule_end(job_id, note, history, ended_by, _lacked_memory(note, own, kills))

    def _follow(self, before: RuleState, ended: RuleEnd) -> bool:
        """Write what the next task needs; return True if the job has paused, Stop if there is to be no next one."""
        job = self._job
        state, action = after(before, ended, job.now().allowed)
        state.write(job.key)
        if action.stops:
            raise Stop(action.why)
        if action.why:
            job.log(action.why)
        if ended.note is not None and ended.note.kind is EndKind.FAILED and not ended.end.ran_out_of_memory:
            next_attempt(job, state.segment)
        return ended.end.kind is EndKind.PAUSED and state.failures == 0


def _ended_by(job_id: str, note: ExecNote | None) -> EndState:
    """Return Slurm's word for how it ends this job, which is asked for only where that decides."""
    is_asked = note is None or note.kind is EndKind.FINISHED
    word = how_slurm_ends(job_id) if is_asked else ""
    return EndState.of(word) if word else EndState.REQUEUED


def _memory_kills() -> Kills:
    return out_of_memory_kills(os.environ.get("SLURM_JOB_ID", ""))


def _lacked_memory(note: ExecNote | None, own: list[Attempt], before: Kills) -> bool:
    """Return True if the kernel killed the program: by its own line, or where it could write none."""
    if own and (own[-1].kind.settles or own[-1].ran_out_of_memory):
        return not own[-1].kind.settles
    if note is not None and note.kind is not None:
        return False
    now = _memory_kills()
    return now.is_job and now.count > before.count
