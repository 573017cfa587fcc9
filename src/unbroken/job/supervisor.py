"""The work of one attempt: start the program, watch it, ask it to stop in time."""

from __future__ import annotations

import logging
import math
import os
import shlex
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from unbroken.engines.base import Engine, Task, When
from unbroken.job.attempt import Alarm, Job
from unbroken.job.deadline import JobTime
from unbroken.job.publisher import Publisher
from unbroken.program import process as child
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.environment import entered
from unbroken.program.error_line import error_line, log_bytes
from unbroken.program.handover import HandedOver
from unbroken.program.process import StopReason
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import KILLED_CODES
from unbroken.store.lease import Lease
from unbroken.store.progress import Handover, write_progress
from unbroken.store.times import Moments
from unbroken.store.trackers import tracker_variables
from unbroken.system.memory import Kills, out_of_memory_kills

logger = logging.getLogger(__name__)

# Patience with a program that was asked to stop, where Slurm's limit is not nearer: a slow file server takes minutes.
SOFT_PATIENCE_SECONDS = 60.0
HEARING_SECONDS = 1.0
# So often the progress of a program that does not write it itself is written down.
NOTE_SECONDS = 0.5
# A URG so near the known end is Slurm's warning; an earlier one was sent on purpose.
REMINDER_SECONDS = 240.0
TERM_PATIENCE_SECONDS = 30.0
# A stop takes no longer than the segment: two thirds of it until the TERM, one until the KILL; a program that has just
# been started needs some seconds, however short the segment is.
SHORTEST_STOP_SECONDS = 15.0
TERMED_CODES = frozenset({-signal.SIGTERM, 128 + signal.SIGTERM})
# Reasons to stop after which the program has the margin, or a patience that grows with it.
_WITH_MARGIN = frozenset({StopReason.DEADLINE, StopReason.WARNED})


