"""A conda environment: where it is, how a program enters it, and what is installed in it; conda is never started.

Starting conda takes seconds, and on a compute node it may be missing.  What it does to enter an environment is little:
some variables, and the scripts that packages have put into `etc/conda/activate.d`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from unbroken.program.venv import packages_in

META = "conda-meta"
# $1 the folder, $2 the name, $3 how many words NAME=VALUE follow, then these, then the command.  The scripts are read
# in a function: they are not to see the command's words.
_ACTIVATE = "; ".join(
    (
        'export CONDA_PREFIX=$1 CONDA_DEFAULT_ENV=$2 CONDA_SHLVL=1 PATH="$1/bin:$PATH"',
        "unset PYTHONHOME",
        "count=$3",
        "shift 3",
        'while [ "$count" -gt 0 ]; do export "$1"; shift; count=$((count - 1)); done',
        'enter() { for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ -r "$file" ] && . "$file"; done; }',
        "enter",
        'exec "$@"',
    )
)
_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", ".micromamba")
_ENVS_DIRS = re.compile(r"^envs_dirs:[ \t]*\n((?:[ \t]*-[ \t]*\S.*\n?)+)", re.MULTILINE)


def activated(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command inside the environment, as `conda activate` would set it; the process stays the same."""
    variables = [f"{name}={value}" for name, value in _variables(folder).items()]
    name = folder.name if folder.parent.name == "envs" else str(folder)
    return ["bash", "-c", _ACTIVATE, "unbroken", str(folder), name, str(len(variables)), *variables, *command]


def is_name(text: str) -> bool:
    """Return True for the name of an environment, false for a folder."""
    return "/" not in text and not text.startswith("~")


def found(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of an environment by its name, None if there is none where conda and mamba keep them."""
    return next((folder for folder in _places(name, environment) if (folder / META).is_dir()), None)


def looked_in(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the folders in which an environment is looked for by its name, as far as they are there."""
    folders = dict.fromkeys(str(place.parent) for place in _places("name", environment) if place.parent.is_dir())
    return list(folders)


def described(folder: Path) -> dict[str, object]:
    """Return the path and the packages with version and build, those of pip too; raise OSError if it cannot be read."""
    packages = {}
    for path in (folder / META).iterdir():
        words = path.stem.rsplit("-", 2)
        if path.suffix == ".json" and len(words) == 3:
            packages[words[0]] = f"{words[1]} {words[2]}"
    for place in sorted(folder.glob("lib/python*/site-packages")):
        packages = {**packages_in(place), **packages}
    return {"path": str(folder), "packages": dict(sorted(packages.items()))}


def _variables(folder: Path) -> dict[str, str]:
    """Return what packages and `conda env config vars set` want set [conda, core/prefix_data.py and activate.py]."""
    variables: dict[str, str] = {}
    for path in sorted((folder / "etc/conda/env_vars.d").glob("*.json")):
        variables |= _texts(_read(path))
    kept = _read(folder / META / "state").get("env_vars")
    return variables | _texts(kept if isinstance(kept, dict) else {})


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Return the variables; conda marks one that was unset by a word of its own."""
    return {name: str(value) for name, value in values.items() if value != "***unset***"}


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _places(name: str, environment: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environment.get("HOME") or Path.home())
    roots = [environment.get("MAMBA_ROOT_PREFIX"), _root_of(environment.get("CONDA_EXE"))]
    folders = [Path(root) for root in roots if root] + [home / root for root in _ROOTS]
    if name == "base":
        yield from folders
    for variable in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"):
        yield from (Path(place) / name for place in environment.get(variable, "").split(":") if place)
    for file in (environment.get("CONDARC", ""), home / ".condarc", home / ".config/conda/condarc", home / ".mambarc"):
        yield from (Path(place.replace("~", str(home), 1)) / name for place in _envs_dirs(Path(file)))
    yield from (folder / "envs" / name for folder in folders)
    for line in _text(home / ".conda/environments.txt").splitlines():
        if Path(line).name == name:
            yield Path(line)


def _root_of(program: str | None) -> str | None:
    """Return /opt/conda of `/opt/conda/bin/conda` or `/opt/conda/condabin/conda`."""
    return str(Path(program).parents[1]) if program else None


def _envs_dirs(file: Path) -> list[str]:
    """Return the list of that name in a .condarc; this package reads no YAML."""
    match = _ENVS_DIRS.search(_text(file))
    lines = match[1].splitlines() if match else []
    return [line.strip().removeprefix("-").split(" #")[0].strip().strip("'\"") for line in lines]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
