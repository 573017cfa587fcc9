"""Tells from mdrun's log that a simulation has gone wrong, before another segment is wasted on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.engines.gromacs.log import Log
from unbroken.runs.run import Run


@dataclass(frozen=True)
class Limits:
    """What a simulation may do; None: anything."""

    temperature: float | None
    constraint_warnings: int | None


def limits_of(run: Run) -> Limits:
    """The limits in the settings of a run."""
    temperature, warnings = run.settings["max_temperature"], run.settings["max_constraint_warnings"]
    return Limits(
        float(temperature) if isinstance(temperature, (int, float)) else None,
        int(warnings) if isinstance(warnings, int) else None,
    )


@dataclass(frozen=True)
class Divergence:
    """Hold the log that shows that a simulation went wrong, and what is wrong with it."""

    log: Log
    illness: str


def first_divergence(logs: Sequence[Log], limits: Limits) -> Divergence | None:
    """Return which of the simulations of a run has gone wrong; None if none has."""
    found = (Divergence(log, divergence(log, limits)) for log in logs)
    return next((each for each in found if each.illness), None)


def divergence(log: Log, limits: Limits) -> str:
    """What is wrong with the simulation, in one line, with what the log says; empty if nothing is."""
    for name, text in log.energies.items():
        if not math.isfinite(value := _number(text)):
            return f"{name} is {text} at step {log.step}: the simulation has blown up"
        if name == "Temperature" and limits.temperature is not None and value > limits.temperature:
            where = f"Temperature {value:g} K at step {log.step}"
            return f"{where} is above max_temperature ({limits.temperature:g} K): the simulation is blowing up"
    count = len(log.constraint_warnings)
    if limits.constraint_warnings is not None and count > limits.constraint_warnings:
        last = log.constraint_warnings[-1]
        return f"{count} constraint warnings (max_constraint_warnings {limits.constraint_warnings}), the last: {last}"
    return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # a cell cut in two is no sign of anything
        return 0.0
