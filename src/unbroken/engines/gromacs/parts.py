"""Collect a segment's files: mdrun's newest complete checkpoint, and next to it the pieces of the result so far."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE, CPT
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.outputs import STEM
from unbroken.engines.gromacs.tables import logs_of
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.system import fs
from unbroken.system.copying import copy_head

# For each piece, how many of its bytes were written before the checkpoint: what follows is written again by the next.
OFFSETS = "offsets.json"
# A checkpoint of replicas has a folder for the checkpoint of each, and one below `parts/` for its pieces.
REPLICAS = "replicas"


def cpt_of(folder: Path, replica: str = ALONE) -> Path:
    """Return where a checkpoint, or its draft, has mdrun's checkpoint of a simulation."""
    return folder / REPLICAS / replica / CPT if replica else folder / CPT


def parts_of(folder: Path, replica: str = ALONE) -> Path:
    """Return where a checkpoint, or its draft, has the pieces of a simulation."""
    return folder / PARTS / replica


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
    """Return the names of all files that mdrun itself wrote in a part: counted ones, structure, tables of rotation."""
    counted = [output.name for output in cpt.outputs]
    names = [*counted, *([structure_of(cpt)] if (folder / structure_of(cpt)).exists() else []), *logs_of(cpt, folder)]
    return list(dict.fromkeys(names))


def step_of(checkpoint: Checkpoint, replica: str = ALONE) -> int:
    """Return the step of a simulation at a checkpoint; raise CheckpointError if a replica has none there."""
    return read_cpt(cpt_of(checkpoint.folder, replica)).step if replica else int(checkpoint.passport.progress.done)


def offsets_of(parts: Path) -> dict[str, int]:
    """Return the bytes of each piece that belong to the checkpoint next to it."""
    return {str(name): int(size) for name, size in json.loads((parts / OFFSETS).read_text()).items()}


def write_offsets(parts: Path, sizes: Mapping[str, int]) -> None:
    """Note the bytes of each piece that belong to the checkpoint, for `offsets_of`."""
    (parts / OFFSETS).write_text(json.dumps(dict(sizes)) + "\n")


def move_state(
    cpt: Cpt,
    folder: Path,
    draft: Path,
    names: Sequence[str],
    counted: Mapping[str, int] = {},
    *,
    replica: str = ALONE,
) -> None:
    """Make the draft of a checkpoint by renames, so mdrun must be gone.

    Pieces that are not among `names` lie next to the checkpoint before; this checkpoint counts more bytes of them.
    """
    parts = _new_draft(cpt, draft, counted, replica)
    for name in names:
        os.rename(folder / name, parts / name)
    os.rename(cpt.path, cpt_of(draft, replica))


def undo_move(draft: Path, folder: Path, replicas: Sequence[str]) -> None:
    """Put back what a killed attempt had moved to a draft but not published."""
    if not draft.is_dir():
        return
    for replica in replicas:
        parts, cpt, own = parts_of(draft, replica), cpt_of(draft, replica), folder / replica
        for path in parts.iterdir() if parts.is_dir() else ():
            if ".part" in path.name:  # all else is a copy
                os.rename(path, own / path.name)
        if cpt.exists():
            os.rename(cpt, own / (CPT if not (own / CPT).exists() else f"{STEM}_{draft.name}.cpt"))
    fs.remove_tree(draft)


def copy_state(
    cpt: Cpt, folder: Path, draft: Path, counted: Mapping[str, int], *, is_final: bool, replica: str = ALONE
) -> None:
    """Make the draft by copies, of each piece what belongs to the checkpoint: mdrun may still live somewhere.

    Whole pieces if the simulation is over.  Raise CheckpointError if one is not what the checkpoint was written with.
    """
    verify_outputs(cpt, folder)
    parts = _new_draft(cpt, draft, counted, replica)
    offsets = {} if is_final else offsets_of(parts)
    for name in own_names(cpt, folder):
        size = offsets.get(name)
        copy_head(folder / name, parts / name, (folder / name).stat().st_size if size is None else size)
    copied = cpt_of(draft, replica)
    shutil.copyfile(cpt.path, copied)
    if read_cpt(copied).step != cpt.step:
        raise CheckpointError(f"{cpt.path}: changed while it was copied; its mdrun is alive")


def _new_draft(cpt: Cpt, draft: Path, counted: Mapping[str, int], replica: str) -> Path:
    """Return the new folder for the pieces; `counted` are bytes that the checkpoint does not count, or too many of."""
    parts = parts_of(draft, replica)
    parts.mkdir(parents=True)
    cpt_of(draft, replica).parent.mkdir(parents=True, exist_ok=True)
    write_offsets(parts, {**{output.name: output.size_bytes for output in cpt.outputs}, **counted})
    return parts
