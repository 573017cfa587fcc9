"""What a segment leaves: mdrun's newest whole checkpoint, and beside it the pieces of the result that belong to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.gromacs.command import CPT, has_plumed, words_of
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.outputs import STEM
from unbroken.engines.gromacs.rotation import logs_of
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.run import Run
from unbroken.system import fs
from unbroken.system.copying import copy_head

# For each piece, how many of its bytes were written before the checkpoint: what follows is written again by the next.
OFFSETS = "offsets.json"


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


def move_state(cpt: Cpt, folder: Path, draft: Path, names: Sequence[str], counted: Mapping[str, int] = {}) -> None:
    """Makes the folder `draft` of a checkpoint and those of its pieces; they are renamed, so mdrun must be gone.

    Pieces that are not among `names` lie beside the checkpoint before, of which this one counts more bytes.
    """
    parts = _new_draft(cpt, draft, counted)
    for name in names:
        os.rename(folder / name, parts / name)
    os.rename(cpt.path, draft / CPT)


def undo_move(draft: Path, folder: Path) -> None:
    """Puts back what a killed attempt had moved to a draft but not published."""
    if not draft.is_dir():
        return
    for path in (draft / PARTS).iterdir():
        if ".part" in path.name:  # all else is a copy
            os.rename(path, folder / path.name)
    if (draft / CPT).exists():
        os.rename(draft / CPT, folder / (CPT if not (folder / CPT).exists() else f"{STEM}_{draft.name}.cpt"))
    fs.remove_tree(draft)


def copy_state(cpt: Cpt, folder: Path, draft: Path, counted: Mapping[str, int], *, is_final: bool) -> None:
    """The same by copies, of each piece only what belongs to the checkpoint: mdrun may still live somewhere.

    Whole pieces if the simulation is over.  CheckpointError if one is not what the checkpoint was written with.
    """
    verify_outputs(cpt, folder)
    parts = _new_draft(cpt, draft, counted)
    offsets = offsets_of(parts)
    for name in own_names(cpt, folder):
        is_whole = is_final or name not in offsets
        copy_head(folder / name, parts / name, (folder / name).stat().st_size if is_whole else offsets[name])
    shutil.copyfile(cpt.path, draft / CPT)
    if read_cpt(draft / CPT).step != cpt.step:
        raise CheckpointError(f"{cpt.path}: changed while it was copied; its mdrun is alive")


def _new_draft(cpt: Cpt, draft: Path, counted: Mapping[str, int]) -> Path:
    """`counted` are the bytes of tables that the checkpoint does not count, or counts too many of."""
    parts = draft / PARTS
    parts.mkdir(parents=True)
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
