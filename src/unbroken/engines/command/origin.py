"""Whether the checkpoint that an attempt goes on from is as far as it says, by the config of today."""

from __future__ import annotations

import shutil

from unbroken.engines.base import Task
from unbroken.engines.files.reading import Reading, reading_of
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import glob_pattern, is_progress_file_kept, restart_files
from unbroken.errors import CheckpointError, SegmentError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs

COUNTED = "checkpoints"


def confirm_origin(task: Task, program: Program) -> None:
    """CheckpointError if the restart files of the checkpoint say another number than when it was made.

    Its outputs were cut at that number.  Nothing is read where the number stood outside of the restart files.
    """
    origin = task.origin
    if origin is None or program.keeps_the_contract or origin.passport.progress.unit == COUNTED:
        return
    reading, said = _read_again(task, program, origin), origin.passport.progress
    if reading is None or reading.done is None or reading.done == said.done:
        return
    raise CheckpointError(
        f"checkpoint {origin.name} was made as {said.done:.10g} {said.unit}, but now "
        f"{reading.how}; its outputs are cut at {said.done:.10g}, so records would be missing, or there twice; type "
        f"what read {said.done:.10g}, or set the old results aside and begin anew: unbroken restart {task.run.name}",
        run=task.run.name,
    )


def _read_again(task: Task, program: Program, origin: Checkpoint) -> Reading | None:
    if program.has_numbered_files:
        return _numbered(program, origin)
    if program.progress_command:
        return _asked_again(task, program, origin) if program.saved_by is not SavedBy.EXIT else None
    names = restart_files(origin) if program.progress_file and is_progress_file_kept(program) else []
    pattern = glob_pattern(program.progress_file)
    if not any(pattern.fullmatch(name) for name in names):
        return None
    return reading_of(task.run, program, origin.folder, "", among=names)


def _numbered(program: Program, origin: Checkpoint) -> Reading | None:
    patterns = [glob_pattern(name) for name in program.files if "{progress}" in name]
    matches = [pattern.fullmatch(name) for pattern in patterns for name in restart_files(origin)]
    numbers = [match[1] for match in matches if match]
    number = max(numbers, key=float, default=None)
    return None if number is None else Reading(float(number), f"the names of its `files` have {number}")


def _asked_again(task: Task, program: Program, origin: Checkpoint) -> Reading | None:
    """What progress_command says of a copy, because it may write beside the files that it reads."""
    draft = task.attempt_folder.root / "origin"
    try:
        for name in restart_files(origin):
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin.folder / name, draft / name)
        return reading_of(task.run, program, draft, "") if draft.is_dir() else None
    except (CheckpointError, SegmentError):
        return None  # at the program's end it may see more than the restart files
    finally:
        fs.remove_tree(draft)
