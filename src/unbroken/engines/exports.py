"""Export a checkpoint to a folder from which its program resumes without unbroken: what engines share."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.store.checkpoint import FILE_NAME, PARTS, Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.run import RunSpec
from unbroken.system import fs

SCRIPT = "resume.sh"
# As a training by hand calls its run (unbroken.training.core.run_directory).
BY_HAND = "training"
_LIBRARIES = {"jax", "keras", "tensorflow", "torch"}
_FAR_UNIX = 4102444800.0  # 2100-01-01, for a program without a limit


def write_script(
    folder: Path,
    run: RunSpec,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    here: Mapping[str, str] = {},
    where: str = "",
) -> None:
    """Write `resume.sh`, which starts `command` in its own folder, or in `where`.

    The values of `here` are put between double quotes: `$here` in them is the folder of the script.
    """
    lines = [
        f"#!/bin/bash{' -l' if run.environment.modules else ''}",
        "set -eu",
        'here="$(cd "$(dirname "$0")" && pwd)"',
    ]
    lines += [f"export {name}={shlex.quote(text)}" for name, text in environment.items() if text]
    lines += [f'export {name}="{text}"' for name, text in here.items()]
    lines += [f"module load {shlex.join(run.environment.modules)}"] if run.environment.modules else []
    lines += [
        f"cd {shlex.quote(where)}" if where else 'cd "$here"',
        f"exec {shlex.join([*run.environment.enter, *command])}",
    ]
    path = folder / SCRIPT
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)


def export_contract(
    run: RunSpec, checkpoint: Checkpoint, command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> list[str]:
    """Copy the checkpoint of a program that keeps the contract; the script passes what unbroken would pass."""
    _copy(checkpoint, [*_own_files(checkpoint), FILE_NAME], folder / "checkpoint")
    (folder / "save").mkdir()
    here = {
        "UNBROKEN_RESUME": "$here/checkpoint",
        "UNBROKEN_SAVE": "$here/save",
        "UNBROKEN_STOP": "$here/stop",
        "UNBROKEN_PROGRESS": "$here/progress.json",
        "UNBROKEN_LIVE": "$here/live",
        "UNBROKEN_VERDICT": "$here/verdict.json",
    }
    told = {name: text for name, text in environment.items() if name not in (*here, "UNBROKEN_DEADLINE_FILE")}
    told["UNBROKEN_DEADLINE"] = f"{_FAR_UNIX:.3f}"
    write_script(folder, run, command, told, here=here)
    return [
        "resume.sh starts the program with UNBROKEN_RESUME; what it saves, its results too, goes into save/",
        "the program gets no time limit; to stop it, make a file named stop here",
    ]


def is_of_library(checkpoint: Checkpoint) -> bool:
    """Return True if `unbroken.training` made the checkpoint: it names the library that trains."""
    return not _LIBRARIES.isdisjoint(checkpoint.passport.versions)


def export_training(
    run: RunSpec, base: Path, checkpoint: Checkpoint, *, command: Sequence[str], threads: int, folder: Path
) -> list[str]:
    """Publish the checkpoint in the folder as a training that is started by hand would have (UNBROKEN_FOLDER)."""
    if run.resources.tasks > 1 or any(run.settings.get(name, 1) != 1 for name in ("ranks", "workers")):
        raise ConfigError([f"{run.name}: trains in several processes, and can be exported only with one"])
    store = Store(folder / "checkpoints")
    draft = store.root / fs.unique_name("export")
    names = _own_files(checkpoint)
    _copy(checkpoint, names, draft)
    manifest = replace(
        checkpoint.passport,
        run=BY_HAND,
        engine=BY_HAND,
        segment=1,
        sequence=1,
        token=1,
        parent=None,
        parent_digest=None,
        identity="",
        identity_parts={},
        files={name: checkpoint.passport.files[name] for name in names},
        slurm_job=None,
    )
    store.publish(draft, manifest, lambda: None)
    environment = {"OMP_NUM_THREADS": str(threads)}
    write_script(folder, run, command, environment, here={"UNBROKEN_FOLDER": "$here"}, where=str(base.resolve()))
    goal = "" if run.goal is None else f" (in the config: {run.goal:.10g} {run.settings.get('goal_unit', '')})"
    return [
        f"resume.sh starts the script in {base.resolve()} with UNBROKEN_FOLDER: it resumes from here, and saves here",
        f"the goal is what the script itself says{goal}",
    ]


def _own_files(checkpoint: Checkpoint) -> list[str]:
    """Return the names of a checkpoint's files, without pieces of the result."""
    return [name for name in checkpoint.passport.files if name.split("/")[0] != PARTS]


def _copy(checkpoint: Checkpoint, names: Sequence[str], folder: Path) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.folder / name, folder / name)
