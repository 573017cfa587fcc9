"""The simulation of a run: its tpr, and the step at which it is to end."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.command import EXTENDED_TPR
from unbroken.engines.gromacs.prepare import tpr_of
from unbroken.engines.gromacs.settings import ALONE
from unbroken.engines.gromacs.tool import gmx, must_gmx
from unbroken.engines.gromacs.tpr import Tpr, is_last_needed, parse_tpr, wanted_step
from unbroken.errors import SegmentError
from unbroken.runs.run import Run

# Those that mdrun can take up again from a checkpoint; a minimisation begins anew.
RESTARTABLE = ("md", "md-vv", "md-vv-avek", "sd", "bd")


@dataclass(frozen=True)
class Simulation:
    """A run's simulation; the tpr is read once, when it is first asked for."""

    run: Run
    base: Path
    replica: str = ALONE

    @functools.cached_property
    def path(self) -> Path:
        """Where the tpr lies: as the config names it, or as `prepare` made it."""
        return tpr_of(self.run, self.base, self.replica)

    @functools.cached_property
    def tpr(self) -> Tpr | None:
        """What the tpr says; None if gmx cannot say it, for mdrun tells best why."""
        answer = gmx(self.run, "dump", "-s", str(self.path.resolve()), is_enough=is_last_needed, base=self.base)
        return parse_tpr(answer.lines) if answer.code == 0 else None

    @property
    def known_tpr(self) -> Tpr:
        """The same; SegmentError if gmx cannot say it."""
        if self.tpr is None:
            raise SegmentError(f"`gmx dump` cannot read {self.path}; is it a tpr?", run=self.run.name)
        return self.tpr

    @property
    def end_step(self) -> int | None:
        """The step at which it is to end; None without end, or while the tpr cannot be read."""
        return wanted_step(self.tpr, *self._wishes()) if self.tpr else None

    def tpr_to_run(self, folder: Path, done: float | None) -> Path:
        """The run's own tpr, or a copy in `folder` that ends where the settings say; `done` steps are behind it.

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

    @property
    def is_exact(self) -> bool:
        """True if the pieces equal the whole bit for bit: the tpr must allow it, and the settings ask for it.

        Otherwise mdrun chooses FFT plans and balances load by timing, anew at each start.
        """
        return self.run.settings["exact"] is True and self.known_tpr.is_exact

    def remarks(self) -> list[str]:
        """What of it is not equal after a restart; SegmentError if it cannot be cut, or not as exactly as is asked."""
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

    def _wishes(self) -> tuple[float | None, float | None, float | None]:
        goal, until, extend = (self.run.settings[name] for name in ("goal", "until_ps", "extend_ps"))
        return _number(goal), _number(until), _number(extend)


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) else None
