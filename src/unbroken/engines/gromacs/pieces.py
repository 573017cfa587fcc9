"""Fill mdrun's folder in an attempt, and make drafts of checkpoints of what it left: its checkpoint, and the pieces.

Each simulation of a run has a folder: mdrun's own, or one below it for each replica.  A checkpoint of replicas has a
folder for the checkpoint of each, and one below `parts/` for its pieces.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.gromacs.command import ALONE, has_plumed, has_replicas, inputs_of
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.mdrun_line import CPT, STEM
from unbroken.engines.gromacs.others import Others
from unbroken.engines.gromacs.tpr import EXTENDED_TPR, Simulation
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.system import fs
from unbroken.system.copying import copy_head

# For each piece, how many of its bytes were written before the checkpoint: what follows is written again by the next.
_OFFSETS = "offsets.json"
_REPLICAS = "replicas"
# In the folder of each replica, a link to the checkpoint from which it resumes.
_ORIGIN_CPT = "origin.cpt"


def cpt_of(folder: Path, replica: str = ALONE) -> Path:
    """Return where a checkpoint, or its draft, has mdrun's checkpoint of a simulation."""
    return folder / _REPLICAS / replica / CPT if replica else folder / CPT


def whole_checkpoints(folder: Path, pattern: str = f"{STEM}*.cpt") -> list[Cpt]:
    """Return the complete checkpoints of mdrun in its folder, newest first.

    It writes a new one under another name and then renames twice, so a kill may leave any of these names.
    """
    found = []
    for path in folder.glob(pattern):
        try:
            found.append(read_cpt(path))
        except CheckpointError:
            continue
    # Of two at one step `md.cpt` comes before `md_prev.cpt`.
    return sorted(found, key=lambda cpt: (cpt.step, -len(cpt.path.name)), reverse=True)


def structure_of(cpt: Cpt) -> str:
    """Return the name of the structure that mdrun writes as its very last act."""
    return f"{STEM}.part{cpt.part:04d}.gro"


def own_names(cpt: Cpt, folder: Path) -> list[str]:
    """Return the names of the files that mdrun itself wrote in a part: those that its checkpoint counts, structure."""
    counted = [output.name for output in cpt.outputs]
    return [*counted, *([structure_of(cpt)] if (folder / structure_of(cpt)).exists() else [])]


def offsets_of(parts: Path) -> dict[str, int]:
    """Return the bytes of each piece that belong to the checkpoint next to it."""
    return {str(name): int(size) for name, size in json.loads((parts / _OFFSETS).read_text()).items()}


def write_offsets(parts: Path, sizes: Mapping[str, int]) -> None:
    """Note the bytes of each piece that belong to the checkpoint, for `offsets_of`."""
    (parts / _OFFSETS).write_text(json.dumps(dict(sizes)) + "\n")


def _step_of(checkpoint: Checkpoint, replica: str) -> int:
    """Return the step of a simulation at a checkpoint; raise CheckpointError if a replica has none there."""
    return read_cpt(cpt_of(checkpoint.folder, replica)).step if replica else int(checkpoint.passport.progress.done)


# --- before mdrun starts ---


def fill(task: Task, simulations: Sequence[Simulation], folder: Path) -> tuple[Path, Path | None]:
    """Make mdrun's folder, and return the tpr and the checkpoint for its command line, of replicas by common names.

    Raise CheckpointError if what the attempt resumes from is no checkpoint of mdrun.
    """
    cpts = [cpt_of(task.origin.folder, each.replica) for each in simulations] if task.origin else []
    if missing := next((cpt for cpt in cpts if not cpt.is_file()), None):
        # `-cpi` with a file that is not there is no error for mdrun.
        raise CheckpointError(f"{missing}: missing, and mdrun would silently begin at step 0; nothing was started")
    # All replicas must end at the same step, also if they have passed a lowered goal.
    done = max(_step_of(task.origin, each.replica) for each in simulations) if task.origin else None
    tprs = []
    for each in simulations:
        own = folder / each.replica
        own.mkdir(parents=True, exist_ok=True)
        tprs.append(each.tpr_to_run(own, done))
        Others(own, task.origin, inputs_of(task.run, each.base), are_state=has_plumed(task.run)).put_in()
    if not has_replicas(task.run):
        return tprs[0], cpts[0] if cpts else None
    # mdrun finds a file in the folder of each replica by a name that all of them share.
    for name, targets in ((EXTENDED_TPR, tprs), (_ORIGIN_CPT, cpts)):
        for each, target in zip(simulations, targets, strict=False):
            if (shown := folder / each.replica / name).resolve() != target.resolve():
                shown.symlink_to(target.resolve())
    return Path(EXTENDED_TPR), Path(_ORIGIN_CPT) if cpts else None


