"""A Python environment of `venv` or conda: where it is, how a program enters it, and what is installed in it.

Conda is never started: that takes seconds, and on a compute node it may be missing.  What it does to enter an
environment is little: some variables, and the scripts that packages have put into `etc/conda/activate.d`.
"""

from __future__ import annotations

import itertools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from unbroken.errors import Mistake
from unbroken.store.layout import parse_json

# As the environment's own `activate` does it; the words of the command stay arguments, and the process stays the same.
_ENTER_VENV = 'VIRTUAL_ENV=$1 PATH=$1/bin:$PATH; export VIRTUAL_ENV PATH; unset PYTHONHOME; shift; exec "$@"'
# $1 the folder, $2 the name, $3 how many words NAME=VALUE follow, then these, then the command.  The scripts are read
# in a function: they are not to see the command's words.
_ENTER_CONDA = "; ".join(
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
_SEPARATORS = re.compile(r"[-_.]+")
# Below the folder of a Python of the system, of that version; Debian has its own folders.
_SYSTEM_PACKAGES = (
    "lib/python{}/site-packages",
    "lib/python3/dist-packages",
    "local/lib/python{}/dist-packages",
)
_ENVS_DIRS = re.compile(r"^envs_dirs:[ \t]*\n((?:[ \t]*-[ \t]*\S.*\n?)+)", re.MULTILINE)
_CONDA_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", ".micromamba")


def full_path(name: str, base: Path) -> Path:
    """Return the whole path of what a key names.  Links stay, as a file server may need them."""
    return Path(os.path.abspath(base / Path(name).expanduser()))


@dataclass(frozen=True)
class PythonEnvironment(ABC):
    """A Python environment as the run names it, and its folder."""

    named: str
    folder: Path
    key: ClassVar[str]
    kind: ClassVar[str]
    mark: ClassVar[str]  # what such a folder holds
    advice: ClassVar[str] = ""

    @property
    def is_there(self) -> bool:
        return (self.folder / self.mark).exists()

    def mistake(self) -> Mistake | None:
        """Return what is wrong with the name; None if it leads to an environment."""
        if self.is_there:
            return None
        found = f"found '{self.named}', but there is no such file as {self.named}/{self.mark}"
        allowed = f"the folder of a {self.kind} environment"
        return Mistake(found, allowed, self.advice.format(self.named), is_absent=True)

    @abstractmethod
    def activated(self, command: Sequence[str]) -> list[str]:
        """Return the command inside the environment; the process stays the same."""

    @abstractmethod
    def described(self) -> dict[str, object]:
        """Return the path, and the versions of what is installed; raise OSError if it cannot be read."""

    def _packages(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for place in sorted(self.folder.glob("lib/python*/site-packages")):
            found |= packages_in(place)
        return found


class Venv(PythonEnvironment):
    """An environment of `python3 -m venv`, virtualenv or uv."""

    key, kind, mark = "venv", "Python", "pyvenv.cfg"
    advice = "type: python3 -m venv {}"

    def activated(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", _ENTER_VENV, "unbroken", str(self.folder), *command]

    def described(self) -> dict[str, object]:
        lines = (line.partition("=") for line in (self.folder / self.mark).read_text().splitlines())
        settings = {key.strip().lower(): value.strip() for key, sign, value in lines if sign}
        version = settings.get("version") or settings.get("version_info", "")
        found: dict[str, str] = {}
        if settings.get("include-system-site-packages", "").lower() == "true" and (home := settings.get("home")):
            short = ".".join(version.split(".")[:2])
            for name in _SYSTEM_PACKAGES:
                found |= packages_in(Path(home).parent / name.format(short))
        packages = {**found, **self._packages()}
        return {"path": str(self.folder), "python": version, "packages": dict(sorted(packages.items()))}


class Conda(PythonEnvironment):
    """An environment of conda, mamba or micromamba."""

    key = kind = "conda"
    mark = "conda-meta"

    @classmethod
    def of(cls, named: str, base: Path) -> Conda:
        """Return the environment of that name, or in that folder."""
        return cls(named, next(iter(cls._of_name(named)), full_path(named, base)))

    def mistake(self) -> Mistake | None:
        if len(several := self._of_name(self.named)) > 1:
            found = f"found '{self.named}', of which there are several: {', '.join(map(str, several))}"
            return Mistake(found, todo="type its folder")
        if self.is_there or not (places := _places(self.named)):
            return super().mistake()
        looked_in = dict.fromkeys(str(place.parent) for place in places if place.parent.is_dir())
        where = ", ".join(looked_in) or "no folder that conda uses"
        found = f"found '{self.named}', but there is no such file: no environment of that name in {where}"
        return Mistake(found, todo="type its folder", is_absent=True)

    @classmethod
    def _of_name(cls, named: str) -> list[Path]:
        there = [place for place in _places(named) if (place / cls.mark).is_dir()]
        return [place for number, place in enumerate(there) if not any(map(place.samefile, there[:number]))]

    def activated(self, command: Sequence[str]) -> list[str]:
        """Return the command as `conda activate` would start it."""
        variables = [f"{name}={value}" for name, value in self._variables().items()]
        name = self.folder.name if self.folder.parent.name == "envs" else str(self.folder)
        words = [str(self.folder), name, str(len(variables)), *variables]
        return ["bash", "-c", _ENTER_CONDA, "unbroken", *words, *command]

    def described(self) -> dict[str, object]:
        found = self._packages()
        for path in (self.folder / self.mark).iterdir():
            words = path.stem.rsplit("-", 2)
            if path.suffix == ".json" and len(words) == 3:
                found[words[0]] = f"{words[1]} {words[2]}"
        return {"path": str(self.folder), "packages": dict(sorted(found.items()))}

    def _variables(self) -> dict[str, str]:
        """Return what packages and `conda env config vars set` set [conda: core/prefix_data.py, activate.py]."""
        found: dict[str, object] = {}
        for path in sorted((self.folder / "etc/conda/env_vars.d").glob("*.json")):
            found |= _object(_parsed(path))
        found |= _object(_object(_parsed(self.folder / self.mark / "state")).get("env_vars"))
        # Conda marks one that was unset by a word of its own.
        return {name: str(value) for name, value in found.items() if value != "***unset***"}


def packages_in(folder: Path) -> dict[str, str]:
    """Return names (as PEP 503 writes them) and versions by what pip leaves in a `site-packages`; none without one.

    The names of its folders say it: a file server that would have to open each package's metadata takes seconds.
    """
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        stem, _, kind = path.name.rpartition(".")
        if kind in {"dist-info", "egg-info"}:
            name, _, version = stem.partition("-")
            found[_SEPARATORS.sub("-", name).lower()] = version.partition("-py")[0] if kind == "egg-info" else version
    return found


def _places(named: str) -> list[Path]:
    """Return where conda, mamba and micromamba may keep an environment of that name; none for what is a folder.

    `environments.txt` lists what this user has created, wherever it lies.
    """
    if "/" in named or named.startswith("~"):
        return []
    home, program = Path.home(), os.environ.get("CONDA_EXE")  # of /opt/conda/bin/conda the root is /opt/conda
    roots = [Path(program).parents[1]] if program else []
    roots += [home / name for name in _CONDA_ROOTS]
    if root := os.environ.get("MAMBA_ROOT_PREFIX"):
        roots.append(Path(root))
    folders = [os.environ.get(name, "").split(":") for name in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH")]
    files = (os.environ.get("CONDARC", ""), home / ".condarc", home / ".config/conda/condarc", home / ".mambarc")
    folders += [_envs_dirs(Path(file)) for file in files]
    places = [Path(folder).expanduser() / named for folder in itertools.chain(*folders) if folder]
    places += roots if named == "base" else [root / "envs" / named for root in roots]
    created = map(Path, _text(home / ".conda/environments.txt").splitlines())
    return places + [place for place in created if place.name == named]


def _envs_dirs(file: Path) -> list[str]:
    """Return the list of that name in a .condarc; this package reads no YAML."""
    match = _ENVS_DIRS.search(_text(file))
    lines = match[1].splitlines() if match else []
    return [line.strip().removeprefix("-").split(" #")[0].strip().strip("'\"") for line in lines]


def _text(file: Path) -> str:
    with suppress(OSError, ValueError):
        return file.read_text()
    return ""


def _parsed(path: Path) -> object:
    with suppress(ValueError):
        return parse_json(_text(path))
    return None


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
