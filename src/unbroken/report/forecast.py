"""The forecast: when a run will be done and how many segments it needs, from its own last attempts.

The rest of the run is simulated with a pace, losses and waits that are drawn from those of its attempts, and the
quantiles of all simulations are the forecast.  The random numbers have a fixed seed: the same history gives the same
forecast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

from unbroken.report.spans import Kind
from unbroken.report.turns import OTHER, Turn, log_rates, start_seconds, turns_of, waits
from unbroken.store.history import Attempt, EndKind
from unbroken.system.clock import duration

SIMULATIONS = 160
SEED = 19
# What few attempts do not show: paces of later ones differ by so much, and waits by a factor of e to the power of that.
PACE_DOUBT = 0.12
WAIT_DOUBT = 1.5
# So many waits are drawn; of more the mean is that of these, because one wait is like the one before it.
WAITS_DRAWN = 4
# A running attempt shows its pace from this share of a segment on, in the first one not before half a minute.
LIVE_SHARE = 0.02
FIRST_LIVE_SECONDS = 30.0
# Damaged histories give absurd figures; no chain is longer.
MOST_SEGMENTS = 1_000_000
MOST_SECONDS = 1e12
# Shorter than this, a time of the day says less than a length.
SOON_SECONDS = 600.0
WEEK_SECONDS = 6 * 86400.0
YEAR_SECONDS = 300 * 86400.0
LONGEST_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True)
class Forecast:
    """Seconds from now to the goal, waits included, as quantiles; 90 of 100 runs end between `low` and `high`."""

    low_seconds: float  # 5 %
    median_seconds: float
    p90_seconds: float
    high_seconds: float  # 95 %
    segments_median: int  # that are still needed, the running one among them
    segments_p90: int
    based_on: int  # attempts that it was made from
    knows_waits: bool = True  # False: the waits of later segments come on top, because none was seen yet


@dataclass(frozen=True)
class _Rest:
    """Hold the input of the simulation of a run's remaining work; times in seconds."""

    log_left: float
    turns: Sequence[Turn]
    log_rates: Sequence[float]
    waits: Sequence[float]
    length: float  # of a segment
    worked: float | None  # by the running attempt
    waited: float  # since the last attempt ended


def forecast(
    attempts: Sequence[Attempt],
    done: float,
    goal: float,
    *,
    now: float,
    segment_seconds: float | None = None,
    at_work_since: float | None = None,
) -> Forecast | None:
    """Return the forecast of a run at `done` of `goal` at `now` (Unix seconds); None while too little is known.

    One is possible after the first attempt that advanced, and within it once it has advanced for a fiftieth of its
    time.  `segment_seconds` is the limit of the segments to come, `at_work_since` when the running attempt began.
    """
    if not _are_numbers(done, goal, now):
        return None
    turns = turns_of(attempts)
    if done >= goal:
        return Forecast(0.0, 0.0, 0.0, 0.0, 0, 0, len(turns))
    worked = max(now - at_work_since, 0.0) if at_work_since is not None else None
    length = _length(turns, segment_seconds)
    rates = log_rates(turns)
    if worked is not None and (live := _live_rate(turns, float(done), float(goal), length, worked)) is not None:
        rates.append(live)
    if not rates:
        return None
    ended = turns[-1].attempt.times.ended if turns else None
    waited = now - ended if ended is not None else 0.0
    return _read(_Rest(math.log(float(goal) - float(done)), turns, rates, waits(turns), length, worked, waited))


def finish_words(made: Forecast, now: float) -> str:
    """Return `done about Tue 14:00 (90 %: by Wed 09:00)` in local time; `now` in Unix seconds."""
    likely, late = made.median_seconds, made.p90_seconds
    if made.segments_median == 0:
        return ""
    if likely > LONGEST_SECONDS:
        return "done in more than 10 years at this pace"
    if not made.knows_waits:
        by = f"90 %: {duration(late)}; waits for later segments come on top, none was seen yet"
        return f"done after about {duration(likely)} of work ({by})"
    if late < SOON_SECONDS:
        return f"done in about {duration(likely)} (90 %: {duration(late)})"
    return f"done about {moment(now + likely, likely)} (90 %: by {moment(now + late, late)})"


def budget_words(made: Forecast | None, used: int, segments: int) -> str:
    """Return `segments: 20` will not do: about 27; type `segments: 30`; empty unless more are likely to be needed.

    `used` is how many are settled, `segments` what the config allows.
    """
    if made is None or used + made.segments_median <= segments:
        return ""
    likely, enough = used + made.segments_median, used + made.segments_p90
    return f"`segments: {segments}` will not do: about {likely}; type `segments: {enough}`"


