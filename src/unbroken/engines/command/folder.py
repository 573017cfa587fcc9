"""Provide the folder in which the program runs: for an attempt, or exported, to resume without unbroken."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.edits import edit_inputs
from unbroken.engines.command.placeholders import filled, filled_template, values_of
from unbroken.engines.exports import write_script
from unbroken.engines.files.content import is_as_listed
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.outputs import REWRITTEN, OutputList, read_outputs
from unbroken.engines.files.results import fill_tables
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import matching, restart_files
from unbroken.engines.files.workspace import Workspace, put_path_back, put_state_back
from unbroken.errors import CheckpointError
from unbroken.program.contract import AttemptFolder
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec
from unbroken.system import fs
from unbroken.system.copying import copy_head

# In the folder of an attempt.
OWN_FOLDER = "program"
# The tables lie here: many programs write over what they find under that name when they resume.
SO_FAR = "so-far"
# For a program that receives how long it may run, and then has no limit.
_YEAR_SECONDS = 365 * 86400


def prepare(
    workspace: Workspace, program: Program, base: Path, values: Mapping[str, str], origin: Checkpoint | None
) -> OutputList:
    """Make the folder what it was at the checkpoint: outputs, then inputs as links, templates, and restart files.

    Return the outputs that were put back.
    """
    workspace.take()
    kinds, listed = FileKinds(program), read_outputs(origin)
    older = {name for name in listed.files if program.keep_older and kinds.is_state(name)}
    purged = {name for name in older if not (workspace.folder / name).exists()}  # by the program, as it was asked to
    listed = replace(listed, files={name: entry for name, entry in listed.files.items() if name not in purged})
    restored = workspace.restore(origin, listed, lambda name: kinds.is_output(name) or name in older)
    for name in program.inputs:
        _show((base / name).resolve(), workspace.folder / Path(name).name)
    _fill_templates(program, base, values, workspace.folder)
    edit_inputs(program, base, values, workspace.folder, is_resumed=origin is not None)
    if origin is not None and not program.keeps_the_contract:
        names = {name: program.put_back_as.get(name, name) for name in restart_files(origin)}
        put_state_back(origin, names, workspace.folder)
        put_path_back(matching(workspace.folder, program.path_files), workspace.folder, workspace.folder)
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


def _fill_templates(program: Program, base: Path, values: Mapping[str, str], folder: Path) -> None:
    for name in program.templates:
        (folder / Path(name).name).write_text(filled_template((base / name).read_text(), values))


def first_file(origin: Checkpoint, program: Program) -> Path:
    """Return the file that the first of `files` names; raise CheckpointError if the checkpoint has none."""
    found = [name for name in matching(origin.folder, program.files[:1]) if name in set(restart_files(origin))]
    if not found:
        raise CheckpointError(f"{origin.folder}: no file in it matches {program.files[0]}")
    return origin.folder / found[0]


def last_name(origin: Checkpoint | None, program: Program) -> str:
    """Return the last restart file of a checkpoint, of `x-2-9` and `x-10-1` the second, as the program sees it."""
    names = restart_files(origin) if origin else []
    last = max(names, key=_numbers_in, default="")
    return program.put_back_as.get(last, last)


def _numbers_in(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names with numbers as a reader would."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


# --- to resume without unbroken ---


def export_files(run: RunSpec, program: Program, base: Path, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Fill the folder with inputs, restart files, outputs, and the program's `resume`; return lines about it."""
    values = _exported_values(run, program, base, checkpoint, folder)
    for name in program.inputs:
        source, target = base / name, folder / Path(name).name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    _fill_templates(program, base, values, folder)
    edit_inputs(program, base, values, folder, is_resumed=True)
    put_state_back(checkpoint, {name: name for name in restart_files(checkpoint)}, folder)
    where_noted = matching(folder, program.path_files)
    put_path_back(where_noted, RunFolder(run.name, base).work / "0" / OWN_FOLDER, folder)
    moves = "which must not be moved, as the program notes its path" if where_noted else "which may be moved"
    lines = [
        f"resume.sh starts the program in this folder, {moves}; a time limit in it is a year",
        *_put_outputs(run, base, checkpoint, folder),
    ]
    if program.outputs:
        (folder / SO_FAR).mkdir()
        tables = {output.name: output.record for output in program.outputs}
        fill_tables(checkpoint, RunFolder(run.name, base).root, folder / SO_FAR, tables)
        lines.append(f"{SO_FAR}/ has {', '.join(tables)} up to the checkpoint; the program writes its own from there")
    environment = {"OMP_NUM_THREADS": str(run.resources.threads)}
    environment |= {name: filled(text, values) for name, text in program.environment.items()}
    write_script(folder, run, [filled(word, values) for word in program.resume], environment)
    return lines


def _put_outputs(run: RunSpec, base: Path, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Copy each output up to the length that belongs to the checkpoint; return a line for those that are not there."""
    source, listed, lines = RunFolder(run.name, base).output, read_outputs(checkpoint), []
    for name, entry in listed.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if entry.is_rewritten:
            shutil.copyfile(checkpoint.folder / REWRITTEN / name, folder / name)
        elif entry.resume_bytes < 0 or entry.is_continued is False:
            continue  # the program begins it again
        elif is_as_listed(source / name, entry, listed.algorithm):
            copy_head(source / name, folder / name, entry.resume_bytes)
        else:
            lines.append(f"{name} is not in {source} as the checkpoint lists it; a job may be at work in it")
    return lines


def _exported_values(
    run: RunSpec, program: Program, base: Path, checkpoint: Checkpoint, folder: Path
) -> dict[str, str]:
    """Return the values of the placeholders: names in the folder itself."""
    state = first_file(checkpoint, program).relative_to(checkpoint.folder).as_posix()
    end_unix = time.time() + _YEAR_SECONDS
    task = Task(run, checkpoint.passport.segment + 1, checkpoint, AttemptFolder(folder), end_unix)
    own = {
        "checkpoint": ".",
        "file": state,
        "last": last_name(checkpoint, program),
        "save": "save",
        "stop": program.stop_file or "stop",
    }
    return values_of(task, program, base, stop=Path(), state=None) | own
