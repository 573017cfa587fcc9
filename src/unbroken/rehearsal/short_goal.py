"""A goal that is reached within minutes."""

from __future__ import annotations

import math
from dataclasses import replace

from unbroken.errors import ConfigError
from unbroken.runs.run import Run


def with_goal(run: Run, goal: float) -> Run:
    """The run to another goal; ConfigError if its engine knows none."""
    if "goal" not in run.settings:
        raise ConfigError([f"{run.name}: engine {run.engine} has no goal; rehearse without --goal"])
    value = int(goal) if float(goal).is_integer() else goal
    return replace(run, settings={**run.settings, "goal": value}, metric_goals={})


def rounded_down(value: float) -> float:
    """To two digits, and a whole number: 1234.5 becomes 1200, 7.9 becomes 7."""
    if value < 1:
        return 0
    unit = 10.0 ** max(0, math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit
