"""Start a program in the environment of its run: modules, launcher, container, Python environment, in that order.

The Python that watches the clock stays outside of all of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unbroken.program import conda, container, process, venv
from unbroken.store.run import RunSpec


def entered(
    command: Sequence[str], run: RunSpec, base: Path = Path(), launcher: Sequence[str] | None = None
) -> list[str]:
    """Return the command inside the run's environment; the words of `launcher` take the place of the run's `enter`.

    Each task of a launcher enters by itself: what a node's login shell has set is not on the next one.
    """
    inner, folders = list(command), []
    if run.environment.venv is not None:
        folders.append(folder_of(run.environment.venv, base))
        inner = venv.activated(inner, folders[0])
    elif run.environment.conda is not None:
        folders.append(conda_folder(run.environment.conda, base))
        inner = conda.activated(inner, folders[0])
    inner = container.inside(inner, run, base, folders)
    return process.entered(inner, run.environment.modules, run.environment.enter if launcher is None else launcher)


def folder_of(name: str, base: Path) -> Path:
    """Return the whole path of the folder that a key names.  Links stay, as a file server may need them."""
    return Path(os.path.abspath(base / Path(name).expanduser()))


def conda_folder(name: str, base: Path) -> Path:
    """Return the folder of a conda environment; one of that name in the working directory if it is nowhere."""
    return (conda.found(name) if conda.is_name(name) else None) or folder_of(name, base)
