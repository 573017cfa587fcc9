"""The life of a run, simulated: what each second was spent on, and the history that such a run would have left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from support.making import ATTEMPT

from unbroken.report.spans import Kind
from unbroken.store.history import Attempt, EndKind
from unbroken.store.times import Times

BEGIN = 1_790_000_000.0


@dataclass(frozen=True)
class Turn:
    """One job of the run; all in seconds.  `ends` is how its attempt ends."""

    ends: str  # paused, finished, killed, failed, interrupted, before work
    idle: float = 0.0  # before somebody submits it
    held: float = 0.0
    queued: float = 0.0
    ahead: float = 0.0  # so much of its wait lies beside the work before it
    starting: float = 5.0
    work: tuple[float, ...] = (100.0,)  # between its saves; the last part is lost if it is killed
    stall: float = 0.0  # at each save
    suspended: float = 0.0  # of which an old history has the length alone
    stopped: float = 0.0  # suspended for so long in the middle of each thing that it does
    saving: float = 3.0  # the last save, after the stop
    publishing: float = 1.0
    unused: float = 1.0
    is_requeued: bool = False  # the job before it, started again under its number


@dataclass
class Life:
    """A run so far; `truth` is how long it did what, `attempts` what its history says."""

    now: float = BEGIN
    truth: Counter[Kind] = field(default_factory=Counter)
    attempts: list[Attempt] = field(default_factory=list)
    kills: int = 0
    kept: float = 0.0
    _work_began: float = BEGIN
    _done: float = 0.0
    _safe: float = 0.0
    _job_ended: float | None = None  # of the last job, if its attempt could not know it
    _last_job_ended: float | None = None
    _suspensions: list[tuple[float, float]] = field(default_factory=list)

    @property
    def told(self) -> list[Attempt]:
        """The attempts as they are told while Slurm still remembers the last job."""
        last = self.attempts[-1]
        return [*self.attempts[:-1], replace(last, times=replace(last.times, job_ended=self._last_job_ended))]

    def live(self, turn: Turn) -> None:
        """One job from its submission to the end of its allocation."""
        ahead = 0.0 if turn.is_requeued or not self.attempts else min(turn.ahead, self.now - self._work_began)
        if not ahead and self.attempts:  # a run begins with its first submission
            self._spend(Kind.IDLE, turn.idle)
        submitted = self.now - ahead
        if turn.is_requeued and self.attempts:  # Slurm keeps the time of the submission
            submitted = self.attempts[-1].times.submitted or submitted
            eligible = self.now
        else:
            eligible = submitted + turn.held
            if eligible > self.now:
                self._spend(Kind.IDLE, eligible - self.now)
        room = max(eligible + turn.queued, self.now)
        self._spend(Kind.QUEUED, room - self.now)
        started = self._work_began = self.now
        times = Times(submitted=submitted, eligible=eligible, job_started=started)
        self._suspensions = []
        self._do(turn, Kind.STARTING, turn.starting)
        if turn.ends == "before work":
            self._end(turn, replace(times, ended=self.now), EndKind.REFUSED, 0.0)
            return
        times = replace(times, program_started=started + turn.starting / 2, first_step=self.now)
        self._work(turn, times)

    def _work(self, turn: Turn, times: Times) -> None:
        saved: float | None = None
        stalls = 0.0
        is_kept = turn.ends in ("paused", "finished", "interrupted")
        # Of a killed job nobody can note it; else it is taken for time between saves.
        suspended = turn.suspended if turn.ends != "killed" and (is_kept or len(turn.work) > 1) else 0.0
        for number, part in enumerate(turn.work[:-1]):
            self._do(turn, Kind.USEFUL, part)
            self._spend(Kind.SUSPENDED, 0.0 if number else suspended)
            self._do(turn, Kind.SAVING, turn.stall)
            stalls += turn.stall
            saved = self.now
        done = sum(turn.work[:-1])
        self._do(turn, Kind.USEFUL if is_kept else Kind.LOST, turn.work[-1])
        self._spend(Kind.SUSPENDED, 0.0 if len(turn.work) > 1 else suspended)
        if not is_kept:
            self.kills += 1
            self.kept += self._safe + done + turn.work[-1]
        times = replace(times, saved=saved, stall_seconds=stalls, suspended_seconds=suspended, last_step=self.now)
        if is_kept:
            stopped = self.now
            self._do(turn, Kind.SAVING, turn.saving)
            times = replace(times, stop_asked=stopped, program_ended=self.now, saved=self.now)
            self._do(turn, Kind.PUBLISHING, turn.publishing)
            done += turn.work[-1]
        else:
            times = replace(times, program_ended=self.now if turn.ends == "failed" else None)
        outcomes = {"paused": EndKind.PAUSED, "finished": EndKind.FINISHED, "interrupted": EndKind.INTERRUPTED}
        outcome = outcomes.get(turn.ends, EndKind.DIED if turn.ends == "killed" else EndKind.FAILED)
        self._safe += done
        self._end(turn, replace(times, ended=self.now), outcome, done)

    def _end(self, turn: Turn, times: Times, outcome: EndKind, done: float) -> None:
        if turn.ends == "killed":
            job_ended = times.ended
        else:
            is_goal = outcome is EndKind.FINISHED
            job_ended = self.now + turn.unused
            if not is_goal:
                self._spend(Kind.UNUSED, turn.unused)
        token = len(self.attempts) + 1
        # One that lives on until its line is written cannot know when its job leaves: the next one asks.
        self._last_job_ended = job_ended
        previous, self._job_ended = self._job_ended, None if turn.ends == "killed" else job_ended
        line = replace(
            ATTEMPT,
            token=token,
            segment=token,
            kind=outcome,
            progress_from=self._done,
            progress_to=self._done + done,
            from_checkpoint=f"{token - 1:06d}",
            to_checkpoint=f"{token:06d}" if done else None,
            times=replace(
                times,
                job_ended=job_ended if turn.ends == "killed" else None,
                previous_job_ended=previous,
                suspensions=tuple(self._suspensions),
            ),
        )
        self._done += done
        self.attempts.append(line)

    def _do(self, turn: Turn, kind: Kind, seconds: float) -> None:
        """The same in two halves, with a suspension between them."""
        self._spend(kind, seconds / 2)
        if turn.stopped:
            began = self._spend(Kind.SUSPENDED, turn.stopped)
            self._suspensions.append((began, self.now))
        self._spend(kind, seconds / 2)

    def _spend(self, kind: Kind, seconds: float) -> float:
        """Lets so much time pass; the moment before."""
        before = self.now
        self.truth[kind] += seconds
        self.now += seconds
        return before


def noted_by(attempt: Attempt, clock_ahead: float) -> Attempt:
    """The same line by a node whose clock is ahead, which it takes off again, to the precision of a file."""
    moments = {
        name: value
        for name, value in attempt.times.to_json().items()
        if not name.endswith("seconds") and name != "suspensions"
    }
    ahead = {name: value + clock_ahead for name, value in moments.items()}
    back = {name: round(value - clock_ahead, 3) for name, value in ahead.items()}
    return replace(attempt, times=replace(attempt.times, **back, clock_ahead_seconds=clock_ahead))
