"""The gaps between the attempts to come where no queue stands between them: the next one follows by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from statistics import fmean

from unbroken.accounting.past import Gap

# Before anything is seen: hand-offs differ by a quarter, and moments in old histories are whole seconds.
USUAL_SHARE = 0.25
ROUNDED_SECONDS = 0.4
HALF_LIFE = 6.0
MOST = 12


class HandOffs:
    """The hand-offs of a run; the interface of `Waits`, without hours of the day and without a long tail."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self._seconds = [gap.seconds for gap in gaps]
        self._weights = list(accumulate(0.5 ** (age / HALF_LIFE) for age in reversed(range(len(gaps)))))

    def play(self, random: Random, count: int, waited: float | None, moment: float, between: float) -> float:
        """The seconds of `count` of them; the first has lasted `waited` seconds, None: an attempt is at work."""
        average, deviation = self._kind(random)
        if waited is not None and waited <= average + 3 * deviation:
            return max(average - waited, 0.0) + self._total(random, count - 1, average, deviation)
        return self._total(random, count, average, deviation)

    def _kind(self, random: Random) -> tuple[float, float]:
        """Mean and spread of one of the kinds of hand-off that these may have come from; the last ones count most."""
        sample = random.choices(self._seconds, cum_weights=self._weights, k=min(len(self._seconds), MOST))
        average = fmean(sample)
        usual = USUAL_SHARE * max(average, 0.0) + ROUNDED_SECONDS
        deviation = math.hypot(usual, math.sqrt(sum([(each - average) ** 2 for each in sample]) / len(sample)))
        return average + random.gauss(0, usual) / math.sqrt(len(sample)), deviation

    @staticmethod
    def _total(random: Random, count: int, average: float, deviation: float) -> float:
        return max(count * average + math.sqrt(count) * deviation * random.gauss(0, 1), 0.0)
