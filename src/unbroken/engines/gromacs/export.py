"""Exports a folder in which mdrun resumes by itself: its checkpoint, its tpr, and the pieces of the results so far."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from unbroken.engines.exports import write_script
from unbroken.engines.gromacs.command import CPT, has_plumed, mdrun_command, threads_per_rank
from unbroken.engines.gromacs.join import counted_pieces
from unbroken.engines.gromacs.others import Others
from unbroken.engines.gromacs.outputs import STEM
from unbroken.engines.gromacs.parts import inputs_of
from unbroken.engines.gromacs.prepare import TPR
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.lineage import ancestors, verified_parts
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system.copying import copy_head


def export_files(run: Run, base: Path, simulation: Simulation, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Fill the folder; return lines about it."""
    made = simulation.tpr_to_run(folder, checkpoint.passport.progress.done)
    if made.parent.resolve() == folder.resolve():
        made.rename(folder / TPR)
    else:
        shutil.copyfile(made, folder / TPR)
    shutil.copyfile(checkpoint.folder / CPT, folder / CPT)
    line = ancestors(Store(checkpoint.folder.parent), checkpoint)
    for each in line:
        verified_parts(each)
    # Also of a simulation that was done: mdrun resumes at the checkpoint, and writes what follows again.
    line[-1] = replace(checkpoint, passport=replace(checkpoint.passport, is_finished=False))
    for piece in counted_pieces(line):
        copy_head(piece.path, folder / piece.path.name, piece.size_bytes)
    inputs = inputs_of(run, base)
    for name, path in inputs.items():
        shutil.copyfile(path, folder / name)
    Others(folder, checkpoint, inputs, are_state=has_plumed(run)).put_back()
    command = _here(mdrun_command(run, folder / TPR, folder / CPT, 1.0, base), folder)
    write_script(folder, run, command, {"OMP_NUM_THREADS": str(threads_per_rank(run))})
    return [
        f"resume.sh starts mdrun from {CPT}; it writes the next part, {STEM}.partNNNN.*, next to those that are there",
        f"the parts meet without overlap: gmx trjcat -f {STEM}.part*.xtc -o {STEM}.xtc -cat joins them",
    ]


def _here(command: list[str], folder: Path) -> list[str]:
    """Return the command without a time limit, and with names in the folder itself."""
    at = command.index("-maxh")
    prefix = f"{folder.resolve()}/"
    return [word.removeprefix(prefix) for word in command[:at] + command[at + 2 :]]