@dataclass
class Work:
    """One running attempt; the fields below the line are its outcome, valid after an exception too."""

    job: Job
    engine: Engine
    task: Task
    publisher: Publisher
    limits: JobTime
    held: Lease
    alarm: Alarm
    moments: Moments
    had_seconds: float = 0.0  # what the segment's attempts before this one have worked
    # ---
    given_seconds: float = field(init=False)  # what the job has, or the segment where that is less
    exit_code: int | None = None
    error: str = ""  # what the program said of its failure
    is_out_of_memory: bool = False
    exit_means: int | None = None  # the same in the words of the contract
    stop_reason: StopReason | None = None
    left_seconds_at_stop: float | None = None
    stop_seconds: float | None = None  # of a stop that ended by itself
    killed_after_seconds: float | None = None  # of one that did not: from the request to the kill
    _stop_asked: float = 0.0
    _has_saved_since: bool = False
    _terminated_at: float | None = None
    _killed: bool = False
    _advance: tuple[float | None, int] = (None, -1)
    _advanced_at: float = 0.0
    _reminders: int = 0
    _next_note: float = 0.0

    def __post_init__(self) -> None:
        self.given_seconds = self.limits.deadline.left_seconds()

    @property
    def last(self) -> Checkpoint | None:
        """Return the newest checkpoint, at first the one that the attempt resumes from."""
        return self.publisher.last

    @property
    def _has_left_well(self) -> bool:
        return self.exit_means in {EXIT_FINISHED, EXIT_PAUSED}

    @property
    def _longest_stop_seconds(self) -> float:
        return max(self.given_seconds, SHORTEST_STOP_SECONDS)

    def run(self) -> None:
        """Run the program until it is gone; every state that it handed over is then a checkpoint."""
        command = entered(self.engine.command(self.task), self.job.run, self.job.base)
        logger.info(f"starting: {shlex.join(command)}")
        for remark in self.engine.remarks(self.task):
            logger.info(remark)
        environment, folder = self._environment(), self.engine.folder(self.task)
        kills_before = self._memory_kills()
        begins = log_bytes(self.job.log)
        with self.engine.streams(self.task, self.job.log) as streams:
            self.moments.note("program_started")
            program = child.start(command, environment, self.job.log, folder, streams)
            try:
                self._watch(program)
            finally:
                # Workers that outlived their parent, or everything if we are leaving by an exception.
                program.end(min(TERM_PATIENCE_SECONDS, self._longest_stop_seconds / 3))
        self.moments.note("program_ended")
        if not self._has_left_well:
            self.error = error_line(self.job.log, begins, or_last_line=self.exit_code != 0 and self.stop_reason is None)
            self.is_out_of_memory = self._lacked_memory(kills_before)
        self._publish(self.engine.states(self.task, When.LEFT if self._has_left_well else When.FAILED))
        if since := self.engine.leaving_since(self.task) or self._stop_asked:
            self._note_stop_ended(since, time.monotonic())

    def _environment(self) -> dict[str, str]:
        """Return the variables that the program receives; W&B and MLflow take all segments of a run for one run."""
        environment = self.engine.environment(self.task)
        if not self.engine.may_log_to_trackers or self.job.run.settings.get("preset"):
            return environment
        given = {**os.environ, **environment}
        return {**tracker_variables(self.task.attempt_folder.live, self.job.run.name, given), **environment}

    def _note_stop_ended(self, since: float, now: float) -> None:
        took, is_killed = self._lasting(since, now), self._was_killed()
        self.stop_seconds = None if is_killed else took
        self.killed_after_seconds = took if is_killed and not self._has_saved_since else None
        self.moments.note("stop_asked", now - since)

    def _was_killed(self) -> bool:
        """Return whether the stop ended by a KILL, or by a TERM after the program had not heeded the first request.

        One that does not advance was not asked in order to save.
        """
        is_asked_to_save = self._stop_asked and self.stop_reason is not StopReason.STALLED
        if not is_asked_to_save or self.is_out_of_memory or self._has_left_well:
            return False
        is_termed = self._terminated_at is not None and self.exit_code in TERMED_CODES
        return self._killed or is_termed or self.exit_code in KILLED_CODES

    def _memory_kills(self) -> Kills:
        slurm_job = self.limits.slurm_job
        return out_of_memory_kills(slurm_job.number if slurm_job else "")

    def _lacked_memory(self, before: Kills) -> bool:
        """Return True if the kernel killed something of this program.

        Where others live next to it, that is believed only of a program that a KILL ended which is not ours; in the
        groups of its job also of one that failed because of a worker.
        """
        now = self._memory_kills()
        is_killed = self.exit_code in KILLED_CODES and not self._killed
        return now.count > before.count and (now.is_job or is_killed)

    def _watch(self, program: child.Child) -> None:
        poll_seconds = min(1.0, max(0.05, self.job.run.segment_minutes * 60 / 600))
        while (code := program.wait(poll_seconds)) is None:
            if self.held.is_lost:
                self.held.confirm()
            self._publish(self.engine.states(self.task, When.WORKS))
            self._note_first_step()
            self._note_progress()
            if not self._stop_asked:
                self.limits.watch(self.moments.watch.seconds_between(0.0, math.inf))
            if self._stop_asked or self._begins_to_stop(program):
                self._escalate(program, time.monotonic())
        self.exit_code = code
        self.exit_means = self.engine.exit_meaning(self.task, code)
        self._hear_what_ended_it(code)

    def _hear_what_ended_it(self, code: int) -> None:
        """Wait for Slurm's TERM: it goes to all processes of a job, and the program may be gone before it is here."""
        give_up = time.monotonic() + HEARING_SECONDS
        while code == -signal.SIGTERM and not self.alarm.heard and time.monotonic() < give_up:
            time.sleep(0.01)
        if not self._stop_asked and self.alarm.interruption is not None:
            self.stop_reason = self.alarm.interruption
            self.left_seconds_at_stop = self.limits.deadline.left_seconds()

    def _publish(self, states: Iterable[HandedOver]) -> None:
        for found in states:
            began = time.monotonic()
            self.publisher.publish(self._without_suspension(found), has_ended_done=self.exit_means == EXIT_FINISHED)
            self._note_saved(time.monotonic() - began, found.handover)
            if self.exit_code is not None:
                continue
            if self._stop_asked:
                self._has_saved_since = True
            else:
                wrote = self.last.passport.save_seconds if self.last else None
                self.limits.learn_from_save(wrote, self.publisher.save_seconds)

    def _without_suspension(self, found: HandedOver) -> HandedOver:
        """Correct what a save took: the program's clock counts also while it is stopped, and the next stop needs it."""
        told = found.handover
        if told is None or told.save_seconds is None:
            return found
        now = time.monotonic()
        took = self._lasting(now - told.save_seconds, now)
        return replace(found, handover=replace(told, save_seconds=round(took, 3)))

    def _note_saved(self, seconds_ago: float, told: Handover | None) -> None:
        stall = told.stood_still_seconds if told and not self._stop_asked else 0.0
        self.moments.note_save(seconds_ago + (told.beside_seconds if told else 0.0), stall)

    def _note_first_step(self) -> None:
        """Note it as the program's own progress shows it, to a look's precision; asked until then."""
        progress = None if self.moments.has("first_step") else self.engine.progress(self.task)
        origin = self.task.origin.passport.progress.done if self.task.origin else 0.0
        if progress is not None and progress.done > origin:
            self.moments.note("first_step")

    def _note_progress(self) -> None:
        """Write the progress that the engine reads, for `unbroken status`; with the contract the program writes it."""
        now = time.monotonic()
        if type(self.engine).progress is Engine.progress or now < self._next_note:
            return
        self._next_note = now + NOTE_SECONDS
        if (progress := self.engine.progress(self.task)) is not None:
            write_progress(self.task.attempt_folder.progress, progress)

    def _begins_to_stop(self, program: child.Child) -> bool:
        """Ask the program to stop if there is a reason."""
        reason = self._reason_to_stop()
        if reason is None:
            return False
        now = time.monotonic()
        self.stop_reason, self._stop_asked = reason, now
        self.left_seconds_at_stop = self.limits.deadline.left_seconds()
        margin = self.limits.margin if reason in _WITH_MARGIN else None
        self.moments.note_stop(
            now - (self.engine.leaving_since(self.task) or now),
            margin.stop_seconds if margin else None,
            margin.grown_seconds if margin else None,
        )
        heard = f" ({self.alarm.heard[-1].name})" if self.alarm.heard else ""
        logger.info(f"stopping the program: {reason.value}{heard}")
        self.engine.ask_to_stop(self.task, program)
        if reason.is_interruption:
            self.limits.follow_slurm()  # a preemption may say by when
        return True

    def _reason_to_stop(self) -> StopReason | None:
        if self._has_stalled():
            return StopReason.STALLED
        if self.alarm.interruption is not None:
            return self.alarm.interruption
        if self.alarm.heard and not self._is_only_reminded():
            return StopReason.WARNED
        return StopReason.DEADLINE if self.limits.stops_within() else None

    def _has_stalled(self) -> bool:
        minutes = self.job.run.stall_minutes
        if minutes is None:
            return False
        progress = self.engine.progress(self.task)
        now = self.moments.watch.clock()
        seen = (progress.done if progress else None, self.publisher.saves)
        if seen != self._advance:
            self._advance, self._advanced_at = seen, now
        return now - self._advanced_at > minutes * 60

    def _is_only_reminded(self) -> bool:
        """Return True if Slurm's early warning says no more than the clock knows, which uses the time to its end.

        It comes minutes before the end, and up to a minute earlier than asked for [man sbatch: --signal].
        """
        if any(number is not signal.SIGURG for number in self.alarm.heard):
            return False
        if self._reminders < len(self.alarm.heard):
            self._reminders = len(self.alarm.heard)
            self.limits.follow_slurm()
        return self.limits.deadline.seconds_to_force() < REMINDER_SECONDS

    def _escalate(self, program: child.Child, now: float) -> None:
        """Send TERM, then KILL: after long patience, or at the last moment before Slurm does it."""
        margin, longest = self.limits.margin, self._longest_stop_seconds
        waited, left = self._lasting(self._stop_asked, now), self.limits.deadline.seconds_to_force()
        patience = min(max(SOFT_PATIENCE_SECONDS, 5 * margin.stop_seconds), 2 * longest / 3)
        must_term = waited > patience or left < min(5.0, margin.stop_seconds / 4)
        # From the TERM on: the time until it may have been spent on publishing what the program had saved.
        termed = self._terminated_at
        has_had_term = termed is not None and self._lasting(termed, now) > min(TERM_PATIENCE_SECONDS, longest / 3)
        if has_had_term or left < margin.last_seconds:
            if not self._killed:
                logger.info("the program does not exit: sending KILL")
            self._killed = True
            program.kill()
        elif must_term and termed is None:
            self._terminated_at = now
            logger.info("the program does not exit by itself: sending TERM")
            program.terminate()

    def _lasting(self, since: float, until: float) -> float:
        """Return the seconds between two moments, without those in which the job was stopped."""
        return until - since - self.moments.watch.seconds_between(since, until)
