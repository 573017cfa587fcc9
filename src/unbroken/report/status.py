"""The state of each run, read from the files of a working directory and from the queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path

from unbroken.engines.found import known_schemas
from unbroken.errors import AbsentFileError, ConfigError, FormatError, LeaseError, StorageError
from unbroken.job import submissions
from unbroken.job.next_attempt import why_no_job
from unbroken.program.contract import AttemptFolder
from unbroken.report.forecast import Forecast, budget_words, finish_words, forecast
from unbroken.report.known import goes_on_with, known_names, results_of, run_folder, runs_of
from unbroken.report.run_outputs import OutputSpace, listed_doubts, output_space
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import Queue, described
from unbroken.store import lease, results
from unbroken.store.attempts import all_attempts
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.claim import Claim, if_stopped
from unbroken.store.history import RECENT, Attempt
from unbroken.store.layout import RunFolder
from unbroken.store.progress import Progress, overshoot, read_progress
from unbroken.store.record import is_finished
from unbroken.store.rehearsal import read_rehearsal
from unbroken.store.run import RunSpec, identity_of
from unbroken.store.select import refuse_newer
from unbroken.system import disk, fs
from unbroken.system.clock import age_seconds, unix_seconds

NO_SLURM = Queue(is_known=False)


class RunState(Enum):
    """Name the state of a run between its first segment and its goal; those that need the user come first."""

    STOPPED = "stopped"
    UNREADABLE = "unreadable"
    USED_UP = "segments used up"
    WORKING = "working"
    QUEUED = "queued"
    PAUSED = "paused"
    NOT_STARTED = "not started"
    FINISHED = "finished"


BY_NEED = tuple(RunState)
# Others do not advance: when they will be done depends on when the user starts them.
_GOES_ON = {RunState.WORKING, RunState.QUEUED, RunState.PAUSED}


@dataclass(frozen=True)
class RunStatus:
    """One run as `unbroken status` shows it; times in seconds, None where nothing is known yet."""

    run: str
    state: RunState
    progress: Progress | None
    segments_used: int
    segments: int | None
    checkpoint: str | None
    checkpoint_age_seconds: float | None
    left_seconds: float | None
    advice: str
    forecast: Forecast | None = None
    finish: str = ""  # the forecast in words
    budget: str = ""  # that the segments of the config will not do
    rehearsal: str = ""  # the verdict of the last one
    doubts: tuple[str, ...] = ()  # why the results may not be those of one uninterrupted run
    output: OutputSpace = field(default_factory=OutputSpace)  # at the newest checkpoint

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        progress = self.progress.to_json() if self.progress else None
        told = asdict(self.forecast) if self.forecast else None
        values = {"state": self.state.value, "progress": progress, "forecast": told, "output": asdict(self.output)}
        return {**vars(self), **values}


@dataclass(frozen=True)
class _Owner:
    """The claim of a live owner; else that it has shown no sign of life for long, or what is wrong with the lease."""

    claim: Claim | None = None
    silence: str = ""
    problem: str = ""


@dataclass(frozen=True)
class _Seen:
    """Hold what is read of a run: from its folder, its configuration and Slurm."""

    name: str
    places: RunFolder
    run: RunSpec | None
    queue: Queue
    attempts: Sequence[Attempt]
    newest: Checkpoint | None
    owner: _Owner
    live: Progress | None  # of the running attempt

    @property
    def jobs(self) -> list[ListedJob]:
        return [job for job in self.queue.out if job.run == self.name]

    @cached_property
    def has_results(self) -> bool:
        return self.newest is not None and results.has_results(self.places, self.newest, self.attempts)

    @property
    def progress(self) -> Progress | None:
        """Return how far it is, with the goal of its configuration."""
        told = self.live or (self.newest.passport.progress if self.newest else None)
        return replace(told, goal=self.run.goal) if told and self.run and self.run.goal is not None else told

    @property
    def used(self) -> int:
        return max([attempt.segment for attempt in self.attempts if attempt.kind.settles], default=0)

    @cached_property
    def start(self) -> str:
        return how_to_start(self.places, self.attempts)


def statuses(only: Sequence[str] | None, directory: Path, config: Path, queue: Queue) -> list[RunStatus]:
    """Return the state of the runs that are named, or of all that are configured or have left anything."""
    runs = {run.name: run for run in runs_of(directory, config, must_exist=False)}
    return [status_of(name, directory, runs.get(name), queue) for name in known_names(runs, only, directory)]


def status_of(name: str, base: Path, run: RunSpec | None, queue: Queue = NO_SLURM) -> RunStatus:
    """Return the state of a run; `run` is its configuration if there is one, `queue` what Slurm lists for the folder.

    A run that a disk or file server keeps from being read, or that a newer unbroken wrote, is UNREADABLE.
    """
    try:
        with fs.os_errors(run_folder(name, base).root):
            return _status(_look(name, base, run, queue))
    except (StorageError, ConfigError, FormatError) as error:  # ConfigError: a damaged exec.json, of this run alone
        segments = run.segments if run else None
        return RunStatus(name, RunState.UNREADABLE, None, 0, segments, None, None, None, str(error))


def how_to_start(places: RunFolder, attempts: Sequence[Attempt]) -> str:
    """Return the whole command by which a run continues: as Slurm jobs where it ever had one."""
    jobs = [attempt.slurm_job for attempt in attempts if attempt.slurm_job]
    has_had = submissions.any_of(places.name, places.base)
    return goes_on_with(places, jobs[-1] if jobs else "submitted" if has_had else "")


def _look(name: str, base: Path, run: RunSpec | None, queue: Queue) -> _Seen:
    places = run_folder(name, base) if run is None else RunFolder(name, base)
    refuse_newer(places)
    attempts = all_attempts(places, RECENT)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    owner = _owner(places, attempts)
    live = read_progress(AttemptFolder(places.work / f"{owner.claim.token:06d}").progress) if owner.claim else None
    return _Seen(name, places, run, queue, attempts, newest, owner, live)


def _owner(places: RunFolder, attempts: Sequence[Attempt]) -> _Owner:
    try:
        claim, why_free = lease.current_claim(places.lease)
        if claim is None or why_free:
            return _Owner()
        silent = lease.long_silence(places.lease, claim)
    except (LeaseError, OSError) as error:
        return _Owner(problem=str(error))
    if not silent:
        return _Owner(claim)
    is_told = any(attempt.token == claim.token for attempt in attempts)  # Slurm knows how it ended
    todo = goes_on_with(places, claim.slurm_job)
    who = f"{silent} from {claim.describe()}; type {todo}: it resumes if that job is gone"
    return _Owner(silence="" if is_told else who)


def _status(seen: _Seen) -> RunStatus:
    state, newest, run, progress = _state(seen), seen.newest, seen.run, seen.progress
    is_finished = state is RunState.FINISHED
    made = None if is_finished else _forecast(seen)
    finish, budget = _forecast_words(seen, state, made)
    # A call of `unbroken exec` has its results where it was typed: its doubts are in its last checkpoint alone.
    doubts = (results.read_doubts(seen.places) or listed_doubts(newest)) if newest and is_finished else ()
    return RunStatus(
        run=seen.name,
        state=state,
        progress=progress,
        segments_used=seen.used,
        segments=run.segments if run else None,
        checkpoint=newest.name if newest else None,
        checkpoint_age_seconds=age_seconds(newest.passport.created_utc) if newest else None,
        left_seconds=0.0 if is_finished else _left_seconds(seen.live, made),
        advice="; ".join(filter(None, (seen.owner.problem or _advice(seen, state, doubts), finish, budget))),
        forecast=made,
        finish=finish,
        budget=budget,
        rehearsal="" if is_finished else _rehearsed(seen),
        doubts=doubts,
        output=output_space(newest, run),
    )


def _rehearsed(seen: _Seen) -> str:
    """Return the verdict of the run's rehearsal, in one line; empty if it has none.

    Where there is a checkpoint, its version counts: a start in another one is refused, and no input is read here.
    """
    if (made := read_rehearsal(seen.name, seen.places.base)) is None:
        return ""
    if seen.newest is not None:
        return made.line(seen.newest.passport.identity)
    if seen.run is None:
        return made.line()
    with suppress(AbsentFileError):
        keys = known_schemas().engines[seen.run.engine].identity
        return made.line(identity_of(seen.run, keys, seen.places.base).digest)
    return made.line()


def _state(seen: _Seen) -> RunState:
    if seen.owner.claim is not None:
        return RunState.WORKING
    if seen.has_results and is_finished(seen.newest, seen.run):
        return RunState.FINISHED
    if seen.jobs:
        return RunState.QUEUED
    if seen.owner.silence:
        return RunState.STOPPED
    if not seen.attempts:
        return RunState.PAUSED if seen.has_results else RunState.NOT_STARTED
    if seen.attempts[-1].kind.is_failure:
        return RunState.STOPPED
    return RunState.USED_UP if seen.run and seen.used >= seen.run.segments else RunState.PAUSED


def _forecast(seen: _Seen) -> Forecast | None:
    if seen.progress is None or seen.progress.goal is None:
        return None
    seconds = seen.run.segment_minutes * 60 if seen.run else None
    began = unix_seconds(seen.owner.claim.started_utc) if seen.owner.claim else None
    return forecast(
        seen.attempts,
        seen.progress.done,
        seen.progress.goal,
        now=time.time(),
        segment_seconds=seconds,
        at_work_since=began,
    )


def _forecast_words(seen: _Seen, state: RunState, made: Forecast | None) -> tuple[str, str]:
    """Return when it will be done, and that its segments will not do; both empty of a run that has stopped."""
    if made is None or state not in _GOES_ON:
        return "", ""
    is_stopped = seen.owner.claim is not None and if_stopped(seen.owner.claim)
    finish = "" if is_stopped else finish_words(made, time.time())
    return finish, budget_words(made, seen.used, seen.run.segments) if seen.run else ""


def _left_seconds(live: Progress | None, made: Forecast | None) -> float | None:
    """Return what a running program says itself (the metric `left_seconds`), else the median of the forecast."""
    said = live.metrics.get("left_seconds") if live else None
    if isinstance(said, (int, float)):
        return float(said)
    return made.median_seconds if made else None


def _advice(seen: _Seen, state: RunState, doubts: Sequence[str]) -> str:
    """Return what to read or to type next, and what Slurm says of the jobs that are out."""
    places, attempts, owner, start = seen.places, seen.attempts, seen.owner, seen.start
    match state:
        case RunState.FINISHED:
            told = [*(f"with doubts: {each}" for each in doubts), results_of(places), _overshoot(seen)]
        case RunState.WORKING:
            told = [owner.claim.describe(), if_stopped(owner.claim)] if owner.claim else []
        case RunState.QUEUED:
            told = []
        case RunState.STOPPED if owner.silence:
            told = [_unfollowed(seen) or owner.silence]
        case RunState.STOPPED:
            told = [_unfollowed(seen) or attempts[-1].advice(places.log(attempts[-1].segment), f"type: {start}")]
        case RunState.USED_UP:
            now = seen.run.segments if seen.run else "?"
            todo = f"raise runs.{places.name}.segments (now {now}) in config/config.yaml"
            told = [f"all its segments are used, and the goal is not reached; {todo}, then type: {start}"]
        case _:
            is_new = state is RunState.NOT_STARTED
            why = "has not started;" if is_new else "nothing works on it; to continue,"
            told = [disk.first_full([places.root]) or _unfollowed(seen) or f"{why} type: {start}"]
    is_at_goal = is_finished(seen.newest, seen.run) and not seen.has_results and state is not RunState.WORKING
    told += ["the goal is reached, only its results are to be written"] if is_at_goal else []
    return "; ".join(filter(None, [*told, *_jobs(seen, state)]))


def _overshoot(seen: _Seen) -> str:
    return overshoot(seen.newest.passport.progress, has_resumed=len(seen.attempts) > 1) if seen.newest else ""


def _unfollowed(seen: _Seen) -> str:
    """Return why no job carries on a run that jobs were to carry on without a driver; empty if its history says it."""
    why = why_no_job(seen.places, seen.queue) if seen.queue.is_known else ""
    return f"no job of this run is pending; {why}; fix the cause, then type: {seen.start}" if why else ""


def _jobs(seen: _Seen, state: RunState) -> list[str]:
    """Return what Slurm says of the jobs; for an active run only of those that wait, as the advice names its job."""
    told = described(seen.jobs, shows_started=state not in {RunState.WORKING, RunState.FINISHED})
    if state is RunState.FINISHED and told:  # the last job leaves some seconds after its record
        told[-1] += "; what waits will find nothing to do"
    return told
