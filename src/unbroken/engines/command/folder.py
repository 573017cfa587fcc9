"""Provide the program's own folder: it is carried from attempt to attempt, with the run's inputs in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from unbroken.engines.command.placeholders import filled_template
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import matching, restart_files
from unbroken.engines.files.workspace import Workspace, put_state_back
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs


def prepare(
    workspace: Workspace,
    program: Program,
    base: Path,
    values: Mapping[str, str],
    origin: Checkpoint | None,
    is_output: Callable[[str], bool],
) -> OutputList:
    """Make the folder what it was at the checkpoint: outputs, then inputs as links, templates, and restart files.

    Return the outputs that were put back.
    """
    workspace.take()
    restored = workspace.restore(origin, read_outputs(origin), is_output)
    folder = workspace.folder
    for name in program.inputs:
        _show((base / name).resolve(), folder / Path(name).name)
    for name in program.templates:
        (folder / Path(name).name).write_text(filled_template((base / name).read_text(), values))
    if origin is not None and program.puts_back and not program.keeps_the_contract:
        put_state_back(origin, {name: program.put_back_as.get(name, name) for name in restart_files(origin)}, folder)
    return restored


def _show(path: Path, place: Path) -> None:
    """Link an input; of a folder each file, so that what the program writes there does not go to the user's folder."""
    if not path.is_dir():
        if os.path.lexists(place):
            place.unlink()
        place.symlink_to(path)
        return
    place.mkdir(parents=True, exist_ok=True)
    for below in fs.tree_files(path):
        if not os.path.lexists(place / below):  # the program may have written one in its place
            (place / below).parent.mkdir(parents=True, exist_ok=True)
            (place / below).symlink_to(path / below)


def first_file(origin: Checkpoint, program: Program) -> Path:
    """Return the file that the first of `files` names; raise CheckpointError if the checkpoint has none."""
    found = [name for name in matching(origin.folder, program.files[:1]) if name in set(restart_files(origin))]
    if not found:
        raise CheckpointError(f"{origin.folder}: no file in it matches {program.files[0]}")
    return origin.folder / found[0]
