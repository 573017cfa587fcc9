"""Cuts the files that no checkpoint of mdrun counts, so that each checkpoint has those of its own time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.gromacs.command import CPT, has_plumed
from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.others import Moment, OtherFile, Others
from unbroken.engines.gromacs.parts import inputs_of, own_names, step_of
from unbroken.engines.gromacs.rotation import counted_bytes
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.time_table import Span
from unbroken.errors import CheckpointError


class Leaving:
    """Cut the files of one attempt at each checkpoint of its mdrun.

    `has_finished`: mdrun's log says that it came to its end; `has_left`: its process is known to have left by itself.
    """

    def __init__(self, task: Task, folder: Path, simulation: Simulation, *, has_finished: bool, has_left: bool) -> None:
        self.folder, self.replica, self.are_state = folder, simulation.replica, has_plumed(task.run)
        self._simulation, self._has_finished, self._has_left = simulation, has_finished, has_left
        self._origin_step = step_of(task.origin, simulation.replica) if task.origin else None
        inputs = inputs_of(task.run, simulation.base)
        self._others = Others(folder, task.origin, inputs, are_state=self.are_state)
        self.refused: dict[int, str] = {}

    def is_usable(self, cpt: Cpt) -> bool:
        """Return False, and note why, if what a run needs to resume from a checkpoint cannot be cut there."""
        try:
            self.counted(cpt)
            self.others(cpt)
        except CheckpointError as error:
            self.refused[cpt.step] = str(error)
        return cpt.step not in self.refused

    def counted(self, cpt: Cpt) -> Mapping[str, int]:
        """Return the bytes of tables that mdrun's checkpoint does not count; CheckpointError if rows are missing."""
        return counted_bytes(cpt, self.folder, self._simulation.known_tpr, self._first_step)

    def others(self, cpt: Cpt) -> list[OtherFile]:
        """Return the other files as they were at a checkpoint; CheckpointError if one cannot be cut there."""
        is_last = self._has_finished and cpt.path.name == CPT
        tpr = self._simulation.known_tpr
        span = Span(tpr.time_ps(self._first_step), cpt.time_ps)
        moment = Moment(cpt.step, span, tpr.dt_ps, is_last, is_last and self._has_left)
        return self._others.at(moment, own_names(cpt, self.folder))

    @property
    def _first_step(self) -> int:
        return self._simulation.known_tpr.first_step if self._origin_step is None else self._origin_step

    @property
    def begun(self) -> int:
        """The step where the attempt began; -1 at the beginning of the run, where a checkpoint of step 0 counts too."""
        return -1 if self._origin_step is None else self._origin_step


def leavings(
    task: Task, simulations: Sequence[Simulation], folder: Path, logs: Sequence[Log], *, has_left: bool
) -> list[Leaving]:
    """Return what each of the simulations of an attempt left in its folder below mdrun's."""
    return [
        Leaving(task, folder / each.replica, each, has_finished=log.has_finished, has_left=has_left)
        for each, log in zip(simulations, logs, strict=True)
    ]
