"""The forecast: when a run will be done and how many segments it needs, from its own history.

It plays the rest of the run a few hundred times, each time with a pace, a queue and a rate of kills that the history
allows, and reads the quantiles off.  The random numbers have a fixed seed: the same history gives the same forecast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import median

from unbroken.accounting.handoffs import HandOffs
from unbroken.accounting.level import CLUSTER, ONE_MACHINE, Level, level_of
from unbroken.accounting.past import Past, past_of
from unbroken.accounting.waits import Waits
from unbroken.runs.history import Attempt

PLAYS = 160
SEED = 19
# Before anything is seen: most runs are hardly ever killed, some often; worth two segments.
KILLS_WORTH = 0.12
KILLS_WORTH_SEGMENTS = 2.0
# An attempt at work tells its pace from this share of a segment on, or of the goal where segments have no limit.
LIVE_FROM = 0.02
# The first attempt's start is in its pace, for no earlier one tells how long it is; by then it hardly matters.
FIRST_LIVE_SECONDS = 30.0
# A change of pace is by so much either way, and more of them than this make no difference.
CHANGE_SPREAD = 0.35
MOST_CHANGES = 8
MANY = 8
# What is drawn may be absurd where the history is; no chain has more segments than this.
MOST_SEGMENTS = 1_000_000
MOST_SECONDS = 1e12


@dataclass(frozen=True)
class Forecast:
    """Seconds from now to the goal, waits included, as quantiles; 90 of 100 runs end between `low` and `high`."""

    low_seconds: float  # 5 %
    median_seconds: float
    p90_seconds: float
    high_seconds: float  # 95 %
    segments_median: int  # that are still needed, the one at work among them
    segments_p90: int
    based_on: int  # attempts that it was made from
    knows_waits: bool = True  # False: the waits of later segments come on top, for none was seen yet


@dataclass(frozen=True)
class _Future:
    """What the rest of a run is played with."""

    left: float
    past: Past
    level: Level
    waits: Waits | HandOffs | None
    length: float  # of a segment at work
    worked: float | None  # by the attempt at work
    waited: float
    now: float


def forecast(
    attempts: Sequence[Attempt],
    done: float,
    goal: float,
    now: float,
    segment_seconds: float | None = None,
    at_work_since: float | None = None,
) -> Forecast | None:
    """The forecast of a run at `done` of `goal` at `now` (Unix seconds); None while too little is known.

    One is possible after the first attempt that advanced, and within it once it has advanced for a fiftieth of its
    time, the first one not before half a minute.  `segment_seconds` is the limit of the segments to come,
    `at_work_since` when the attempt at work began.
    """
    if not _are_numbers(done, goal, now):
        return None
    past = past_of(attempts, _positive(segment_seconds))
    if done >= goal:
        return Forecast(0.0, 0.0, 0.0, 0.0, 0, 0, past.attempts)
    length = _length(past, _positive(segment_seconds))
    worked = max(now - at_work_since, 0.0) if at_work_since is not None and _are_numbers(at_work_since) else None
    paces = _paces(past, float(done), float(goal), length, worked)
    if not paces:
        return None
    waits = _waits(past, length, now) if past.gaps else None
    waited = max(now - past.last_end, 0.0) if past.last_end is not None else 0.0
    future = _Future(
        float(goal) - float(done),
        past,
        level_of(paces, CLUSTER if past.has_queue else ONE_MACHINE),
        waits,
        length,
        worked,
        waited,
        now,
    )
    return _read(future, past)


def _are_numbers(*values: float) -> bool:
    try:
        return all(math.isfinite(value) for value in values)
    except (TypeError, OverflowError):  # an integer of 400 digits
        return False


def _positive(seconds: float | None) -> float | None:
    return seconds if seconds is not None and _are_numbers(seconds) and seconds > 0 else None


def _length(past: Past, segment_seconds: float | None) -> float:
    """The seconds at work of a segment to come: as of those before, by as much longer as its limit is."""
    seen = median(past.lengths[-5:]) if past.lengths else math.inf
    if segment_seconds is None:
        return seen
    spare = median(past.spares[-5:]) if past.spares else 0.0
    return max(segment_seconds - spare, min(seen, segment_seconds))


def _waits(past: Past, length: float, now: float) -> Waits | HandOffs:
    if not past.has_queue:
        return HandOffs(past.gaps)
    return Waits(past.gaps, time.localtime(now).tm_gmtoff, length if math.isfinite(length) else 0.0)


def _paces(past: Past, done: float, goal: float, length: float, worked: float | None) -> list[tuple[float, float]]:
    """The logarithms of the paces and what each is worth, that of the attempt at work among them."""
    whole = length if math.isfinite(length) else max((pace.seconds for pace in past.paces), default=math.inf)
    found = [(pace.log_rate, _worth(pace.seconds / whole)) for pace in past.paces]
    advance = done - (past.last_progress or 0.0)
    seconds = (worked or 0.0) - past.start_seconds
    if advance > 0 and seconds > 0:
        share = seconds / whole if math.isfinite(whole) else advance / (goal - done + advance)
        if share >= LIVE_FROM and (past.attempts or seconds >= FIRST_LIVE_SECONDS):
            found.append((math.log(advance) - math.log(seconds), _worth(share)))
    return found


def _worth(share: float) -> float:
    return min(max(share, 0.01), 1.0)


def _read(future: _Future, past: Past) -> Forecast:
    random = Random(SEED)
    seconds, segments = zip(*(_play(future, random) for _ in range(PLAYS)), strict=True)
    times, needed = sorted(seconds), sorted(segments)
    knows = future.waits is not None or needed[-1] <= 1 or (past.attempts > 0 and not past.has_queue)
    return Forecast(
        _quantile(times, 0.05),
        _quantile(times, 0.5),
        _quantile(times, 0.9),
        _quantile(times, 0.95),
        needed[PLAYS // 2],
        needed[PLAYS * 9 // 10],
        past.attempts + (future.worked is not None),
        knows,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _play(future: _Future, random: Random) -> tuple[float, int]:
    """One possible rest of the run: the seconds that it takes, and the segments that it settles."""
    work = _work_seconds(future, random)
    kills, lived, lost = _kills(future, random, work)
    work += lost
    usable = (
        future.length - future.past.start_seconds if future.length > 2 * future.past.start_seconds else future.length
    )
    rest = max(future.length - future.worked, 0.0) if future.worked is not None else 0.0
    settled = max(work - lived - rest, 0.0) / usable if math.isfinite(usable) else 0.0
    more = math.ceil(min(settled - 1e-9, MOST_SEGMENTS))
    segments = max(more + (future.worked is not None), 1)
    starts = segments + kills - (future.worked is not None)
    seconds = work + starts * future.past.start_seconds
    if future.waits is not None and starts:
        waited = future.waited if future.worked is None else None
        between = work / (starts + (future.worked is not None))
        seconds += future.waits.play(random, starts, waited, future.now, between)
    return min(seconds, MOST_SECONDS), segments


def _work_seconds(future: _Future, random: Random) -> float:
    """At one of the possible paces, which may change once more on the way."""
    level, spread = future.level.draw(random)
    seconds = _exp(math.log(future.left) - level)
    segments = max(seconds / future.length, 1.0) if math.isfinite(future.length) else 1.0
    seconds *= _exp(random.gauss(0, spread) / math.sqrt(segments) - (1 - 1 / segments) * min(spread, 1) ** 2 / 2)
    parts = sorted(random.random() for _ in range(min(_poisson(future.level.change * segments, random), MOST_CHANGES)))
    return seconds * _mean_of_changes(parts, random)


def _mean_of_changes(parts: Sequence[float], random: Random) -> float:
    """The factor on the time if the pace changes when these shares of the work are done."""
    mean, log = 0.0, 0.0
    for begin, end in pairwise([0.0, *parts, 1.0]):
        mean += (end - begin) * math.exp(log)
        log += random.gauss(0, CHANGE_SPREAD)
    return mean


def _kills(future: _Future, random: Random, work: float) -> tuple[int, float, float]:
    """How many attempts end before their time, how long they live together, and how much of that is lost."""
    past = future.past
    length = future.length if math.isfinite(future.length) else max(past.work_seconds, work)
    seen = past.work_seconds + KILLS_WORTH_SEGMENTS * length
    rate = random.gammavariate(past.ended_early + KILLS_WORTH, 1) / seen
    count = _poisson(rate * work, random)
    share = past.killed / past.ended_early if past.ended_early else 1.0
    lived, most = _sum_of_parts(count, random) * length, min(past.save_seconds, length)
    return count, lived, min(_sum_of_parts(round(count * share), random) * most, lived)


def _sum_of_parts(count: int, random: Random) -> float:
    """The sum of so many numbers between 0 and 1; of many it is normal."""
    if count > MANY:
        return max(count / 2 + random.gauss(0, 1) * math.sqrt(count / 12), 0.0)
    return sum([random.random() for _ in range(count)])


def _poisson(mean: float, random: Random) -> int:
    if mean > 50:
        return min(max(round(random.gauss(mean, math.sqrt(mean))), 0), 10_000)
    count, product, limit = -1, 1.0, math.exp(-mean)
    while product > limit or count < 0:
        product *= random.random()
        count += 1
    return count


def _exp(value: float) -> float:
    return math.exp(min(value, 600.0))
