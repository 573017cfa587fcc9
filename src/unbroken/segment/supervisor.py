"""The work of one attempt: start the program, watch it, tell it to stop in time."""

from __future__ import annotations

import math
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from unbroken.engines.base import Engine, Task
from unbroken.program import process as child
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, HandedOver
from unbroken.program.entering import entered
from unbroken.program.error_line import error_line, log_bytes
from unbroken.program.memory import Kills, out_of_memory_kills
from unbroken.program.stop_reason import StopReason
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.history import KILLED_CODES
from unbroken.runs.moments import Moments
from unbroken.runs.progress import Handover
from unbroken.segment.deadline import MOVED_SECONDS, Deadline, Margin
from unbroken.segment.job import STARTING, Job
from unbroken.segment.publisher import Publisher
from unbroken.segment.signals import Alarm
from unbroken.slurm.this_job import SlurmJob

# Patience with a program that was told to stop, where Slurm's limit is not nearer: a slow file server takes minutes.
SOFT_PATIENCE_SECONDS = 60.0
HEARING_SECONDS = 1.0
# A URG so near the known end is Slurm's warning; an earlier one is somebody's wish.
REMINDER_SECONDS = 240.0
# A margin that changes by less is not worth a line in the log.
TOLD_SECONDS = 1.0
# How often a job asks when it will be ended: six questions an hour, and one shortly before it would stop.
LOOK_SECONDS = 600.0
LAST_LOOK_SECONDS = 15.0
TERM_PATIENCE_SECONDS = 30.0
# A stop takes no longer than the segment: two thirds of it until the TERM, one until the KILL; a program that has just
# been started needs some seconds, however short the segment is.
SHORTEST_STOP_SECONDS = 15.0
TERMED_CODES = frozenset({-signal.SIGTERM, 128 + signal.SIGTERM})
# Reasons to stop after which the program has the margin, or a patience that grows with it.
_WITH_MARGIN = frozenset({StopReason.DEADLINE, StopReason.WARNED})


