"""The work of one attempt: start the program, watch it, tell it to stop in time, publish what it hands over."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from longhaul import __version__, child
from longhaul.alarm import Alarm
from longhaul.clock import utc_now
from longhaul.contract import EXIT_FINISHED, EXIT_PAUSED, Found
from longhaul.deadline import Deadline, Margin
from longhaul.digests import preferred_algorithm
from longhaul.engine import Engine, Task
from longhaul.errors import SegmentError
from longhaul.host import this_host
from longhaul.identity import Identity
from longhaul.job import Job
from longhaul.lease import Lease
from longhaul.passport import Passport
from longhaul.progress import Handover, Progress
from longhaul.slurm import current_job
from longhaul.store import Checkpoint, Store

# Patience with a program that was told to stop, where Slurm's limit is not nearer: a slow file server takes minutes.
SOFT_PATIENCE_SECONDS = 60.0
TERM_PATIENCE_SECONDS = 30.0


class StopReason(Enum):
    """Why the program was told to leave."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that its time is nearly up"
    TAKEN_AWAY = "a signal took the machine away"
    STALLED = "it does not advance"


@dataclass
class Work:
    """One attempt at work; the fields below the line are what came of it, good also after an exception."""

    job: Job
    engine: Engine
    task: Task
    store: Store
    lease: Lease
    identity: Identity
    deadline: Deadline
    margin: Margin
    alarm: Alarm
    # ---
    exit_code: int | None = None
    stop_reason: StopReason | None = None
    stop_seconds: float | None = None
    saves: int = 0
    save_seconds: float = 0.0
    last: Checkpoint | None = None
    started: float = field(default_factory=time.monotonic)
    started_utc: str = field(default_factory=utc_now)
    _stop_asked: float = 0.0
    _told: bool = False
    _terminated: bool = False
    _advance: tuple[float | None, int] = (None, -1)
    _advanced_at: float = 0.0

    def run(self) -> None:
        """Works until the program is gone; every state that it handed over is then a checkpoint."""
        self.last = self.task.origin
        run = self.job.run
        command = child.entered(self.engine.command(self.task), run.modules, run.enter)
        self.job.tell(f"starting: {shlex.join(command)}")
        program = child.start(command, self.engine.environment(self.task), self.job.log)
        try:
            self._watch(program)
        finally:
            program.kill()  # workers that outlived their parent, or everything if we are leaving by an exception
            program.wait(TERM_PATIENCE_SECONDS)
        has_left_well = self.exit_code in {EXIT_FINISHED, EXIT_PAUSED}
        self._publish_all(lambda: self.engine.last_states(self.task, has_left_well))
        if self._stop_asked:
            self.stop_seconds = time.monotonic() - self._stop_asked

    def _watch(self, program: child.Child) -> None:
        poll_seconds = min(1.0, max(0.05, self.job.run.segment_minutes * 60 / 600))
        while (code := program.wait(poll_seconds)) is None:
            if self.lease.is_lost:
                self.lease.confirm()
            self._publish_all(lambda: self.engine.states(self.task))
            self._watch_progress()
            self._consider_stop(program)
        self.exit_code = code

    def _publish_all(self, states: Callable[[], list[Found]]) -> None:
        for found in states():
            self._publish(found)

    def _publish(self, found: Found) -> None:
        began = time.monotonic()
        handover = self._with_goal(found.handover) if found.handover else self._counted(found)
        self._refuse_regress(handover)
        self.last = self.store.publish(found.draft, self._passport(found, handover), self.lease.confirm)
        seconds = time.monotonic() - began
        self.saves += 1
        self.save_seconds = max(self.save_seconds, seconds)
        self.job.tell(f"checkpoint {self.last.name} ({describe_done(self.last)}) published in {seconds:.2f} s")
        self.lease.confirm()
        self.store.prune(self.job.run.keep, self.job.run.milestone_every)

    def _counted(self, found: Found) -> Handover:
        """For a program that says nothing of its progress: its checkpoints are counted.

        They are no measure of the goal, which is noted only when the program ends by calling it reached.
        """
        before = self.last.passport.progress.done if self.last else 0.0
        goal = self.job.run.goal if self._has_left_finished(found) else None
        return Handover(Progress(before + 1, goal, "checkpoints"))

    def _has_left_finished(self, found: Found) -> bool:
        return self.exit_code == EXIT_FINISHED and found.draft.name == "loose"

    def _with_goal(self, handover: Handover) -> Handover:
        progress = handover.progress
        if progress.goal is not None or self.job.run.goal is None:
            return handover
        return replace(handover, progress=replace(progress, goal=self.job.run.goal))

    def _refuse_regress(self, handover: Handover) -> None:
        done = handover.progress.done
        before = self.last.passport.progress.done if self.last else 0.0
        if self.last and done < before:
            raise SegmentError(
                f"the program handed over {done:.10g} after {before:.10g} {handover.progress.unit}: it did not go on "
                f"from {self.last.folder} (LONGHAUL_RESUME); nothing of it was kept; "
                f"see {self.job.log}"
            )

    def _is_finished(self, found: Found, handover: Handover) -> bool:
        """By its own word, by its count, or by exit code 0 where its count does not speak against that."""
        says_less = found.handover is not None and handover.progress.goal is not None
        says_so = handover.is_finished or handover.progress.is_finished
        return says_so or (self._has_left_finished(found) and not says_less)

    def _passport(self, found: Found, handover: Handover) -> Passport:
        run, parent = self.job.run, self.last
        job = current_job()
        return Passport(
            run=run.name,
            engine=run.engine,
            segment=self.job.segment,
            sequence=self.store.last_sequence() + 1,
            token=self.lease.claim.token,
            parent=parent.name if parent else None,
            parent_digest=parent.passport.digest if parent else None,
            progress=handover.progress,
            is_finished=self._is_finished(found, handover),
            is_best=handover.is_best,
            algorithm=handover.algorithm or preferred_algorithm(),
            files=handover.digests,
            identity=self.identity.digest,
            identity_parts=self.identity.parts,
            versions={"longhaul": __version__, **self.engine.versions(), **handover.versions},
            host=this_host().to_json(),
            slurm_job=job.to_json() if job else None,
            attempt_started_utc=self.started_utc,
            created_utc=utc_now(),
            work_seconds=round(time.monotonic() - self.started, 3),
            save_seconds=handover.save_seconds,
            note=run.note,
        )

    def _watch_progress(self) -> None:
        minutes = self.job.run.stall_minutes
        progress = self.engine.progress(self.task) if minutes else None
        if minutes is None or self._stop_asked:
            return
        now = time.monotonic()
        seen = (progress.done if progress else None, self.saves)
        if seen != self._advance:
            self._advance, self._advanced_at = seen, now
        elif now - self._advanced_at > minutes * 60:
            self._start_stopping(StopReason.STALLED, now)

    def _start_stopping(self, reason: StopReason, now: float) -> None:
        self.stop_reason, self._stop_asked = reason, now
        heard = f" ({self.alarm.heard[-1].name})" if self.alarm.heard else ""
        self.job.tell(f"telling the program to stop: {reason.value}{heard}")

    def _consider_stop(self, program: child.Child) -> None:
        now = time.monotonic()
        if not self._stop_asked:
            reason = self._reason_to_stop()
            if reason is not None:
                self._start_stopping(reason, now)
        if self._stop_asked and not self._told:
            self._told = True
            self.engine.ask_to_stop(self.task, program)
        if self._stop_asked:
            self._escalate(program, now)

    def _reason_to_stop(self) -> StopReason | None:
        if self.alarm.is_taken_away:
            return StopReason.TAKEN_AWAY
        if self.alarm.heard:
            return StopReason.WARNED
        if self.deadline.left_seconds() <= self.margin.stop_seconds:
            return StopReason.DEADLINE
        return None

    def _escalate(self, program: child.Child, now: float) -> None:
        """TERM, then KILL: after long patience, or at the last moment before Slurm does it."""
        waited, left = now - self._stop_asked, self.deadline.seconds_to_force()
        patience = max(SOFT_PATIENCE_SECONDS, 5 * self.margin.stop_seconds)
        must_term = waited > patience or left < min(5.0, self.margin.stop_seconds / 4)
        must_kill = waited > patience + TERM_PATIENCE_SECONDS or left < 1.0
        if must_kill:
            self.job.tell("the program does not leave: killing it")
            program.kill()
        elif must_term and not self._terminated:
            self._terminated = True
            self.job.tell("the program does not leave by itself: TERM")
            program.terminate()


def describe_done(checkpoint: Checkpoint) -> str:
    """`1200 of 5000 steps`."""
    progress = checkpoint.passport.progress
    goal = f" of {progress.goal:.10g}" if progress.goal is not None else ""
    return f"{progress.done:.10g}{goal} {progress.unit}"
