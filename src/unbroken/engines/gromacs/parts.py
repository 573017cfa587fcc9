"""What a segment leaves: mdrun's newest whole checkpoint, and beside it the pieces of the result that belong to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.gromacs.command import CPT, has_plumed
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.outputs import STEM
from unbroken.engines.gromacs.rotation import logs_of
from unbroken.engines.gromacs.settings import ALONE, words_of
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.runs.run import Run
from unbroken.system import fs
from unbroken.system.copying import copy_head

# For each piece, how many of its bytes were written before the checkpoint: what follows is written again by the next.
OFFSETS = "offsets.json"
# A checkpoint of replicas has a folder for the checkpoint of each, and one below `parts/` for its pieces.
REPLICAS = "replicas"
# The time of a replica's own checkpoint; the passport has that of the one that is least far.
_MOMENT = "moment.json"


def cpt_of(folder: Path, replica: str = ALONE) -> Path:
    """Return where a checkpoint, or its draft, has mdrun's checkpoint of a simulation."""
    return folder / REPLICAS / replica / CPT if replica else folder / CPT


def parts_of(folder: Path, replica: str = ALONE) -> Path:
    """Return where a checkpoint, or its draft, has the pieces of a simulation."""
    return folder / PARTS / replica


def whole_checkpoints(folder: Path) -> list[Cpt]:
    """The checkpoints of mdrun in its folder that are whole, newest first.

    It writes a new one under another name and then renames twice, so a kill may leave any of these names.
    """
    found = []
    for path in folder.glob(f"{STEM}*.cpt"):
        try:
            found.append(read_cpt(path))
        except CheckpointError:
            continue
    return sorted(found, key=lambda cpt: (cpt.step, cpt.path.name == CPT), reverse=True)


def structure_of(cpt: Cpt) -> str:
    """The name of the structure that mdrun writes as its very last act."""
    return f"{STEM}.part{cpt.part:04d}.gro"


def offsets_of(parts: Path) -> dict[str, int]:
    """The bytes of each piece that belong to the checkpoint beside which it lies."""
    return {str(name): int(size) for name, size in json.loads((parts / OFFSETS).read_text()).items()}


def step_of(checkpoint: Checkpoint, replica: str = ALONE) -> int:
    """Return the step of a simulation at a checkpoint; CheckpointError if a replica has none there."""
    if replica == ALONE:
        return int(checkpoint.passport.progress.done)
    return read_cpt(cpt_of(checkpoint.folder, replica)).step


def own_time_ps(folder: Path, replica: str) -> float | None:
    """Return the time of a replica's own checkpoint, in ps; None of a simulation that is no replica."""
    return float(json.loads((parts_of(folder, replica) / _MOMENT).read_text())["time_ps"]) if replica else None


def move_state(
    cpt: Cpt,
    folder: Path,
    draft: Path,
    names: Sequence[str],
    counted: Mapping[str, int] = {},
    *,
    replica: str = ALONE,
) -> None:
    """Makes the folder `draft` of a checkpoint and those of its pieces; they are renamed, so mdrun must be gone.

    Pieces that are not among `names` lie beside the checkpoint before, of which this one counts more bytes.
    """
    parts = _new_draft(cpt, draft, counted, replica)
    for name in names:
        os.rename(folder / name, parts / name)
    os.rename(cpt.path, cpt_of(draft, replica))


def undo_move(draft: Path, folder: Path, replicas: Sequence[str] = (ALONE,)) -> None:
    """Puts back what a killed attempt had moved to a draft but not published."""
    if not draft.is_dir():
        return
    for replica in replicas:
        _undo_move(draft, folder / replica, replica)
    fs.remove_tree(draft)


def _undo_move(draft: Path, folder: Path, replica: str) -> None:
    parts, cpt = parts_of(draft, replica), cpt_of(draft, replica)
    for path in parts.iterdir() if parts.is_dir() else ():
        if ".part" in path.name:  # all else is a copy
            os.rename(path, folder / path.name)
    if cpt.exists():
        os.rename(cpt, folder / (CPT if not (folder / CPT).exists() else f"{STEM}_{draft.name}.cpt"))


def copy_state(
    cpt: Cpt, folder: Path, draft: Path, counted: Mapping[str, int], *, is_final: bool, replica: str = ALONE
) -> None:
    """The same by copies, of each piece only what belongs to the checkpoint: mdrun may still live somewhere.

    Whole pieces if the simulation is over.  CheckpointError if one is not what the checkpoint was written with.
    """
    verify_outputs(cpt, folder)
    parts = _new_draft(cpt, draft, counted, replica)
    offsets = offsets_of(parts)
    for name in own_names(cpt, folder):
        is_whole = is_final or name not in offsets
        copy_head(folder / name, parts / name, (folder / name).stat().st_size if is_whole else offsets[name])
    copied = cpt_of(draft, replica)
    shutil.copyfile(cpt.path, copied)
    if read_cpt(copied).step != cpt.step:
        raise CheckpointError(f"{cpt.path}: changed while it was copied; its mdrun is alive")


def _new_draft(cpt: Cpt, draft: Path, counted: Mapping[str, int], replica: str) -> Path:
    """`counted` are the bytes of tables that the checkpoint does not count, or counts too many of."""
    parts = parts_of(draft, replica)
    parts.mkdir(parents=True)
    cpt_of(draft, replica).parent.mkdir(parents=True, exist_ok=True)
    if replica:
        (parts / _MOMENT).write_text(json.dumps({"step": cpt.step, "time_ps": round(cpt.time_ps, 6)}) + "\n")
    write_offsets(parts, {**{output.name: output.size_bytes for output in cpt.outputs}, **counted})
    return parts


def write_offsets(parts: Path, sizes: Mapping[str, int]) -> None:
    """Notes the bytes of each piece that belong to the checkpoint, for `offsets_of`."""
    (parts / OFFSETS).write_text(json.dumps(dict(sizes)) + "\n")


def pieces_of(cpt: Cpt, folder: Path) -> list[str]:
    """The names of the pieces, and of the structure if mdrun came so far."""
    names = [output.name for output in cpt.outputs]
    return [*names, structure_of(cpt)] if (folder / structure_of(cpt)).exists() else names


def own_names(cpt: Cpt, folder: Path) -> list[str]:
    """Return the names of all files that mdrun itself writes in a part, the tables of its rotation among them."""
    names = pieces_of(cpt, folder)
    return [*names, *(name for name in logs_of(cpt, folder) if name not in names)]


def show_inputs(run: Run, base: Path, folder: Path) -> dict[str, Path]:
    """Let mdrun find the run's `inputs` in its folder by their last names, and return these.

    As links; PLUMED may continue in a file that it reads, so it gets copies.
    """
    found = inputs_of(run, base)
    for name, path in found.items():
        if has_plumed(run) and path.is_file():
            copy_head(path, folder / name, path.stat().st_size)
        else:
            (folder / name).symlink_to(path)
    return found


def inputs_of(run: Run, base: Path) -> dict[str, Path]:
    """Return the run's `inputs` by the names that mdrun finds them by."""
    paths = [(base / name).resolve() for name in words_of(run, "inputs")]
    return {path.name: path for path in paths}
