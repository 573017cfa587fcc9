"""How often the forecast holds: runs of worlds that it does not know, cut at any moment, and recorded histories.

Of a good forecast 90 % of the runs end between its bounds (85 to 95 are asked for), half of them before its median, and
the bounds are not much further apart than those of the best possible one, which knows all of the world but the future.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from support.forecast_world import HOUR, State, World, again, begin, go_on

from unbroken.report.forecast import Forecast, budget_words, forecast
from unbroken.store.history import Attempt, EndKind, History
from unbroken.system.clock import unix_seconds

RECORDED = Path(__file__).parent.parent / "tests" / "recorded" / "histories"
LOOKS = 3  # in the time that the work alone would take
BEST_PLAYS = 80
BEST_EVERY = 3
# Of shorter runs a share is no whole number of segments.
LEAST_SEGMENTS = 8
ALLOWED = (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True)
class Case:
    """One forecast and what came of it; seconds from the cut to the goal; `best` is the width of the best possible."""

    family: str
    attempts: int
    made: Forecast | None
    took: float
    segments: int
    best: float | None = None
    used: int = 0  # segments that were settled before

    @property
    def counts(self) -> bool:
        """False where there was none yet, or the waits were not known: that is said, not guessed."""
        return self.made is not None and self.made.knows_waits


def _lognormal(rng: random.Random, length: float, spread: float) -> Callable[[random.Random, float, float], float]:
    middle = length * math.exp(rng.uniform(math.log(0.02), math.log(1.0)))
    return lambda _, __, mood: middle * math.exp(spread * mood)


def _pareto(rng: random.Random, length: float) -> Callable[[random.Random, float, float], float]:
    least, power = length * rng.uniform(0.02, 0.3), rng.uniform(1.3, 3.0)
    return lambda draw, _, __: min(least * (1 - draw.random()) ** (-1 / power), 60 * 86400)


def _backfill(rng: random.Random, length: float) -> Callable[[random.Random, float, float], float]:
    quick, slow = rng.uniform(0.3, 0.8), length * rng.uniform(0.2, 1.5)

    def wait(draw: random.Random, _: float, __: float) -> float:
        return draw.uniform(20, 300) if draw.random() < quick else slow * draw.uniform(0.5, 1.8)

    return wait


def _nights(rng: random.Random, length: float) -> Callable[[random.Random, float, float], float]:
    middle = length * rng.uniform(0.03, 0.3)
    busy, quiet = rng.uniform(3, 10), rng.uniform(0.1, 0.6)

    def wait(_: random.Random, moment: float, mood: float) -> float:
        day, hour = int(moment // 86400 + 3) % 7, moment % 86400 / HOUR
        factor = quiet if day >= 5 else busy if 7 <= hour < 20 else 1.0
        return middle * factor * math.exp(0.6 * mood)

    return wait


def world_of(family: str, rng: random.Random) -> World:
    """A world of that family; sizes, spreads and rates differ from world to world."""
    length = HOUR * math.exp(rng.uniform(math.log(1), math.log(24)))
    segments = rng.uniform(2.5, 30)
    plain = {
        "name": family,
        "length": length,
        "goal": segments * length,
        "rate": 1.0,
        "mood": rng.uniform(0, 0.7),
        "noise": rng.uniform(0.01, 0.08),
        "between": rng.uniform(0.005, 0.08),
        "kills": rng.choice([0.0, 0.0, 0.02]),
        "save": length * rng.uniform(0.02, 0.2),
        "start": rng.uniform(10, 120),
    }
    mild = _lognormal(rng, length, rng.uniform(0.3, 0.9))
    special: dict[str, dict[str, object]] = {
        "steady": {"queue": mild},
        "long waits, lognormal": {"queue": _lognormal(rng, length, rng.uniform(0.9, 1.8))},
        "long waits, Pareto": {"queue": _pareto(rng, length)},
        "backfill": {"queue": _backfill(rng, length), "mood": 0.0},
        "nights and weekends": {"queue": _nights(rng, length)},
        "the pace changes": {
            "queue": mild,
            "change": rng.uniform(0.03, 0.12),
            "change_spread": rng.uniform(0.15, 0.45),
        },
        "fast and slow nodes": {
            "queue": mild,
            "nodes": tuple(math.exp(rng.gauss(0, 0.25)) for _ in range(rng.randint(2, 6))),
        },
        "kills": {"queue": mild, "kills": rng.uniform(0.08, 0.7), "preempted": rng.choice([0.0, 0.3])},
        "without Slurm": {"queue": None},
        "validation epochs": {
            "queue": mild,
            "epoch": length * rng.uniform(0.1, 1.5),
            "validation": length * rng.uniform(0.03, 0.3),
        },
        "all at once": {
            "queue": _nights(rng, length),
            "nodes": tuple(math.exp(rng.gauss(0, 0.15)) for _ in range(4)),
            "kills": rng.uniform(0.05, 0.3),
            "change": 0.04,
            "change_spread": 0.3,
        },
    }
    return World(**{**plain, **special[family]})  # type: ignore[arg-type]


FAMILIES = (
    "steady",
    "long waits, lognormal",
    "long waits, Pareto",
    "backfill",
    "nights and weekends",
    "the pace changes",
    "fast and slow nodes",
    "kills",
    "without Slurm",
    "validation epochs",
    "all at once",
)


def simulated(family: str, number: int, seed: int, with_best: bool = False) -> list[Case]:
    """The cases of one simulated run: somebody looks at it again and again, at even intervals, as long as it lives.

    Moments that were chosen as shares of its life would be known to lie before its end: more of them in short lives.
    """
    rng = random.Random(f"{family} {number} {seed}")
    world = world_of(family, rng)
    states = [state.copy() for state in go_on(world, begin(world, rng), rng)]
    end, step = states[-1], world.goal / world.rate / LOOKS
    moment = states[0].moment + rng.random() * step
    found: list[Case] = []
    while moment < end.moment:
        before = max((state for state in states if state.moment <= moment), key=lambda state: state.moment)
        cut = _between(before, states, moment)
        made = forecast(
            cut.attempts, cut.done, world.goal, now=moment, segment_seconds=world.length, at_work_since=cut.began
        )
        best = _best_width(world, cut, rng) if with_best and made and len(found) % BEST_EVERY == 1 else None
        needed = end.segment - cut.segment + 1
        took, used = end.moment - moment, cut.segment - 1
        found.append(Case(family, len(cut.attempts), made, took, needed, best, used))
        moment += step
    return found


def _between(before: State, states: Sequence[State], moment: float) -> State:
    """The state at a moment that lies between two: a wait lasts longer, work has gone on."""
    cut = before.copy()
    after = next(state for state in states if state.moment > moment) if moment < states[-1].moment else before
    if before.began is not None and after.moment > before.moment and len(after.attempts) == len(before.attempts):
        share = (moment - before.moment) / (after.moment - before.moment)
        cut.done += share * (after.done - before.done)
        cut.worked += moment - before.moment
    elif before.began is None:
        cut.done = cut.saved
    cut.moment = moment
    return cut


def _best_width(world: World, cut: State, rng: random.Random) -> float:
    ends = []
    for _ in range(BEST_PLAYS):
        state = again(world, cut, rng)
        for _state in go_on(world, state, rng):
            pass
        ends.append(state.moment - cut.moment)
    ends.sort()
    return ends[int(0.95 * BEST_PLAYS)] - ends[int(0.05 * BEST_PLAYS)]


def recorded(folder: Path = RECORDED, kind: str = "") -> Iterator[Case]:
    """Histories of real chains of the toy, cut when each of their attempts ended, and in the middle of each.

    `quiet`: nothing else was at work there; `busy`: much, and less and less; `crowded`: fourteen runs on five cores.
    """
    for path in sorted(folder.glob(f"{kind}*.jsonl")):
        attempts = History(path).attempts()
        family = f"recorded, {path.name.partition('_')[0]}"
        end = _end(attempts[-1])
        goal = attempts[-1].progress_to
        for place in range(1, len(attempts)):
            past, after = attempts[:place], attempts[place]
            needed = len({attempt.segment for attempt in attempts[place:]})
            done, now = past[-1].progress_to, _end(past[-1])
            length = _limit(attempts)
            used = len({attempt.segment for attempt in attempts if attempt.kind.settles}) - needed
            yield Case(
                family,
                place,
                forecast(past, done, goal, now=now, segment_seconds=length),
                end - now,
                needed,
                None,
                used,
            )
            began = _begin(after)
            half = 0.5 * after.work_seconds
            reached = after.progress_from + 0.5 * (after.progress_to - after.progress_from)
            made = forecast(past, reached, goal, now=began + half, segment_seconds=length, at_work_since=began)
            yield Case(family, place, made, end - began - half, needed, None, used)


def _begin(attempt: Attempt) -> float:
    return attempt.times.program_started or unix_seconds(attempt.started_utc)


def _end(attempt: Attempt) -> float:
    return _begin(attempt) + attempt.work_seconds


def _limit(attempts: Sequence[Attempt]) -> float | None:
    known = [a.work_seconds + a.unused_seconds for a in attempts if a.unused_seconds and a.kind is EndKind.PAUSED]
    return statistics.median(known) if known else None


@dataclass(frozen=True)
class Row:
    """What became of the cases of a family; shares in percent."""

    family: str
    cases: int
    held: float  # ended between the bounds
    early: float  # ended before the lower bound
    before_median: float
    before_p90: float
    segments_p90: float
    width: float | None  # against the best possible


def row_of(family: str, cases: Sequence[Case]) -> Row:
    """The figures of a family."""
    told = [(case, case.made) for case in cases if case.made is not None and case.counts]

    def percent(holds: Callable[[Case, Forecast], bool]) -> float:
        return 100 * sum(holds(case, made) for case, made in told) / len(told)

    widths = [(made.high_seconds - made.low_seconds) / case.best for case, made in told if case.best]
    return Row(
        family,
        len(told),
        percent(lambda case, made: made.low_seconds <= case.took <= made.high_seconds),
        percent(lambda case, made: case.took < made.low_seconds),
        percent(lambda case, made: case.took <= made.median_seconds),
        percent(lambda case, made: case.took <= made.p90_seconds),
        percent(lambda case, made: case.segments <= made.segments_p90),
        statistics.median(widths) if widths else None,
    )


def _one(job: tuple[str, int, int, bool]) -> list[Case]:
    os.environ["TZ"] = "UTC"
    time.tzset()
    return simulated(*job)


def table_of(rows: Sequence[Row]) -> str:
    """For the page."""
    lines = [
        "| runs | cases | 90 % interval held | ended before it | ended before the median | before the 90 % |"
        " segments within the 90 % | width, best possible = 1 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        width = "" if row.width is None else f"{row.width:.1f}"
        figures = (row.held, row.early, row.before_median, row.before_p90, row.segments_p90)
        lines.append(f"| {row.family} | {row.cases:,} | {' | '.join(f'{each:.0f} %' for each in figures)} | {width} |")
    return "\n".join(lines)


def said_table(cases: Sequence[Case]) -> str:
    """How often the line about `segments:` stands there, by how many of those that a run takes its config allows."""
    long = [case for case in cases if case.made is not None and case.used + case.segments >= LEAST_SEGMENTS]
    lines = ["| segments allowed, of those that the run took | the line was there |", "|---:|---:|"]
    for share in ALLOWED:
        said = [budget_words(case.made, case.used, round(share * (case.used + case.segments))) for case in long]
        lines.append(f"| {share:.0%} | {100 * sum(map(bool, said)) / max(len(said), 1):.0f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=120, help="simulated runs of each family, each cut three times")
    parser.add_argument("--best", type=int, default=40, help="of them, those against the best possible")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="one family")
    parser.add_argument("--recorded", default="", help="one kind of recorded histories")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    families = [family for family in FAMILIES if given.only in family]
    jobs = [(family, number, given.seed, number < given.best) for family in families for number in range(given.runs)]
    with ProcessPoolExecutor(given.jobs) as pool:
        cases = [case for found in pool.map(_one, jobs, chunksize=4) for case in found]
    real = list(recorded(kind=given.recorded))
    rows = [row_of(family, [case for case in cases if case.family == family]) for family in families]
    for family in sorted({case.family for case in real}, reverse=True):
        rows.append(row_of(family, [case for case in real if case.family == family]))
    every = cases + real
    rows.append(row_of("all", every))
    few = [(1, 2), (3, 9), (10, 1000)]
    rows += [
        row_of(f"{a} to {b} attempts" if b < 999 else f"{a} and more", [c for c in every if a <= c.attempts <= b])
        for a, b in few
    ]
    print(table_of(rows))
    print(f"\n{said_table(every)}")
    none, unknown = sum(case.made is None for case in every), sum(not case.counts for case in every)
    print(f"\n{len(every):,} cases; without a forecast yet: {none}, with unknown waits: {unknown - none}")


if __name__ == "__main__":
    main()
