"""The checkpoint that an attempt goes on from: put back into the program's folder, if it is as far as it says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.placeholders import filled_template
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.reading import Reading, reading_of, reading_of_copy
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import glob_pattern, is_progress_file_kept, matches, matching, restart_files
from unbroken.engines.files.workspace import Workspace, put_state_back
from unbroken.errors import CheckpointError, SegmentError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs

COUNTED = "checkpoints"


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
    """Return the file that the first of `files` names; CheckpointError if the checkpoint has none."""
    found = [name for name in matching(origin.folder, program.files[:1]) if name in set(restart_files(origin))]
    if not found:
        raise CheckpointError(f"{origin.folder}: no file in it matches {program.files[0]}; nothing was started")
    return origin.folder / found[0]


def confirm_origin(task: Task, program: Program) -> None:
    """CheckpointError if the restart files of the checkpoint say another number than when it was made.

    Its outputs were cut at that number.  Nothing is read where the number stood outside of the restart files.
    """
    origin = task.origin
    if origin is None or program.keeps_the_contract or origin.passport.progress.unit == COUNTED:
        return
    reading, said = _read_again(task, program, origin), origin.passport.progress
    if reading.done is None or reading.done == said.done:
        return
    raise CheckpointError(
        f"runs.{task.run.name}: checkpoint {origin.name} was made as {said.done:.10g} {said.unit}, but now "
        f"{reading.how}; its outputs are cut at {said.done:.10g}, so records would be missing, or there twice; type "
        f"what read {said.done:.10g}, or set the old results aside and begin anew: unbroken restart {task.run.name}"
    )


def _read_again(task: Task, program: Program, origin: Checkpoint) -> Reading:
    names, unknown = restart_files(origin), Reading(None, "")
    if program.has_numbered_files:
        patterns = [glob_pattern(name) for name in program.files if "{progress}" in name]
        found = [match[1] for pattern in patterns for name in names if (match := pattern.fullmatch(name))]
        return reading_of(task.run, program, origin.folder, max(found, key=float)) if found else unknown
    if program.progress_command and program.saved_by is not SavedBy.EXIT and names:
        try:
            return reading_of_copy(task.run, program, origin.folder, names, task.attempt_folder.root / "origin")
        except (CheckpointError, SegmentError):
            return unknown  # at the program's end it may see more than the restart files
    has_file = any(matches([program.progress_file], name) for name in names)
    if not program.progress_file or not is_progress_file_kept(program) or not has_file:
        return unknown
    return reading_of(task.run, program, origin.folder, "", among=names)
