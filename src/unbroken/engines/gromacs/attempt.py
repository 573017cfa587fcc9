"""Manage mdrun's folder in an attempt: put in what mdrun reads, and make drafts of checkpoints of what it left.

Each simulation of a run has a folder: mdrun's own, or one below it for each replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.gromacs.command import CPT, has_plumed, has_replicas, inputs_of
from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.others import Moment, OtherFile, Others, write_others
from unbroken.engines.gromacs.parts import copy_state, cpt_of, move_state, own_names, step_of, whole_checkpoints
from unbroken.engines.gromacs.simulation import EXTENDED_TPR, Simulation
from unbroken.engines.gromacs.tables import counted_bytes
from unbroken.errors import CheckpointError
from unbroken.system.copying import copy_head

# In the folder of each replica, a link to the checkpoint from which it resumes.
ORIGIN_CPT = "origin.cpt"


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
    done = max(step_of(task.origin, each.replica) for each in simulations) if task.origin else None
    tprs = [_fill_one(task, each, folder / each.replica, done) for each in simulations]
    if not has_replicas(task.run):
        return tprs[0], cpts[0] if cpts else None
    # mdrun finds a file in the folder of each replica by a name that all of them share.
    for name, targets in ((EXTENDED_TPR, tprs), (ORIGIN_CPT, cpts)):
        for each, target in zip(simulations, targets, strict=False):
            if (shown := folder / each.replica / name).resolve() != target.resolve():
                shown.symlink_to(target.resolve())
    return Path(EXTENDED_TPR), Path(ORIGIN_CPT) if cpts else None


def _fill_one(task: Task, simulation: Simulation, folder: Path, done: int | None) -> Path:
    """Fill the folder of one simulation, and return its tpr.

    mdrun finds the run's `inputs` there as links; PLUMED may continue in a file that it reads, so it gets copies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tpr = simulation.tpr_to_run(folder, done)
    inputs, are_state = inputs_of(task.run, simulation.base), has_plumed(task.run)
    for name, path in inputs.items():
        if are_state and path.is_file():
            copy_head(path, folder / name, path.stat().st_size)
        else:
            (folder / name).symlink_to(path)
    Others(folder, task.origin, inputs, are_state=are_state).put_back()
    return tpr


# --- when it is gone ---


class Leaving:
    """Hold what mdrun left of one simulation: its complete checkpoints, newest first, and the files cut at each.

    `is_over`: its log says that it came to its end; `has_left`: its process is known to have left by itself.
    """

    def __init__(self, task: Task, folder: Path, simulation: Simulation, log: Log, *, has_left: bool) -> None:
        self.folder, self.log, self.simulation = folder, log, simulation
        self.is_over, self._has_left = log.has_finished, has_left
        self.cpts = whole_checkpoints(folder)
        # At the beginning of the run a checkpoint of step 0 counts too.
        self.begun = step_of(task.origin, simulation.replica) if task.origin else -1
        self._are_state = has_plumed(task.run)
        inputs = inputs_of(task.run, simulation.base)
        self._others = Others(folder, task.origin, inputs, are_state=self._are_state)
        self.refused: dict[int, str] = {}

    def is_usable(self, cpt: Cpt) -> bool:
        """Return False, and note why, if what a run needs to resume from a checkpoint cannot be cut there."""
        try:
            self._counted(cpt)
            self._other_files(cpt)
        except CheckpointError as error:
            self.refused[cpt.step] = str(error)
        return cpt.step not in self.refused

    def move(self, cpt: Cpt, earlier: Cpt | None, newest_draft: Path, earlier_draft: Path) -> None:
        """Rename the files, so mdrun must be gone; the pieces go to the earlier draft where there is one."""
        folder, moved = self.folder, set[str]()
        saves = [(earlier, earlier_draft)] if earlier is not None else []
        # All of it is counted before a piece is moved away.
        counted = [
            (each, draft, own_names(each, folder), self._other_files(each), self._counted(each))
            for each, draft in [*saves, (cpt, newest_draft)]
        ]
        for each, draft, own, others, sizes in counted:
            names = [name for name in own if name not in moved and (each is cpt or not name.endswith(".gro"))]
            move_state(each, folder, draft, names, sizes, replica=self.simulation.replica)
            if self._are_state or not moved:
                self._write_others(others, draft)
            moved.update(names)

    def copy(self, cpt: Cpt, draft: Path, *, is_final: bool) -> None:
        """Copy the files as far as they count: mdrun may still live somewhere."""
        others, counted = self._other_files(cpt), self._counted(cpt)
        copy_state(cpt, self.folder, draft, counted, is_final=is_final, replica=self.simulation.replica)
        self._write_others(others, draft)

    def _counted(self, cpt: Cpt) -> Mapping[str, int]:
        """Return the table bytes that mdrun's checkpoint does not count; raise CheckpointError if rows are missing."""
        return counted_bytes(cpt, self.folder, self.simulation.known_tpr, self._first_step)

    def _other_files(self, cpt: Cpt) -> list[OtherFile]:
        """Return the other files as they were at a checkpoint; raise CheckpointError if one cannot be cut there."""
        begin_ps, end = self.simulation.known_tpr.time_ps(self._first_step), self.simulation.end_step
        is_final = self.is_over and end is not None and cpt.step >= end
        is_last = self.is_over and cpt.path.name == CPT
        moment = Moment(cpt.step, begin_ps, cpt.time_ps, is_last, self._has_left, is_final)
        return self._others.at(moment, own_names(cpt, self.folder))

    def _write_others(self, files: Sequence[OtherFile], draft: Path) -> None:
        write_others(files, self.folder, draft, are_state=self._are_state, replica=self.simulation.replica)

    @property
    def _first_step(self) -> int:
        return self.simulation.known_tpr.first_step if self.begun < 0 else self.begun
