"""A folder in which the user's program goes on by itself: its inputs, restart files and outputs, and its `resume`."""

from __future__ import annotations

import shutil
from pathlib import Path

from unbroken.engines.command.placeholders import filled, filled_template, named, remaining
from unbroken.engines.export import write_script
from unbroken.engines.files.content import is_as_listed
from unbroken.engines.files.outputs import REWRITTEN, read_outputs
from unbroken.engines.files.results import fill_tables
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import matching, restart_files
from unbroken.engines.files.workspace import put_state_back
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.system.copying import copy_head

# The outputs: many programs write over what they find under that name when they go on.
SO_FAR = "so-far"
# For a program that is told how long it may work, and then has no limit.
_YEAR_SECONDS = 365 * 86400


def exported(run: Run, program: Program, base: Path, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Fills the folder; what to know of it, in lines."""
    values = _values(run, program, base, checkpoint)
    for name in program.inputs:
        source = base / name
        target = folder / Path(name).name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    for name in program.templates:
        (folder / Path(name).name).write_text(filled_template((base / name).read_text(), values))
    put_state_back(checkpoint, {name: name for name in restart_files(checkpoint)}, folder)
    lines = _put_outputs(run, base, checkpoint, folder)
    if program.outputs:
        (folder / SO_FAR).mkdir()
        tables = {output.name: output.record for output in program.outputs}
        fill_tables(checkpoint, RunFolder(run.name, base).root, folder / SO_FAR, tables)
    words = [filled(word, values) for word in program.resume]
    environment = {"OMP_NUM_THREADS": str(run.threads)}
    environment |= {name: filled(text, values) for name, text in program.environment.items()}
    write_script(folder, run, words, environment)
    lines.insert(0, "resume.sh starts the program in this folder, which may be moved")
    if program.outputs:
        names = ", ".join(output.name for output in program.outputs)
        lines.append(f"{SO_FAR}/ has {names} up to the checkpoint; the program writes its own, which begin there")
    if {"seconds", "minutes", "hours", "hms"} & _named(program):
        lines.append("where the program is told how long it may work, a year stands; edit resume.sh")
    return lines


def _put_outputs(run: Run, base: Path, checkpoint: Checkpoint, folder: Path) -> list[str]:
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


def _values(run: Run, program: Program, base: Path, checkpoint: Checkpoint) -> dict[str, str]:
    """What stands for the placeholders: names in the folder itself."""
    names = set(restart_files(checkpoint))
    found = [name for name in matching(checkpoint.folder, program.files[:1]) if name in names]
    if not found:
        raise CheckpointError(f"{checkpoint.folder}: no file in it matches {program.files[0]}; nothing was exported")
    goal = run.goal
    return {
        "checkpoint": ".",
        "file": found[0],
        "progress": f"{checkpoint.passport.progress.done:.15g}",
        "save": "save",
        "stop": program.stop_file or "stop",
        "base": str(base.resolve()),
        "seconds": str(_YEAR_SECONDS),
        "minutes": f"{_YEAR_SECONDS / 60:.6f}",
        "hours": f"{_YEAR_SECONDS / 3600:.8f}",
        "hms": f"{_YEAR_SECONDS // 3600}:00:00",
        "threads": str(run.threads),
        "tasks": str(run.tasks),
        "run": run.name,
        "segment": str(checkpoint.passport.segment + 1),
        "goal": "" if goal is None else f"{goal:.15g}",
        "remaining": "" if goal is None else f"{remaining(goal, checkpoint):.15g}",
    }


def _named(program: Program) -> set[str]:
    """The placeholders of the line that resumes it."""
    return {name for word in program.resume for name in named(word)}
