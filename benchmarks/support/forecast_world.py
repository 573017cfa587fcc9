"""Runs on a cluster that does not know how a forecast is made: what their histories are tested against.

A world plays a run in small pieces of time: pace with a memory within a segment, nodes, validation epochs, changes,
kills, and queues of several kinds.  It can go on from any moment, so the best possible forecast is played as well:
by the same world, from the same state, with what only the world knows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from unbroken.store.history import Attempt, EndKind
from unbroken.store.times import Times
from unbroken.system.clock import utc_text

PIECES = 24
HOUR = 3600.0
MONDAY = 1_767_571_200.0  # 2026-01-05 00:00 UTC

# Seconds of a wait that begins at a moment; the second argument is the queue's mood, of mean 0 and spread 1.
Queue = Callable[[random.Random, float, float], float]


@dataclass(frozen=True)
class World:
    """What decides how a run goes; lengths in seconds, `goal` and `epoch` in units, `rate` in units a second."""

    name: str
    length: float
    goal: float
    rate: float
    queue: Queue | None
    mood: float = 0.5  # how much of the queue's mood is left at the next wait
    noise: float = 0.05  # of the pace, within a segment
    between: float = 0.03  # of the pace, from segment to segment
    nodes: tuple[float, ...] = (1.0,)
    change: float = 0.0  # how likely a new pace is from segment to segment
    change_spread: float = 0.0
    kills: float = 0.0  # how many there are in the time of a segment
    preempted: float = 0.0  # of them, those that are told first, and save
    save: float = 900.0
    start: float = 60.0
    epoch: float = math.inf
    validation: float = 0.0


@dataclass
class State:
    """Where a run is; `began` is None while its job waits."""

    moment: float
    done: float = 0.0
    saved: float = 0.0
    began: float | None = None
    worked: float = 0.0
    saved_at: float = 0.0
    validating: float = 0.0
    level: float = 1.0
    node: float = 1.0
    segment_factor: float = 1.0
    noise: float = 0.0
    mood: float = 0.0
    submitted: float = 0.0
    starts: float = 0.0
    segment: int = 1
    saves: int = 0
    from_done: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)

    def copy(self) -> State:
        return replace(self, attempts=list(self.attempts))


def begin(world: World, rng: random.Random) -> State:
    """Before the first job, at some hour of some day."""
    state = State(MONDAY + rng.random() * 7 * 86400)
    _submit(world, state, rng)
    return state


def go_on(world: World, state: State, rng: random.Random) -> Iterator[State]:
    """The state after each piece of time, until the goal is reached; the same object each time."""
    while state.done < world.goal:
        if state.began is None:
            _start(world, state, rng)
        else:
            _work(world, state, rng)
        yield state


def again(world: World, state: State, rng: random.Random) -> State:
    """A copy whose future is open: the wait that is under way is drawn anew, as one that has lasted so long."""
    copy = state.copy()
    if copy.began is None and world.queue is not None:
        waited = state.moment - state.submitted
        for _ in range(500):
            seconds = world.queue(rng, state.submitted, state.mood)
            if seconds > waited:
                copy.starts = state.submitted + seconds
                break
    return copy


def _submit(world: World, state: State, rng: random.Random) -> None:
    keeps = world.mood
    state.mood = keeps * state.mood + math.sqrt(1 - keeps**2) * rng.gauss(0, 1)
    state.began, state.submitted = None, state.moment
    state.starts = state.moment + (world.queue(rng, state.moment, state.mood) if world.queue else rng.uniform(2, 6))


def _start(world: World, state: State, rng: random.Random) -> None:
    state.moment = state.starts + rng.uniform(3, 9)  # the job's own start
    state.began, state.worked, state.saved_at, state.validating = state.moment, 0.0, 0.0, 0.0
    state.saves = 0
    state.done = state.from_done = state.saved
    state.node = rng.choice(world.nodes)
    state.segment_factor = math.exp(rng.gauss(0, world.between))
    if rng.random() < world.change:
        state.level *= math.exp(rng.gauss(0, world.change_spread))


def _work(world: World, state: State, rng: random.Random) -> None:
    left = world.length - state.worked
    piece = min(world.length / PIECES, left)
    state.noise = 0.7 * state.noise + world.noise * rng.gauss(0, 1)
    rate = world.rate * state.level * state.node * state.segment_factor * math.exp(state.noise)
    used = _advance(world, state, piece, rate)
    state.worked += used
    state.moment += used
    if state.done >= world.goal:
        _end(world, state, rng, EndKind.FINISHED)
    elif rng.random() < 1 - math.exp(-world.kills * used / world.length):
        told = rng.random() < world.preempted
        _end(world, state, rng, EndKind.INTERRUPTED if told else EndKind.DIED)
    elif left - used < 1e-6:
        _end(world, state, rng, EndKind.PAUSED)
    elif state.worked - state.saved_at >= world.save:
        state.saved, state.saved_at = state.done, state.worked
        state.saves += 1


def _advance(world: World, state: State, piece: float, rate: float) -> float:
    """Advances for a piece of time, or to the goal; the seconds that it took."""
    used = min(max(world.start - state.worked, 0.0), piece)
    while used < piece and state.done < world.goal:
        if state.validating > 0:
            part = min(state.validating, piece - used)
            state.validating -= part
            used += part
            continue
        border = (math.floor(state.done / world.epoch + 1e-9) + 1) * world.epoch if world.validation else math.inf
        to_go = min(border, world.goal) - state.done
        part = min(to_go / rate, piece - used)
        used += part
        if part >= to_go / rate:
            state.done = min(border, world.goal)
            state.validating = world.validation if state.done == border else 0.0
        else:
            state.done += part * rate
    return used


def _end(world: World, state: State, rng: random.Random, outcome: EndKind) -> None:
    if outcome is not EndKind.DIED:
        state.saved, state.saved_at = state.done, state.worked
    state.attempts.append(_line(world, state, outcome))
    state.segment += outcome is EndKind.PAUSED
    if outcome is not EndKind.FINISHED:
        state.moment += 0.0 if world.queue is None else rng.uniform(0, 20)
        _submit(world, state, rng)


def _line(world: World, state: State, outcome: EndKind) -> Attempt:
    """As it stands in a history: of a killed job its last checkpoint, in a new one its last sign of life as well."""
    killed = outcome is EndKind.DIED
    worked = state.saved_at if killed else state.worked
    began = state.moment - state.worked
    times = Times(
        submitted=state.submitted,
        eligible=state.submitted,
        job_started=state.starts,
        program_started=began,
        first_step=began + world.start if state.worked > world.start else None,
        saved=began + state.saved_at,
        ended=state.moment,
        job_ended=state.moment,
    )
    return Attempt(
        token=len(state.attempts) + 1,
        segment=state.segment,
        driver_attempt=1,
        kind=outcome,
        started_utc=utc_text(began),
        ended_utc=utc_text(began + worked),
        from_checkpoint=f"{state.from_done}",
        to_checkpoint=f"{state.saved}",
        progress_from=state.from_done,
        progress_to=state.saved,
        unit="steps",
        work_seconds=worked,
        saves=state.saves + (not killed),
        save_seconds=1.0,
        stop_seconds=None if killed else 1.0,
        unused_seconds=None if killed else world.length - state.worked,
        exit_code=None if killed else 85,
        host="n1",
        pid=1,
        slurm_job="" if world.queue is None else f"{len(state.attempts) + 1}",
        message="",
        times=times,
    )