@dataclass
class Work:
    """One attempt at work; the fields below the line are what came of it, good also after an exception."""

    job: Job
    engine: Engine
    task: Task
    publisher: Publisher
    deadline: Deadline
    margin: Margin
    alarm: Alarm
    slurm_job: SlurmJob | None
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
    _told: bool = False
    _terminated_at: float | None = None
    _killed: bool = False
    _advance: tuple[float | None, int] = (None, -1)
    _advanced_at: float = 0.0
    _next_look: float = field(default_factory=lambda: time.monotonic() + LOOK_SECONDS)
    _has_looked_last: bool = False
    _stopped_seconds: float = 0.0
    _reminders: int = 0

    def __post_init__(self) -> None:
        self.given_seconds = self.deadline.left_seconds()
        self._written_unix = self.task.deadline_unix

    @property
    def last(self) -> Checkpoint | None:
        """The newest checkpoint, at first the one that the attempt goes on from."""
        return self.publisher.last

    def run(self) -> None:
        """Works until the program is gone; every state that it handed over is then a checkpoint."""
        run = self.job.run
        command = entered(self.engine.command(self.task), run, self.job.base)
        self.job.tell(f"{STARTING}{shlex.join(command)}")
        for remark in self.engine.remarks(self.task):
            self.job.tell(remark)
        environment, folder = self.engine.environment(self.task), self.engine.folder(self.task)
        kills_before = self._memory_kills()
        begins = log_bytes(self.job.log)
        with self.engine.streams(self.task, self.job.log) as streams:
            self.moments.note("program_started")
            program = child.start(command, environment, self.job.log, folder, streams)
            try:
                self._watch(program)
            finally:
                # Workers that outlived their parent, or everything if we are leaving by an exception.
                program.end(min(TERM_PATIENCE_SECONDS, max(self.given_seconds, SHORTEST_STOP_SECONDS) / 3))
        self.moments.note("program_ended")
        has_left_well = self.exit_means in {EXIT_FINISHED, EXIT_PAUSED}
        if not has_left_well:
            self.error = error_line(self.job.log, begins, or_last_line=self.exit_code != 0 and self.stop_reason is None)
        self.is_out_of_memory = not has_left_well and self._lacked_memory(kills_before)
        self._publish_all(lambda: self.engine.last_states(self.task, has_left_well))
        since = self.engine.leaving_since(self.task) or self._stop_asked
        if since:
            now = time.monotonic()
            took = self._lasting(since, now)
            is_killed = self._was_killed()
            self.stop_seconds = None if is_killed else took
            self.killed_after_seconds = took if is_killed and not self._has_saved_since else None
            self.moments.note("stop_asked", now - since)

    def _was_killed(self) -> bool:
        """Return whether the stop ended by a KILL, or by a TERM after the program had not heeded the first request.

        One that does not advance was not asked in order to save.
        """
        if not self._stop_asked or self.stop_reason is StopReason.STALLED or self.is_out_of_memory:
            return False
        if self.exit_means in {EXIT_FINISHED, EXIT_PAUSED}:
            return False
        is_termed = self._terminated_at is not None and self.exit_code in TERMED_CODES
        return self._killed or is_termed or self.exit_code in KILLED_CODES

    def _memory_kills(self) -> Kills:
        return out_of_memory_kills(self.slurm_job.number if self.slurm_job else "")

    def _lacked_memory(self, before: Kills) -> bool:
        """True if the kernel killed something of this program.

        Where others live beside it, that is believed only of a program that a KILL ended which is not ours; in the
        groups of its job also of one that failed because of a worker.
        """
        now = self._memory_kills()
        is_killed = self.exit_code in KILLED_CODES and not self._killed
        return now.count > before.count and (now.is_job or is_killed)

    def _watch(self, program: child.Child) -> None:
        poll_seconds = min(1.0, max(0.05, self.job.run.segment_minutes * 60 / 600))
        while (code := program.wait(poll_seconds)) is None:
            if self.publisher.writer.is_lost:
                self.publisher.writer.confirm()
            self._publish_all(lambda: self.engine.states(self.task))
            self._note_first_step()
            self._watch_progress()
            self._watch_slurm()
            self._consider_stop(program)
        self.exit_code = code
        self.exit_means = self.engine.exit_meaning(self.task, code)
        self._hear_what_ended_it(code)

    def _hear_what_ended_it(self, code: int) -> None:
        """Slurm's TERM goes to all processes of a job, and the program may be gone before it reaches us."""
        give_up = time.monotonic() + HEARING_SECONDS
        while code == -signal.SIGTERM and not self.alarm.heard and time.monotonic() < give_up:
            time.sleep(0.01)
        if not self._stop_asked and self.alarm.interruption is not None:
            self.stop_reason = self.alarm.interruption
            self.left_seconds_at_stop = self.deadline.left_seconds()

    def _publish_all(self, states: Callable[[], list[HandedOver]]) -> None:
        for found in states():
            began = time.monotonic()
            self.publisher.publish(self._without_suspension(found), self.exit_means == EXIT_FINISHED)
            self._note_saved(time.monotonic() - began, found.handover)
            if self.exit_code is None and not self._stop_asked:
                self._learn_margin()
            self._has_saved_since = self._has_saved_since or (self.exit_code is None and self._stop_asked > 0)

    def _without_suspension(self, found: HandedOver) -> HandedOver:
        """The program's clock counts also while it is stopped, and by what a save took the next stop is planned."""
        told = found.handover
        if told is None or told.save_seconds is None:
            return found
        now = time.monotonic()
        took = self._lasting(now - told.save_seconds, now)
        return replace(found, handover=replace(told, save_seconds=round(took, 3)))

    def _note_saved(self, seconds_ago: float, told: Handover | None) -> None:
        if told is None:
            self.moments.note_save(seconds_ago, 0.0)
        else:
            stall = 0.0 if self._stop_asked else told.stood_still_seconds
            self.moments.note_save(seconds_ago + told.beside_seconds, stall)

    def _note_first_step(self) -> None:
        """As the program's own progress shows it, to a look's precision; asked until then."""
        progress = None if self.moments.has("first_step") else self.engine.progress(self.task)
        origin = self.task.origin.passport.progress.done if self.task.origin else 0.0
        if progress is not None and progress.done > origin:
            self.moments.note("first_step")

    def _learn_margin(self) -> None:
        """A save in the middle of the segment shows what the one at its end will take."""
        before, wrote = self.margin, self.last.passport.save_seconds if self.last else None
        self.margin = before.after_save(wrote, self.publisher.save_seconds)
        if self.margin.publish_seconds > before.publish_seconds:
            self._write_deadline()
        if abs(self.margin.stop_seconds - before.stop_seconds) >= TOLD_SECONDS:
            self.job.tell(f"by what a save takes: told to stop {self.margin.stop_seconds:.1f} s before the end")

    def _watch_progress(self) -> None:
        minutes = self.job.run.stall_minutes
        progress = self.engine.progress(self.task) if minutes else None
        if minutes is None or self._stop_asked:
            return
        now = self.moments.watch.clock()
        seen = (progress.done if progress else None, self.publisher.saves)
        if seen != self._advance:
            self._advance, self._advanced_at = seen, now
        elif now - self._advanced_at > minutes * 60:
            self._start_stopping(StopReason.STALLED, time.monotonic())

    def _watch_slurm(self) -> None:
        """Follows an administrator who gives the job more time, or takes some."""
        now, stopped = time.monotonic(), self.moments.watch.seconds_between(0.0, math.inf)
        if stopped > self._stopped_seconds:  # a job that was suspended has another end
            self._next_look, self._stopped_seconds = 0.0, stopped
        is_nearly_over = self.deadline.left_seconds() <= self.margin.stop_seconds + LAST_LOOK_SECONDS
        is_last_look = is_nearly_over and not self._has_looked_last
        if self._stop_asked or not (is_last_look or now >= self._next_look):
            return
        self._has_looked_last = is_nearly_over
        self._next_look = now + LOOK_SECONDS
        self._follow_slurm()
        if abs(self._deadline_unix() - self._written_unix) >= MOVED_SECONDS:  # somebody has set this node's clock
            self._write_deadline()

    def _deadline_unix(self) -> float:
        return self.deadline.unix(self.margin.publish_seconds)

    def _write_deadline(self) -> None:
        """By this node's clock, which is the one that the program has."""
        self._written_unix = self._deadline_unix()
        self.task.attempt_folder.write_deadline(self._written_unix)

    def _follow_slurm(self) -> None:
        asked = self.slurm_job.asked() if self.slurm_job else None
        moved = self.deadline.moved(self._end_here(asked)) if asked and asked.end_unix else self.deadline
        if moved is self.deadline:
            return
        self.slurm_job = asked
        before, self.deadline, self._has_looked_last = self.deadline, moved, False
        difference = moved.forced - before.forced
        change = f"{abs(difference):.0f} s {'later' if difference > 0 else 'sooner'}"
        self.job.tell(f"Slurm ends the job {change} than it said; {moved.left_seconds():.0f} s are left")
        self._write_deadline()

    def _end_here(self, asked: SlurmJob) -> float:
        """The end of the job by this node's clock, which may have been set meanwhile: Slurm's two ends are compared."""
        known = self.slurm_job.end_unix if self.slurm_job else None
        if known is None or asked.end_unix is None:
            return asked.timed().end_here_unix or math.inf
        return time.time() + self.deadline.seconds_to_force() + asked.end_unix - known

    def _start_stopping(self, reason: StopReason, now: float) -> None:
        self.stop_reason, self._stop_asked = reason, now
        self.left_seconds_at_stop = self.deadline.left_seconds()
        has_margin = reason in _WITH_MARGIN
        self.moments.note_stop(
            now - (self.engine.leaving_since(self.task) or now),
            self.margin.stop_seconds if has_margin else None,
            self.margin.grown_seconds if has_margin else None,
        )
        heard = f" ({self.alarm.heard[-1].name})" if self.alarm.heard else ""
        self.job.tell(f"stopping the program: {reason.value}{heard}")

    def _consider_stop(self, program: child.Child) -> None:
        now = time.monotonic()
        if not self._stop_asked:
            reason = self._reason_to_stop()
            if reason is not None:
                self._start_stopping(reason, now)
        if self._stop_asked and not self._told:
            self._told = True
            self.engine.ask_to_stop(self.task, program)
            if self.stop_reason is not None and self.stop_reason.is_interruption:
                self._follow_slurm()  # a preemption may say by when
        if self._stop_asked:
            self._escalate(program, now)

    def _reason_to_stop(self) -> StopReason | None:
        if self.alarm.interruption is not None:
            return self.alarm.interruption
        if self.alarm.heard and not self._is_only_reminded():
            return StopReason.WARNED
        return StopReason.DEADLINE if self.deadline.left_seconds() <= self.margin.stop_seconds else None

    def _is_only_reminded(self) -> bool:
        """True if Slurm's early warning says no more than the clock knows, which uses the time to its end.

        It comes minutes before the end, and up to a minute earlier than asked for [man sbatch: --signal].
        """
        if any(number is not signal.SIGURG for number in self.alarm.heard):
            return False
        if self._reminders < len(self.alarm.heard):
            self._reminders = len(self.alarm.heard)
            self._follow_slurm()
        return self.deadline.seconds_to_force() < REMINDER_SECONDS

    def _escalate(self, program: child.Child, now: float) -> None:
        """TERM, then KILL: after long patience, or at the last moment before Slurm does it."""
        waited, left = self._lasting(self._stop_asked, now), self.deadline.seconds_to_force()
        longest = max(self.given_seconds, SHORTEST_STOP_SECONDS)
        patience = min(max(SOFT_PATIENCE_SECONDS, 5 * self.margin.stop_seconds), 2 * longest / 3)
        must_term = waited > patience or left < min(5.0, self.margin.stop_seconds / 4)
        # From the TERM on: the time until it may have been spent on publishing what the program had saved.
        termed = self._terminated_at
        has_had_term = termed is not None and self._lasting(termed, now) > min(TERM_PATIENCE_SECONDS, longest / 3)
        must_kill = has_had_term or left < self.margin.last_seconds
        if must_kill:
            if not self._killed:
                self.job.tell("the program does not exit: sending KILL")
            self._killed = True
            program.kill()
        elif must_term and self._terminated_at is None:
            self._terminated_at = now
            self.job.tell("the program does not exit by itself: sending TERM")
            program.terminate()

    def _lasting(self, since: float, until: float) -> float:
        """Seconds between two moments, without those in which the job was stopped."""
        return until - since - self.moments.watch.seconds_between(since, until)
