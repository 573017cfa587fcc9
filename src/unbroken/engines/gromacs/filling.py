"""Fills mdrun's folder with what it reads: the tpr, the checkpoint and the inputs, of each simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.gromacs.command import EXTENDED_TPR, ORIGIN_CPT, has_plumed
from unbroken.engines.gromacs.others import Others
from unbroken.engines.gromacs.parts import cpt_of, show_inputs, step_of
from unbroken.engines.gromacs.settings import has_replicas
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.errors import CheckpointError


@dataclass(frozen=True)
class Reads:
    """Hold the tpr and the checkpoint for mdrun's command line; of replicas the names that all of them share."""

    tpr: Path
    cpt: Path | None


def fill(task: Task, simulations: Sequence[Simulation], folder: Path) -> Reads:
    """Make mdrun's folder; CheckpointError if what the attempt resumes from is no checkpoint of mdrun."""
    cpts = [_cpt(task, each) for each in simulations]
    # All replicas must end at the same step, also where a lowered goal lies behind them.
    done = max(step_of(task.origin, each.replica) for each in simulations) if task.origin else None
    tprs = [_fill_one(task, each, folder / each.replica, done) for each in simulations]
    if not has_replicas(task.run):
        return Reads(tprs[0], cpts[0])
    for each, tpr, cpt in zip(simulations, tprs, cpts, strict=True):
        _show(folder / each.replica / EXTENDED_TPR, tpr)
        if cpt is not None:
            _show(folder / each.replica / ORIGIN_CPT, cpt)
    return Reads(Path(EXTENDED_TPR), Path(ORIGIN_CPT) if task.origin else None)


def _cpt(task: Task, simulation: Simulation) -> Path | None:
    if task.origin is None:
        return None
    cpt = cpt_of(task.origin.folder, simulation.replica)
    if not cpt.is_file():
        # `-cpi` with a file that is not there is no error for mdrun.
        raise CheckpointError(f"{cpt}: missing, and mdrun would silently begin at step 0; nothing was started")
    return cpt


def _fill_one(task: Task, simulation: Simulation, folder: Path, done: int | None) -> Path:
    """Fill the folder of one simulation, and return its tpr."""
    folder.mkdir(parents=True, exist_ok=True)
    tpr = simulation.tpr_to_run(folder, done)
    inputs = show_inputs(task.run, simulation.base, folder)
    Others(folder, task.origin, inputs, are_state=has_plumed(task.run)).put_back()
    return tpr


def _show(name: Path, target: Path) -> None:
    """Let mdrun find a file in the folder of a replica by a name that all replicas share."""
    if name.resolve() != target.resolve():
        name.symlink_to(target.resolve())
