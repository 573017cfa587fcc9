"""A folder in which the user's program goes on by itself: its inputs, restart files and outputs, and its `resume`."""

from __future__ import annotations

import shutil
from pathlib import Path

from unbroken.engines.command.folder import put_back, restart_files
from unbroken.engines.command.joined_tables import join
from unbroken.engines.command.placeholders import filled, filled_template, named
from unbroken.engines.command.settings import Program
from unbroken.engines.command.states import matching
from unbroken.engines.export import write_script
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.run import Run

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
    put_back(checkpoint, folder)
    if program.outputs:
        (folder / SO_FAR).mkdir()
        join(checkpoint, program.outputs, folder / SO_FAR, program.outputs_with_gaps)
    words = [filled(word, values) for word in program.resume]
    environment = {"OMP_NUM_THREADS": str(run.threads)}
    environment |= {name: filled(text, values) for name, text in program.environment.items()}
    write_script(folder, run, words, environment)
    lines = ["resume.sh starts the program in this folder, which may be moved"]
    if program.outputs:
        names = ", ".join(output.name for output in program.outputs)
        lines.append(f"{SO_FAR}/ has {names} up to the checkpoint; the program writes its own, which begin there")
    if {"seconds", "minutes", "hours", "hms"} & _named(program):
        lines.append("where the program is told how long it may work, a year stands; edit resume.sh")
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
    }


def _named(program: Program) -> set[str]:
    """The placeholders of the line that resumes it."""
    return {name for word in program.resume for name in named(word)}
