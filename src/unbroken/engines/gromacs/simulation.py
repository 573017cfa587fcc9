"""Read the simulation of a run: the parameters of its tpr, and the step at which it ends."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE, number_of
from unbroken.engines.gromacs.prepare import tpr_of
from unbroken.engines.gromacs.tool import gmx, must_gmx
from unbroken.errors import SegmentError
from unbroken.runs.run import RunSpec

EXTENDED_TPR = "extended.tpr"
# Those that mdrun can resume from a checkpoint; a minimization begins again.
RESTARTABLE = ("md", "md-vv", "md-vv-avek", "sd", "bd")
# The parameters that are needed here all come before one of these.
_LAST_NEEDED, _LAST_OF_ROTATION = "rotation", "rot-nstsout"
_PICOSECONDS_SLACK = 1e-6


@dataclass(frozen=True)
class Tpr:
    """Hold the parameters of a run input file (`.tpr`) that decide how its simulation is cut and joined."""

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
        """Return the step at which the file itself ends the simulation; None if it never does."""
        return None if self.steps < 0 else self.first_step + self.steps

    @property
    def is_exact(self) -> bool:
        """Return False if mdrun sets the pair list again from the box of each start, so that a restart changes bits."""
        return self.pressure_coupling.lower() == "no" or self.buffer_tolerance <= 0

    def time_ps(self, step: int) -> float:
        """Return the time of a step."""
        return self.first_time_ps + (step - self.first_step) * self.dt_ps

    def step_at(self, time_ps: float) -> int:
        """Return the first step that is not before a time."""
        steps = (time_ps - self.first_time_ps) / self.dt_ps
        return self.first_step + math.ceil(steps - _PICOSECONDS_SLACK)

    def end_step(self, goal: float | None, until_ps: float | None, extend_ps: float | None) -> int | None:
        """Return the step at which the simulation is to end by the settings, else by the file; None if never."""
        if goal is not None:
            return int(goal)
        if until_ps is not None:
            return self.step_at(until_ps)
        if extend_ps is not None and self.last_step is not None:
            return self.step_at(self.time_ps(self.last_step) + extend_ps)
        return self.last_step


def parse_tpr(lines: Iterable[str]) -> Tpr:
    """Return the parameters in the lines of `gmx dump -s`; raise SegmentError if one of them is not there."""
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


def _is_last_needed(line: str) -> bool:
    """Return True for the line after which nothing is needed; the dump of a large file has millions of lines."""
    name, _, value = line.partition("=")
    return name.strip() == _LAST_OF_ROTATION or (name.strip() == _LAST_NEEDED and value.strip() == "false")


@dataclass(frozen=True)
class Simulation:
    """Describe a run's simulation, or a replica; the tpr is read once, when it is first asked for."""

    run: RunSpec
    base: Path
    replica: str = ALONE

    @functools.cached_property
    def path(self) -> Path:
        """Return where the tpr lies: as the config names it, or as `prepare` made it."""
        return tpr_of(self.run, self.base, self.replica)

    @functools.cached_property
    def tpr(self) -> Tpr | None:
        """Return the parameters of the tpr; None if gmx cannot read them, because mdrun gives the best reason."""
        answer = gmx(self.run, "dump", "-s", str(self.path.resolve()), is_enough=_is_last_needed, base=self.base)
        return parse_tpr(answer.lines) if answer.code == 0 else None

    @property
    def known_tpr(self) -> Tpr:
        """Return the parameters of the tpr; raise SegmentError if gmx cannot read them."""
        if self.tpr is None:
            raise SegmentError(f"`gmx dump` cannot read {self.path}; is it a tpr?", run=self.run.name)
        return self.tpr

    @property
    def end_step(self) -> int | None:
        """Return the step at which it is to end; None without end, or while the tpr cannot be read."""
        wishes = [number_of(self.run, name) for name in ("goal", "until_ps", "extend_ps")]
        return self.tpr.end_step(*wishes) if self.tpr else None

    @property
    def is_exact(self) -> bool:
        """Return True if the pieces equal the whole bit for bit: the tpr must allow it, and the settings ask for it.

        Otherwise mdrun chooses FFT plans and balances load by timing, again at each start.
        """
        return self.run.settings["exact"] is True and self.known_tpr.is_exact

    def tpr_to_run(self, folder: Path, done: float | None) -> Path:
        """Return the tpr, or a copy in `folder` that ends where the settings say; `done` steps are made.

        A goal that was lowered below them ends one step on: mdrun refuses a tpr that ends before its checkpoint, and
        writes no structure where it ends at it.
        """
        if self.end_step is None:
            return self.path
        end = self.end_step if done is None else max(self.end_step, int(done) + 1)
        if end == self.known_tpr.last_step:
            return self.path
        target = (folder / EXTENDED_TPR).resolve()
        steps = str(end - self.known_tpr.first_step)
        words = ("convert-tpr", "-s", str(self.path.resolve()), "-nsteps", steps, "-o", str(target))
        must_gmx(self.run, *words, base=self.base)
        return target

    def remarks(self) -> list[str]:
        """Return what is not equal after a restart; raise SegmentError if it cannot be cut, or not exactly enough."""
        if self.tpr is None:
            return []
        if self.tpr.integrator not in RESTARTABLE:
            which = f"the tpr of {self.replica}" if self.replica else "the tpr"
            found = f"{which} has the integrator {self.tpr.integrator}, which mdrun cannot take up again"
            raise SegmentError(f"{found}; allowed: {', '.join(RESTARTABLE)}; run it by hand", run=self.run.name)
        if self.tpr.is_exact:
            return []
        why = (
            f"pressure coupling ({self.tpr.pressure_coupling}) with an automatic pair-list buffer: mdrun sets rlist "
            "anew from the box of each start, so the pieces equal the whole in their statistics, not bit for bit"
        )
        if self.run.settings["exact"] is not True:
            return [f"{why}; docs/engines/gromacs.md says how to make it exact"]
        raise SegmentError(
            f"runs.{self.run.name}.settings.exact: found true, but the tpr has {why}; allowed: "
            "verlet-buffer-tolerance = -1 and an rlist in the mdp (or `fixed_rlist_nm` beside `mdp`), or `exact: false`"
        )
