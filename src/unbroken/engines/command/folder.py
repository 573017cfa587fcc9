"""The folder of its own in which the program runs: made anew for each attempt from the inputs and the checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from unbroken.engines.command.placeholders import filled_template
from unbroken.engines.command.settings import Program
from unbroken.engines.command.states import matching
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import PARTS, Checkpoint

FINAL = "final"


def prepare(folder: Path, program: Program, base: Path, values: Mapping[str, str], origin: Checkpoint | None) -> None:
    """Fills the folder: inputs as links and templates filled, by their last names; then the restart files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in program.inputs:
        path = (base / name).resolve()
        (folder / path.name).symlink_to(path)
    for name in program.templates:
        text = (base / name).read_text()
        (folder / Path(name).name).write_text(filled_template(text, values))
    if origin is not None and program.puts_back and not program.keeps_the_contract:
        put_back(origin, folder)


def put_back(origin: Checkpoint, folder: Path) -> None:
    """Copies the restart files to where the program left them; it may write over them."""
    for name in restart_files(origin):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin.folder / name, folder / name)


def restart_files(checkpoint: Checkpoint) -> list[str]:
    """The names of a checkpoint's own files: neither pieces of the outputs nor results."""
    return [name for name in checkpoint.passport.files if name.split("/")[0] not in (PARTS, FINAL)]


def first_file(origin: Checkpoint, program: Program) -> Path:
    """The file that the first of `files` names; CheckpointError if the checkpoint has none."""
    found = [name for name in matching(origin.folder, program.files[:1]) if name in set(restart_files(origin))]
    if not found:
        raise CheckpointError(f"{origin.folder}: no file in it matches {program.files[0]}; nothing was started")
    return origin.folder / found[0]
