"""Define how often a training saves; standard library alone."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Saves:
    """Define when a training saves, and what it keeps.

    `steps` or `minutes` say how often; with `mtbf_hours`, the mean time between failures, the interval is chosen by
    what a save costs (`best_interval`).  Under unbroken's workflow the configuration says the minutes and what is
    kept.  `in_background`: write while the training continues; with None the size of the state decides.
    """

    minutes: float = 10.0
    steps: int | None = None
    mtbf_hours: float | None = None
    keep: int = 2
    milestone_every: int = 0
    in_background: bool | None = None

    def __post_init__(self) -> None:
        for name in ("minutes", "steps", "mtbf_hours", "keep"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Saves({name}={value!r}), allowed: a number above 0")
        if self.milestone_every < 0:
            raise ValueError(f"Saves(milestone_every={self.milestone_every!r}), allowed: 0 (none) or more")


def best_interval(save_seconds: float, mtbf_seconds: float) -> float:
    """Return the seconds of work between two saves that lose the least time to saves and failures together.

    This is Daly's estimate, which is Young's sqrt(2 * cost * mtbf) for small costs: J. T. Daly, A higher order estimate
    of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22 (2006) 303-312;
    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974) 530-531.
    """
    if save_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = save_seconds / (2 * mtbf_seconds)
    return math.sqrt(2 * save_seconds * mtbf_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds
