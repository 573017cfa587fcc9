"""The gaps between the attempts to come: the queue's waits, heavy-tailed, and by day, night and weekend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from statistics import NormalDist, fmean
from typing import NamedTuple

from unbroken.accounting.past import Gap

# Before anything is seen: a queue's waits differ by a factor of e**0.8 either way, worth two and a half of them, around
# a seventh of the time that is asked for, worth a third of a wait.
USUAL_SPREAD = 0.8
SPREAD_WORTH = 2.5
USUAL_SHARE = 0.15
USUAL_WORTH = 0.3
WIDEST_SPREAD = 2.2
# A wait is like the one before it: by so much, worth four waits.
USUAL_LIKENESS = 0.4
LIKENESS_WORTH = 4.0
MOST_LIKENESS = 0.85
# The seen waits themselves are drawn from so often as n / (n + this); else a lognormal that was fitted to them.
TRUST_WORTH = 40.0
# No wait is taken to be longer than the longest one seen by more than this, unless a queue is asked for as much.
LONGEST_FACTOR = 20.0
# Waits are put into a group of hours only as far as there are some: so many count as much as all the others.
GROUP_WORTH = 4.0
GROUPS_FROM = 6
GROUP_SPREAD = 0.4
GROUP_HOURS = (50, 70, 48)
SHORTEST_SECONDS = 1.0
# So many waits are drawn one by one; more of them are their mean, with the spread that so many have.
ONE_BY_ONE = 8
# A wait that has lasted longer than all but this share of its kind is none: nobody has sent a job.
HARDLY_EVER = 0.01
DAY_BEGINS, DAY_ENDS = 8, 18
_NORMAL = NormalDist()


class _Drawn(NamedTuple):
    """One possible queue: either its logarithms are normal, or its waits are those that were seen."""

    mean: float
    spread: float
    sample: tuple[float, ...]
    average: float
    deviation: float
    groups: tuple[float, float, float]  # how far the logarithms lie from all, by day, night and weekend


class Waits:
    """The waits of a run.

    `asked_seconds` is the time that a job asks the queue for; `utc_offset` in seconds is what the hours of the day
    are counted from.
    """

    def __init__(self, gaps: Sequence[Gap], utc_offset: float, asked_seconds: float) -> None:
        self._offset = utc_offset
        logs = [math.log(max(gap.seconds, SHORTEST_SECONDS)) for gap in gaps]
        self._mean = fmean(logs)
        self._groups, self._doubts = self._group_means(gaps, logs)
        self._rest = [log - self._groups[self._group(gap.began)] for gap, log in zip(gaps, logs, strict=True)]
        self._longest = max(logs) + math.log(LONGEST_FACTOR)
        self._trust = len(logs) / (len(logs) + TRUST_WORTH)
        seen = fmean(self._rest)
        self._like = _likeness([log - seen for log in self._rest])
        self._weight = len(logs) * (1 - self._like) / (1 + self._like)
        squares = sum((log - seen) ** 2 for log in self._rest)
        usual, total = math.log(max(USUAL_SHARE * asked_seconds, SHORTEST_SECONDS)), self._weight + USUAL_WORTH
        self._center = (seen * self._weight + usual * USUAL_WORTH) / total
        squares += self._weight * USUAL_WORTH / total * (seen - usual) ** 2
        self._weight = total
        self._longest = max(self._longest, math.log(max(asked_seconds, SHORTEST_SECONDS)))
        self._freedom = SPREAD_WORTH + self._weight - 1
        share = self._weight / max(len(logs), 1)
        self._squares = SPREAD_WORTH * USUAL_SPREAD**2 + squares * min(share, 1.0)

    def _group(self, moment: float) -> int:
        """0 by day, 1 by night, 2 at the weekend."""
        days, seconds = divmod(moment + self._offset, 86400)
        if (int(days) + 3) % 7 >= 5:  # 1 January 1970 was a Thursday
            return 2
        return 0 if DAY_BEGINS <= seconds / 3600 < DAY_ENDS else 1

    def _group_means(self, gaps: Sequence[Gap], logs: Sequence[float]) -> tuple[list[float], list[float]]:
        """How far the logarithms of each group lie from all, as far as there are enough to say so; and the doubt."""
        offs: list[list[float]] = [[], [], []]
        for gap, log in zip(gaps, logs, strict=True):
            offs[self._group(gap.began)].append(log - self._mean)
        means = [sum(group) / (len(group) + GROUP_WORTH) if len(logs) >= GROUPS_FROM else 0.0 for group in offs]
        # Where some hours differ, others do.
        spread = math.hypot(GROUP_SPREAD, max(map(abs, means)))
        return means, [spread / math.sqrt(1 + len(group) / GROUP_WORTH) for group in offs]

    def play(self, random: Random, count: int, waited: float | None, moment: float, between: float) -> float:
        """The seconds of `count` waits from `moment` on, with `between` seconds of work before each.

        The first of them has lasted `waited` seconds already; None: an attempt is at work.
        """
        queue = self._queue(random)
        if waited is None:
            return self._total(queue, random, count, moment, between)
        first = self._first(queue, random, waited, moment)
        return first + self._total(queue, random, count - 1, moment + first, between)

    def _queue(self, random: Random) -> _Drawn:
        """One of the queues that these waits may have come from."""
        day, night, weekend = (
            mean + random.gauss(0, doubt) for mean, doubt in zip(self._groups, self._doubts, strict=True)
        )
        if random.random() < self._trust:
            sample = random.choices(self._rest, k=max(round(self._weight), 2))
            values = [math.exp(log) for log in sample]
            average = sum(values) / len(values)
            deviation = math.sqrt(max(sum([value * value for value in values]) / len(values) - average**2, 0.0))
            return _Drawn(0.0, 0.0, tuple(sample), average, deviation, (day, night, weekend))
        spread = math.sqrt(self._squares / (2 * random.gammavariate(self._freedom / 2, 1)))
        spread = min(spread, WIDEST_SPREAD)
        mean = random.gauss(self._center, spread / math.sqrt(self._weight))
        average = math.exp(min(mean + spread**2 / 2, self._longest))
        deviation = average * math.sqrt(math.expm1(min(spread**2, 5.0)))
        return _Drawn(mean, spread, (), average, deviation, (day, night, weekend))

    def _first(self, queue: _Drawn, random: Random, waited: float, moment: float) -> float:
        """The rest of a wait that has lasted `waited` seconds; a whole one where it was too long to be a wait."""
        if queue.sample or queue.spread <= 0 or waited < SHORTEST_SECONDS:
            longer = [log for log in self._rest if math.exp(log) > waited]
            return math.exp(random.choice(longer)) - waited if longer else self._one(queue, random, moment)
        passed = _NORMAL.cdf((math.log(waited) - queue.mean - self._off(queue, moment - waited)) / queue.spread)
        if 1 - passed < HARDLY_EVER:
            return self._one(queue, random, moment)
        z = _NORMAL.inv_cdf(min(passed + (1 - passed) * random.random(), 1 - 1e-9))
        return max(self._seconds(queue.mean + self._off(queue, moment - waited) + queue.spread * z) - waited, 0.0)

    def _total(self, queue: _Drawn, random: Random, count: int, moment: float, between: float) -> float:
        """The sum of `count` waits from `moment` on, with `between` seconds of work before each of them."""
        seconds, log = 0.0, self._rest[-1]
        like, fresh = self._like, math.sqrt(1 - self._like**2)
        for _ in range(min(count, ONE_BY_ONE)):
            if queue.sample:
                log = log if random.random() < like else random.choice(queue.sample)
            else:
                log = queue.mean + like * (log - queue.mean) + fresh * random.gauss(0, queue.spread)
            moment += between
            seconds += self._seconds(log + self._off(queue, moment + seconds))
        if count > ONE_BY_ONE:
            more = count - ONE_BY_ONE
            off = queue.deviation * math.sqrt(more * (1 + like) / (1 - like)) * random.gauss(0, 1)
            seconds += max(more * queue.average * self._usual_off(queue) + off, 0.0)
        return seconds

    @staticmethod
    def _usual_off(queue: _Drawn) -> float:
        """The factor of the groups over a whole week."""
        return sum([hours * math.exp(off) for hours, off in zip(GROUP_HOURS, queue.groups, strict=True)]) / 168

    def _one(self, queue: _Drawn, random: Random, moment: float) -> float:
        log = random.choice(queue.sample) if queue.sample else random.gauss(queue.mean, queue.spread)
        return self._seconds(log + self._off(queue, moment))

    def _off(self, queue: _Drawn, moment: float) -> float:
        return queue.groups[self._group(moment)]

    def _seconds(self, log: float) -> float:
        return math.exp(min(log, self._longest))


def _likeness(offs: Sequence[float]) -> float:
    """How alike two waits are that follow each other: their correlation, nearer to the usual one where few are seen."""
    squares = sum(off * off for off in offs)
    products = sum(one * other for one, other in pairwise(offs))
    seen = products / squares if squares > 0 else 0.0
    count = len(offs) - 1
    like = (count * seen + LIKENESS_WORTH * USUAL_LIKENESS) / (count + LIKENESS_WORTH)
    return min(max(like, 0.0), MOST_LIKENESS)
