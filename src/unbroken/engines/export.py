"""A folder from which a program goes on without unbroken: what all engines need to fill it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.runs.passport import FILE_NAME
from unbroken.runs.run import Run

SCRIPT = "resume.sh"


def copied_files(checkpoint: Checkpoint, folder: Path, has_passport: bool = True) -> None:
    """The checkpoint's own files, without pieces of the result."""
    names = [name for name in checkpoint.passport.files if name.split("/")[0] != PARTS]
    for name in [*names, *([FILE_NAME] if has_passport else [])]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.folder / name, folder / name)


def write_script(
    folder: Path,
    run: Run,
    command: Sequence[str],
    environment: Mapping[str, str] = {},
    here: Mapping[str, str] = {},
    where: str = "",
) -> None:
    """`resume.sh`, which starts `command` in its own folder, or in `where`.

    In the values of `here`, which are put between double quotes as they are, `$here` is the folder of the script.
    """
    lines = [f"#!/bin/bash{' -l' if run.modules else ''}", "set -eu", 'here="$(cd "$(dirname "$0")" && pwd)"']
    lines += [f"export {name}={shlex.quote(text)}" for name, text in environment.items() if text]
    lines += [f'export {name}="{text}"' for name, text in here.items()]
    lines += [f"module load {shlex.join(run.modules)}"] if run.modules else []
    lines += [f"cd {shlex.quote(where)}" if where else 'cd "$here"', f"exec {shlex.join([*run.enter, *command])}"]
    path = folder / SCRIPT
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
