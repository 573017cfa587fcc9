"""The pace of a run as a level that may have changed: which of the last attempts tell about those to come.

Bayesian online change-point detection (Adams and MacKay 2007, arXiv:0710.3742) over the logarithm of the pace, with a
normal-inverse-gamma prior, so few attempts give a wide answer and many alike a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from statistics import median

SPREAD_WORTH = 2.0
NEW_LEVEL_SPREAD = 0.5
CHANGE_WORTH = 0.5
# Of two values of spread 1 the median distance; parts of segments that are shorter than this tell too little of it.
MEDIAN_STEP = 0.954
WHOLE = 0.25


@dataclass(frozen=True)
class Usual:
    """Before anything is seen: how far segments differ, and that one in so many is the first of another level."""

    spread: float
    change_every: float


# One machine differs from itself little; a cluster gives another node, another GPU, other neighbours.
ONE_MACHINE = Usual(0.05, 60.0)
CLUSTER = Usual(0.075, 20.0)


@dataclass(frozen=True)
class _Seen:
    """The normal-inverse-gamma state of one level: its weight, mean, degrees of freedom and sum of squares."""

    weight: float
    mean: float
    freedom: float
    squares: float

    def with_one(self, value: float, weight: float) -> _Seen:
        total = self.weight + weight
        off = value - self.mean
        return _Seen(
            total,
            self.mean + weight * off / total,
            self.freedom + weight,
            self.squares + self.weight * weight / total * off * off,
        )

    def density(self, value: float, weight: float) -> float:
        """Student's t of the next value; one that was seen for a part of a segment counts as less sharp."""
        variance = self.squares / self.freedom * (1 / self.weight + 1 / weight)
        z2 = (value - self.mean) ** 2 / variance / self.freedom
        half = self.freedom / 2
        log = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(self.freedom * math.pi * variance)
        return math.exp(log - (half + 0.5) * math.log1p(z2))


@dataclass(frozen=True)
class Level:
    """What may be the level now, each with how likely it is, and how likely a change is from segment to segment."""

    levels: tuple[_Seen, ...]
    shares: tuple[float, ...]  # cumulated
    change: float

    def draw(self, random: Random) -> tuple[float, float]:
        """A level (logarithm) and the spread of the segments around it."""
        seen = random.choices(self.levels, cum_weights=self.shares)[0]
        spread = math.sqrt(seen.squares / (2 * random.gammavariate(seen.freedom / 2, 1)))
        return random.gauss(seen.mean, spread / math.sqrt(seen.weight)), spread


def level_of(values: Sequence[tuple[float, float]], usual: Usual) -> Level:
    """The level behind values in the order of time, each with its weight: 1 of a whole segment, less of a part."""
    center = sum(value * weight for value, weight in values) / sum(weight for _, weight in values)
    spread = _spread(values, usual.spread)
    new = _Seen((spread / NEW_LEVEL_SPREAD) ** 2, center, SPREAD_WORTH, SPREAD_WORTH * spread**2)
    change = 1 / usual.change_every
    levels, shares, likeliest = [new], [1.0], []
    for value, weight in values:
        hits = [share * seen.density(value, weight) for share, seen in zip(shares, levels, strict=True)]
        begun = sum(shares) * new.density(value, weight) * change
        levels = [new.with_one(value, weight), *(seen.with_one(value, weight) for seen in levels)]
        shares = [begun, *(hit * (1 - change) for hit in hits)]
        total = sum(shares) or 1.0
        shares = [share / total for share in shares]
        likeliest.append(max(range(len(shares)), key=shares.__getitem__))
    changes = _changes(likeliest)
    rate = (CHANGE_WORTH + changes) / (len(values) + CHANGE_WORTH * usual.change_every)
    return Level(tuple(levels), tuple(accumulate(shares)), rate)


def _spread(values: Sequence[tuple[float, float]], usual: float) -> float:
    """How far segments of the same level lie apart: by their median step, in which changes of level do not show."""
    steps = [abs(one - other) for (one, weight), (other, also) in pairwise(values) if min(weight, also) > WHOLE]
    seen = median(steps) / MEDIAN_STEP if steps else usual
    mean = (SPREAD_WORTH * usual**2 + len(steps) * seen**2) / (SPREAD_WORTH + len(steps))
    return min(max(math.sqrt(mean), usual / 4), NEW_LEVEL_SPREAD)


def _changes(likeliest: Sequence[int]) -> int:
    """How often the level has changed; an entry says how many values before its own one belong to the same level."""
    found, place = 0, len(likeliest) - 1
    while place >= 0 and (place := place - max(likeliest[place], 0) - 1) >= 0:
        found += 1
    return found