# --- when it is gone ---


class Leaving:
    """Hold what mdrun left of one simulation: its complete checkpoints that may count, newest first.

    `is_over`: its log says that it came to its end; `has_left`: its process is known to have left by itself.  With
    PLUMED only the checkpoint counts with which mdrun left by itself: PLUMED's files fit no other.
    """

    def __init__(self, task: Task, folder: Path, simulation: Simulation, log: Log, *, has_left: bool) -> None:
        self.folder, self.simulation, self.is_over = folder, simulation, log.has_finished
        # At the beginning of the run a checkpoint of step 0 counts too.
        self.begun = _step_of(task.origin, simulation.replica) if task.origin else -1
        inputs = inputs_of(task.run, simulation.base)
        self._others = Others(folder, task.origin, inputs, are_state=has_plumed(task.run))
        found = whole_checkpoints(folder)
        self.cpts = found[: int(self.is_over and has_left)] if self._others.are_state else found

    def move(self, cpt: Cpt, earlier: Cpt | None, newest_draft: Path, earlier_draft: Path) -> None:
        """Rename the files, so mdrun must be gone; the pieces go to the earlier draft where there is one."""
        names, replica = own_names(cpt, self.folder), self.simulation.replica
        first = newest_draft
        if earlier is not None:
            first, counted = earlier_draft, [output.name for output in earlier.outputs]
            move_state(earlier, self.folder, earlier_draft, counted, replica=replica)
            names = [name for name in names if name not in counted]
        move_state(cpt, self.folder, newest_draft, names, replica=replica)
        self._others.write(first, own_names(cpt, self.folder), replica)

    def copy(self, cpt: Cpt, draft: Path, *, is_final: bool) -> None:
        """Copy the files, of each piece what belongs to the checkpoint: mdrun may still live somewhere.

        Whole pieces if the simulation is over.  Raise CheckpointError if one is not what the checkpoint counts.
        """
        names, replica = own_names(cpt, self.folder), self.simulation.replica
        verify_outputs(cpt, self.folder)
        parts, counted = _new_draft(cpt, draft, replica)
        for name in names:
            size = (self.folder / name).stat().st_size
            copy_head(self.folder / name, parts / name, size if is_final else counted.get(name, size))
        copied = cpt_of(draft, replica)
        shutil.copyfile(cpt.path, copied)
        if read_cpt(copied).step != cpt.step:
            raise CheckpointError(f"{cpt.path}: changed while it was copied; its mdrun is alive")
        self._others.write(draft, names, replica)


def move_state(cpt: Cpt, folder: Path, draft: Path, names: Sequence[str], *, replica: str = ALONE) -> None:
    """Make the draft of a checkpoint by renames, so mdrun must be gone.

    Pieces that are not among `names` lie next to the checkpoint before; this checkpoint counts more bytes of them.
    """
    parts, _ = _new_draft(cpt, draft, replica)
    for name in names:
        os.rename(folder / name, parts / name)
    os.rename(cpt.path, cpt_of(draft, replica))


def undo_move(draft: Path, folder: Path, replicas: Sequence[str]) -> None:
    """Put back what a killed attempt had moved to a draft but not published."""
    if not draft.is_dir():
        return
    for replica in replicas:
        parts, cpt, own = draft / PARTS / replica, cpt_of(draft, replica), folder / replica
        for path in parts.iterdir() if parts.is_dir() else ():
            if ".part" in path.name:  # all else is a copy
                os.rename(path, own / path.name)
        if cpt.exists():
            os.rename(cpt, own / (CPT if not (own / CPT).exists() else f"{STEM}_{draft.name}.cpt"))
    fs.remove_tree(draft)


def _new_draft(cpt: Cpt, draft: Path, replica: str) -> tuple[Path, dict[str, int]]:
    """Return the new folder for the pieces, and the bytes of each that the checkpoint counts, which are noted there."""
    parts, counted = draft / PARTS / replica, {output.name: output.size_bytes for output in cpt.outputs}
    parts.mkdir(parents=True)
    cpt_of(draft, replica).parent.mkdir(parents=True, exist_ok=True)
    write_offsets(parts, counted)
    return parts, counted
