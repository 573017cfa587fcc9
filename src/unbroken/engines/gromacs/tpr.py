"""What a run input file (`.tpr`) says of the simulation, from the text that `gmx dump -s` prints of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from unbroken.errors import SegmentError

# The parameters that are needed here all stand before one of these.
_LAST_NEEDED, _LAST_OF_ROTATION = "rotation", "rot-nstsout"
_PICOSECONDS_SLACK = 1e-6


@dataclass(frozen=True)
class Tpr:
    """The parameters of a simulation that decide how it is cut and joined."""

    integrator: str
    steps: int  # -1: without end
    first_step: int
    dt_ps: float
    first_time_ps: float
    pressure_coupling: str
    buffer_tolerance: float
    rotation_steps: int = 0  # enforced rotation prints at multiples of these; 0: there is none
    slab_steps: int = 0
    list_steps: int = 1  # between two searches of neighbors, at least
    shares_bias: bool = False  # AWH shares its bias among replicas

    @property
    def last_step(self) -> int | None:
        """The step at which the file itself ends the simulation; None if it never does."""
        return None if self.steps < 0 else self.first_step + self.steps

    @property
    def is_exact(self) -> bool:
        """False if mdrun sets the pair list anew from the box of each start, so that a restart changes bits."""
        return self.pressure_coupling.lower() == "no" or self.buffer_tolerance <= 0

    def time_ps(self, step: int) -> float:
        return self.first_time_ps + (step - self.first_step) * self.dt_ps

    def step_at(self, time_ps: float) -> int:
        """The first step that is not before a time."""
        steps = (time_ps - self.first_time_ps) / self.dt_ps
        return self.first_step + math.ceil(steps - _PICOSECONDS_SLACK)


def is_last_needed(line: str) -> bool:
    """True for the line behind which nothing is needed any more; a large file has millions of lines."""
    name, _, value = line.partition("=")
    return name.strip() == _LAST_OF_ROTATION or (name.strip() == _LAST_NEEDED and value.strip() == "false")


def parse_tpr(lines: Iterable[str]) -> Tpr:
    """The parameters in the lines of `gmx dump -s`; SegmentError if one of them is not there."""
    pairs = (line.partition("=") for line in lines)
    found = {name.strip(): value.strip() for name, mark, value in pairs if mark}
    try:
        return Tpr(
            integrator=found["integrator"],
            steps=int(found["nsteps"]),
            first_step=int(found["init-step"]),
            dt_ps=float(found["dt"]),
            first_time_ps=float(found["tinit"]),
            pressure_coupling=found["pcoupl"],
            buffer_tolerance=float(found["verlet-buffer-tolerance"]),
            rotation_steps=int(found.get("rot-nstrout", 0)),
            slab_steps=int(found.get("rot-nstsout", 0)),
            list_steps=int(found.get("nstlist", 1)),
            shares_bias=found.get("awh-share-bias-multisim") == "true",
        )
    except (KeyError, ValueError) as error:
        raise SegmentError(f"the tpr cannot be read: `gmx dump -s` prints no good {error}") from error


def wanted_step(tpr: Tpr, goal: float | None, until_ps: float | None, extend_ps: float | None) -> int | None:
    """The step at which the simulation is to end: as the settings say, else as the file says; None if never."""
    if goal is not None:
        return int(goal)
    if until_ps is not None:
        return tpr.step_at(until_ps)
    if extend_ps is not None and tpr.last_step is not None:
        return tpr.step_at(tpr.time_ps(tpr.last_step) + extend_ps)
    return tpr.last_step
