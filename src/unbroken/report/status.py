"""How the runs stand, read from the files of a working directory alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from unbroken.accounting.forecast import Forecast, forecast
from unbroken.accounting.forecast_words import budget_words, finish_words, least_segments
from unbroken.engines.files.outputs import OutputSpace
from unbroken.errors import ConfigError, FormatError, LeaseError, StorageError
from unbroken.job.next_attempt import why_no_job
from unbroken.program.contract import AttemptFolder
from unbroken.report.run_folders import goes_on_with, results_of, run_folder
from unbroken.report.run_outputs import listed_doubts, output_space
from unbroken.runs import lease, results, submissions
from unbroken.runs.attempts import all_attempts
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.claim import Claim
from unbroken.runs.history import RECENT, Attempt
from unbroken.runs.holder import if_stopped
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import Progress, overshoot, read_progress
from unbroken.runs.rehearsal import read_rehearsal
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.segment.classify import is_finished
from unbroken.slurm.jobs_out import OutJob, Queue, described
from unbroken.system import fs
from unbroken.system.clock import age_seconds, unix_seconds

NO_SLURM = Queue(is_known=False)


class RunState(Enum):
    """Where a run is between its first segment and its goal."""

    NOT_STARTED = "not started"
    WORKING = "working"
    QUEUED = "queued"
    PAUSED = "paused"
    STOPPED = "stopped"
    USED_UP = "segments used up"
    FINISHED = "finished"
    UNREADABLE = "unreadable"


# Where there is no room for all: those that need a hand first, those that are done last.
BY_NEED = (
    RunState.STOPPED,
    RunState.UNREADABLE,
    RunState.USED_UP,
    RunState.WORKING,
    RunState.QUEUED,
    RunState.PAUSED,
    RunState.NOT_STARTED,
    RunState.FINISHED,
)
# A run that stands still has nothing to forecast but the time that it needs once it goes on.
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
        """The same as plain values."""
        progress = self.progress.to_json() if self.progress else None
        told = asdict(self.forecast) if self.forecast else None
        values = {"state": self.state.value, "progress": progress, "forecast": told, "output": asdict(self.output)}
        return {**vars(self), **values}


def status_of(name: str, base: Path, run: Run | None, queue: Queue = NO_SLURM) -> RunStatus:
    """The state of a run; `run` is its configuration where there is one, `queue` what Slurm lists for the folder.

    Of a run that a disk or file server keeps from being read, or that a newer unbroken wrote, it says that.
    """
    try:
        with fs.os_errors(run_folder(name, base).root):
            return _status_of(name, base, run, queue)
    except (StorageError, ConfigError, FormatError) as error:  # ConfigError: a spoilt exec.json, of this run alone
        segments = run.segments if run else None
        return RunStatus(name, RunState.UNREADABLE, None, 0, segments, None, None, None, str(error))


def _status_of(name: str, base: Path, run: Run | None, queue: Queue) -> RunStatus:
    places = run_folder(name, base) if run is None else RunFolder(name, base)
    refuse_newer(places)
    jobs = [job for job in queue.out if job.run == name]
    attempts = all_attempts(places, RECENT)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    holder = _holder(places, attempts)
    live = read_progress(AttemptFolder(places.work / f"{holder.claim.token:06d}").progress) if holder.claim else None
    progress = live or (newest.passport.progress if newest else None)
    used = max([attempt.segment for attempt in attempts if attempt.kind.settles], default=0)
    has_results = newest is not None and results.has_results(places, newest, attempts)
    state = _state(newest if has_results else None, attempts, used, run, bool(holder.silence))
    state = RunState.WORKING if holder.claim else state
    is_at_goal = is_finished(newest, run)
    if jobs and state not in {RunState.WORKING, RunState.FINISHED}:
        state = RunState.QUEUED
    goal = run.goal if run and run.goal is not None else (progress.goal if progress else None)
    start = how_to_start(places, attempts)
    advice = _unfollowed(state, places, queue, start) or _advice(state, places, attempts, holder, run)
    if state in {RunState.NOT_STARTED, RunState.PAUSED} and (full := fs.full_disk([places.root])):
        advice = full
    if is_at_goal and not has_results and state is not RunState.WORKING:
        advice = f"{advice}; the goal is reached, only its results are to be written"
    doubts: tuple[str, ...] = ()
    if newest is not None and state is RunState.FINISHED:
        beyond = overshoot(newest.passport.progress, has_resumed=len(attempts) > 1)
        # A call of `unbroken exec` has its results where it was typed: its doubts stand in its last checkpoint alone.
        doubts = results.read_doubts(places) or listed_doubts(newest)
        advice = "; ".join(filter(None, (*(f"with doubts: {each}" for each in doubts), advice, beyond)))
    now = time.time()
    made = _forecast(state, progress, goal, attempts, holder.claim, run, now)
    is_stopped = holder.claim is not None and if_stopped(holder.claim)
    finish = finish_words(made, now) if made and state in _GOES_ON and not is_stopped else ""
    budget = ""
    if run and state in _GOES_ON and progress is not None and goal is not None:
        budget = budget_words(made, used, run.segments, least_segments(attempts, progress.done, goal))
    return RunStatus(
        name,
        state,
        progress and Progress(progress.done, goal, progress.unit, progress.metrics),
        used,
        run.segments if run else None,
        newest.name if newest else None,
        age_seconds(newest.passport.created_utc) if newest else None,
        0.0 if state is RunState.FINISHED else _own_forecast(live) or (made.median_seconds if made else None),
        "; ".join(filter(None, (holder.problem or _with_jobs(advice, state, jobs), finish, budget))),
        made,
        finish,
        budget,
        rehearsed.line() if (rehearsed := read_rehearsal(name, base)) and state is not RunState.FINISHED else "",
        doubts,
        output_space(newest, run),
    )


@dataclass(frozen=True)
class _Holder:
    """The claim of a live holder; else that it has shown no sign of life for long, or what is wrong with it."""

    claim: Claim | None = None
    silence: str = ""
    problem: str = ""


def _holder(places: RunFolder, attempts: Sequence[Attempt]) -> _Holder:
    try:
        claim, why_free = lease.current_claim(places.lease)
        if claim is None or why_free:
            return _Holder()
        silent = lease.long_silence(places.lease, claim)
    except (LeaseError, OSError) as error:
        return _Holder(problem=str(error))
    if not silent:
        return _Holder(claim)
    is_told = any(attempt.token == claim.token for attempt in attempts)  # Slurm knows how it ended
    todo = goes_on_with(places, claim.slurm_job)
    who = f"{silent} from {claim.describe()}; type {todo}: it goes on if that job is gone"
    return _Holder(silence="" if is_told else who)


def _state(
    newest: Checkpoint | None, attempts: Sequence[Attempt], used: int, run: Run | None, is_silent: bool
) -> RunState:
    if is_finished(newest, run):
        return RunState.FINISHED
    if is_silent:
        return RunState.STOPPED
    if not attempts:
        return RunState.NOT_STARTED if newest is None else RunState.PAUSED
    if attempts[-1].kind.is_failure:
        return RunState.STOPPED
    return RunState.USED_UP if run and used >= run.segments else RunState.PAUSED


def _own_forecast(live: Progress | None) -> float | None:
    """What a program at work says itself, as the metric `left_seconds`."""
    said = live.metrics.get("left_seconds") if live else None
    return float(said) if isinstance(said, (int, float)) else None


def _forecast(
    state: RunState,
    progress: Progress | None,
    goal: float | None,
    attempts: Sequence[Attempt],
    claim: Claim | None,
    run: Run | None,
    now: float,
) -> Forecast | None:
    if state is RunState.FINISHED or progress is None or goal is None:
        return None
    seconds = run.segment_minutes * 60 if run else None
    began = unix_seconds(claim.started_utc) if claim else None
    return forecast(attempts, progress.done, goal, now, seconds, began)


def _unfollowed(state: RunState, places: RunFolder, queue: Queue, start: str) -> str:
    """Why a run stands still that jobs were to carry on without a driver, where no line of its history says it."""
    if state not in {RunState.NOT_STARTED, RunState.PAUSED, RunState.STOPPED} or not queue.is_known:
        return ""
    if why := why_no_job(places, queue):
        return f"no job of this run is pending; {why}; fix the cause, then type: {start}"
    return ""


def _with_jobs(advice: str, state: RunState, jobs: Sequence[OutJob]) -> str:
    """Add what Slurm says of the jobs that are out; of a working run only of those that wait: the advice names its job.

    Of a finished run too: the last job leaves some seconds after its record.
    """
    told = described(jobs, shows_started=state not in {RunState.WORKING, RunState.FINISHED})
    if state is RunState.FINISHED and told:
        told[-1] += "; what waits will find nothing to do"
    kept = [advice] if advice and state is not RunState.QUEUED else []
    return "; ".join([*kept, *told])


def _advice(state: RunState, places: RunFolder, attempts: Sequence[Attempt], holder: _Holder, run: Run | None) -> str:
    """What to read or to type next."""
    start = how_to_start(places, attempts)
    match state:
        case RunState.FINISHED:
            return results_of(places)
        case RunState.WORKING:
            return "; ".join(filter(None, (holder.claim.describe(), if_stopped(holder.claim)))) if holder.claim else ""
        case RunState.STOPPED if holder.silence:
            return holder.silence
        case RunState.STOPPED:
            return attempts[-1].advice(places.log(attempts[-1].segment), f"type: {start}")
        case RunState.USED_UP:
            todo = f"raise runs.{places.name}.segments (now {run.segments if run else '?'}) in config/config.yaml"
            return f"all its segments are used, and the goal is not reached; {todo}, then type: {start}"
        case RunState.NOT_STARTED:
            return f"has not started; type: {start}"
    return f"nothing works on it; to continue, type: {start}"


def how_to_start(places: RunFolder, attempts: Sequence[Attempt]) -> str:
    """Return the whole command by which a run continues: as Slurm jobs where it ever had one."""
    jobs = [attempt.slurm_job for attempt in attempts if attempt.slurm_job]
    has_had = submissions.any_of(places.name, places.base)
    return goes_on_with(places, jobs[-1] if jobs else "submitted" if has_had else "")