def moment(unix: float, ahead: float) -> str:
    """Return `Tue 14:00`, `7 Mar` or `Mar 2028`, by how many seconds ahead it is."""
    local = time.localtime(unix)
    if ahead < WEEK_SECONDS:
        return time.strftime("%a %H:%M", local)
    return f"{local.tm_mday} {time.strftime('%b' if ahead < YEAR_SECONDS else '%b %Y', local)}"


def _are_numbers(*values: float) -> bool:
    try:
        return all(math.isfinite(value) for value in values)
    except (TypeError, OverflowError):  # an integer of 400 digits
        return False


def _length(turns: Sequence[Turn], segment_seconds: float | None) -> float:
    """Return the seconds that a segment works: as those before it, longer or shorter as its limit is."""
    limit = segment_seconds if segment_seconds is not None and 0 < segment_seconds < math.inf else math.inf
    full = [turn for turn in turns if turn.attempt.kind is EndKind.PAUSED][-5:]
    if not full:
        return limit
    seen = median(turn.took(Kind.USEFUL, *OTHER) for turn in full) or limit
    before = median(turn.limit_seconds for turn in full)
    return seen * limit / before if before > 0 and limit < math.inf else seen


def _live_rate(turns: Sequence[Turn], done: float, goal: float, length: float, worked: float) -> float | None:
    """Return the logarithm of the pace of the running attempt; None while it has run too short."""
    advance = done - (turns[-1].attempt.progress_to if turns else 0.0)
    seconds = worked - start_seconds(turns)
    if advance <= 0 or seconds <= 0 or (not turns and seconds < FIRST_LIVE_SECONDS):
        return None
    share = seconds / length if length < math.inf else advance / (goal - done + advance)
    return math.log(advance) - math.log(seconds) if share >= LIVE_SHARE else None


def _read(rest: _Rest) -> Forecast:
    random = Random(SEED)
    seconds, segments = zip(*(_simulate(rest, random) for _ in range(SIMULATIONS)), strict=True)
    times, needed = sorted(seconds), sorted(segments)
    is_queued = any(turn.attempt.slurm_job for turn in rest.turns)
    knows = bool(rest.waits) or needed[-1] <= 1 or (bool(rest.turns) and not is_queued)
    low, likely, late, high = (times[round(share * (SIMULATIONS - 1))] for share in (0.05, 0.5, 0.9, 0.95))
    based_on = len(rest.turns) + (rest.worked is not None)
    middle = max(round(needed[SIMULATIONS // 2]), 1)
    most = max(math.ceil(needed[SIMULATIONS * 9 // 10] - 1e-9), 1)
    return Forecast(low, likely, late, high, middle, most, based_on, knows)


def _simulate(rest: _Rest, random: Random) -> tuple[float, float]:
    """Return the seconds and the segments that one possible rest of the run takes."""
    pace = median(random.choices(rest.log_rates, k=len(rest.log_rates)))
    pace += random.gauss(0, PACE_DOUBT / math.sqrt(len(rest.log_rates)))
    turns = random.choices(rest.turns, k=len(rest.turns)) if rest.turns else []
    useful = sum(turn.took(Kind.USEFUL) for turn in turns)
    share = sum(turn.took(*OTHER) for turn in turns) / useful if useful > 0 else 0.0
    work = math.exp(min(rest.log_left - pace, 600.0)) * (1 + share)
    is_live = rest.worked is not None
    later = max(work - max(rest.length - rest.worked, 0.0), 0.0) if rest.worked is not None else work
    more = min(later / rest.length, MOST_SEGMENTS) if rest.length < math.inf else float(not is_live)
    settled = sum(turn.attempt.kind.settles for turn in turns)
    starts = math.ceil(more * (len(turns) / settled if settled else 1.0) - 1e-9)
    waiting = _waiting(rest, random, starts) if rest.waits and starts else 0.0
    return min(work + waiting, MOST_SECONDS), more + is_live


def _waiting(rest: _Rest, random: Random, starts: int) -> float:
    """Return the seconds of so many waits; the first has lasted since the last attempt ended."""
    drawn = random.choices(rest.waits, k=min(starts, WAITS_DRAWN))
    doubt = math.exp(random.gauss(0, WAIT_DOUBT / math.sqrt(len(rest.waits))))
    passed = min(rest.waited, drawn[0]) if rest.worked is None and rest.waited > 0 else 0.0
    return max(starts * fmean(drawn) * doubt - passed, 0.0)
