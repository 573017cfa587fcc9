"""The work of a chain whose rule is the user's own: the rule's job is run until it ends well.

Inside the rule's job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, so the code says nothing:
the job's own note names its run, and the history of that run says how it ended.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from unbroken.job import rule_state
from unbroken.job.next_attempt import Stop, next_attempt
from unbroken.job.rule_state import RuleState
from unbroken.job.segment_process import CommandEnd, is_being_ended
from unbroken.job.work import Work
from unbroken.runs.exec_note import REFUSED, ExecNote, note_path, read_note
from unbroken.runs.history import Attempt, History
from unbroken.runs.outcome import Outcome
from unbroken.runs.progress import amount

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Pause:
    """The pause by which a job has ended, and how many its run has behind it."""

    count: int
    attempt: Attempt


class RuleWork(Work):
    """The rule's job, once; Stop if no further one is to be made."""

    def _do_next(self) -> CommandEnd:
        job, state = self._job, rule_state.read_state(self._job.key)
        if rule_state.is_done(job.key):
            return CommandEnd(0)
        if state.note is not None:
            next_attempt(job, state.note.segment)
        code = self._run_rule()
        if code == 0:
            rule_state.note_done(job.key)
            return CommandEnd(0)
        note = self._note()
        after = self._after(state, note)
        after.write(job.key)
        return CommandEnd(code)

    def _run_rule(self) -> int:
        """Run the rule's job; look after the queue once its run has begun."""
        child = subprocess.Popen(self._job.spec.rule_job.command, stdin=subprocess.DEVNULL)
        while child.poll() is None and self._note() is None:
            time.sleep(LOOK_SECONDS)
        if child.poll() is None:
            self._look_ahead()
        return child.wait()

    def _note(self) -> ExecNote | None:
        path = note_path(Path())
        return None if path is None else read_note(path)

    def _after(self, before: RuleState, note: ExecNote | None) -> RuleState:
        """Return the state after a job that did not end well."""
        if is_being_ended():
            return RuleState(note or before.note, before.pauses, before.failures)
        if note is None:
            return self._failed(before, before.note, "no segment of `unbroken exec`, or of a training, began in it")
        if note.outcome == REFUSED:
            raise Stop(note.reason)
        pause = _pause(RuleState(note), self._job.job_id, self._job.key)
        if note.outcome == Outcome.FINISHED.value:
            return self._failed(before, note, "the rest of the rule failed although its program was done")
        if pause is None:
            return RuleState(note, before.pauses)  # the history and the policy say it, before the next attempt
        if pause.count <= before.pauses:
            return self._failed(before, note, "no more segments than before are done; has the rule --anew in it?")
        if pause.count >= self._job.spec.last_segment:
            raise Stop(self._used_up(note, pause))
        return RuleState(note, pause.count)

    def _failed(self, before: RuleState, note: ExecNote | None, why: str) -> RuleState:
        """Count a failure; Stop after as many as the rule may be retried."""
        failures = before.failures + 1
        if failures > self._job.spec.retries:
            RuleState(note, before.pauses, failures).write(self._job.key)
            raise Stop(f"rule {self._job.spec.rule_job.name} failed{f' {failures} times' * (failures > 1)}: {why}")
        self._job.log(f"{why}; tried again")
        return RuleState(note, before.pauses, failures)

    def _used_up(self, note: ExecNote, pause: Pause) -> str:
        done = f"{amount(pause.attempt.progress_to)} {pause.attempt.unit}"
        allowed, rule = self._job.spec.last_segment, self._job.spec.rule_job.name
        used = f"{note.name}: its {allowed} segments are used up, with {done} done"
        return f"{used}; to go on, raise `segments` of rule {rule}, then start snakemake again"


def _pause(state: RuleState, job_id: str, key: str) -> Pause | None:
    """Return the pause by which a job ended; None if it did not."""
    history = History(state.folder(key).history).attempts()
    own = [attempt for attempt in history if attempt.slurm_job == job_id]
    if not own or own[-1].outcome is not Outcome.PAUSED:
        return None
    return Pause(sum(attempt.outcome is Outcome.PAUSED for attempt in history), own[-1])
