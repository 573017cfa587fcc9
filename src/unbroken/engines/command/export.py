"""Export a folder in which the user's program resumes by itself: inputs, restart files, outputs, its `resume`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.command.folder import first_file
from unbroken.engines.command.placeholders import filled, filled_template, values_of
from unbroken.engines.exports import write_script
from unbroken.engines.files.content import is_as_listed
from unbroken.engines.files.outputs import REWRITTEN, read_outputs
from unbroken.engines.files.results import fill_tables
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import restart_files
from unbroken.engines.files.workspace import put_state_back
from unbroken.program.contract import AttemptFolder
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import RunSpec
from unbroken.system.copying import copy_head

# The tables lie here: many programs write over what they find under that name when they resume.
SO_FAR = "so-far"
# For a program that receives how long it may run, and then has no limit.
_YEAR_SECONDS = 365 * 86400


def export_files(run: RunSpec, program: Program, base: Path, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Fill the folder; return lines about it."""
    values = _values(run, program, base, checkpoint, folder)
    for name in program.inputs:
        source = base / name
        target = folder / Path(name).name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    for name in program.templates:
        (folder / Path(name).name).write_text(filled_template((base / name).read_text(), values))
    put_state_back(checkpoint, {name: name for name in restart_files(checkpoint)}, folder)
    lines = [
        "resume.sh starts the program in this folder, which may be moved; a time limit in it is a year",
        *_put_outputs(run, base, checkpoint, folder),
    ]
    if program.outputs:
        (folder / SO_FAR).mkdir()
        tables = {output.name: output.record for output in program.outputs}
        fill_tables(checkpoint, RunFolder(run.name, base).root, folder / SO_FAR, tables)
        names = ", ".join(output.name for output in program.outputs)
        lines.append(f"{SO_FAR}/ has {names} up to the checkpoint; the program writes its own, which begin there")
    words = [filled(word, values) for word in program.resume]
    environment = {"OMP_NUM_THREADS": str(run.resources.threads)}
    environment |= {name: filled(text, values) for name, text in program.environment.items()}
    write_script(folder, run, words, environment)
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


def _values(run: RunSpec, program: Program, base: Path, checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """Return the values of the placeholders: names in the folder itself."""
    state = first_file(checkpoint, program).relative_to(checkpoint.folder).as_posix()
    end_unix = time.time() + _YEAR_SECONDS
    task = Task(run, checkpoint.passport.segment + 1, checkpoint, AttemptFolder(folder), end_unix)
    own = {"checkpoint": ".", "file": state, "save": "save", "stop": program.stop_file or "stop"}
    return values_of(task, program, base, Path(), None) | own
