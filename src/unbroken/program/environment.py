"""Record the environment of a run's program in each checkpoint, and check it before anything is queued."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unbroken.errors import AbsentFileError, Mistake, SegmentError, config_error
from unbroken.program import conda, container, process, venv
from unbroken.program.entering import conda_folder, folder_of
from unbroken.store.run import RunSpec
from unbroken.system.host import this_host

# What only the job's own machine can say.
NOT_ON_DISK = frozenset({"modules", "driver"})

ANSWER_SECONDS = 120.0
_MARK = "unbroken found: "
# Both keep this list [module(1), "ENVIRONMENT"; Lmod, "Environment variables"].
_ASK = f'printf "\\n{_MARK}%s\\n" "$LOADEDMODULES"'

Parts = dict[str, Mapping[str, object]]


def mistakes(run: RunSpec, base: Path) -> Iterator[tuple[str, Mistake]]:
    """Yield each key that names what does not exist or cannot be meant, and what is wrong with it."""
    if run.environment.conda is not None and run.environment.venv is not None:
        found = f"found '{run.environment.venv}' beside conda: {run.environment.conda}"
        yield "venv", Mistake(found, "one of the two", "leave the other out")
    if run.environment.container is not None:
        yield from container.mistakes(run, base)
    elif run.environment.venv is not None and not (folder_of(run.environment.venv, base) / venv.CONFIG).is_file():
        mark, todo = f"{run.environment.venv}/{venv.CONFIG}", f"type: python3 -m venv {run.environment.venv}"
        yield "venv", _absent(run.environment.venv, f" as {mark}", "the folder of a Python environment", todo)
    elif run.environment.conda is not None and not (conda_folder(run.environment.conda, base) / conda.META).is_dir():
        yield "conda", _no_conda(run.environment.conda)
    if run.environment.container is None and run.environment.container_options:
        found = f"found {' '.join(run.environment.container_options)}, but the run names no `container`"
        yield "container_options", Mistake(found, todo="leave it out")


def described(run: RunSpec, base: Path) -> Parts:
    """Return each part of the run's environment by its name, as it is on this machine now; empty if the run names none.

    Fetch an image that is to be fetched: OutageError if that fails now.  Raise AbsentFileError if a part is not there.
    """
    container.fetch(run, base)
    parts = on_disk(run, base)
    if "image" in parts:
        parts["image"] = {**parts["image"], "runtime": container.runtime_version(run)}
    if run.environment.modules and (loaded := _loaded(run.environment.modules)):
        parts["modules"] = {"loaded": loaded}
    if run.resources.gpus and (driver := this_host().gpu_driver):
        parts["driver"] = {"version": driver}
    return parts


def on_disk(run: RunSpec, base: Path) -> Parts:
    """Return the parts without NOT_ON_DISK, and without starting a program or fetching an image."""
    if found := [mistake.at(f"runs.{run.name}.{key}") for key, mistake in mistakes(run, base)]:
        raise config_error(found)
    parts: Parts = {}
    try:
        if run.environment.container is not None and container.image_of(run.environment.container, base).exists():
            parts["image"] = container.described(run.environment.container, base)
        if run.environment.venv is not None:
            parts["venv"] = _or_inside(folder_of(run.environment.venv, base), venv.CONFIG, venv.described)
        elif run.environment.conda is not None:
            parts["conda"] = _or_inside(conda_folder(run.environment.conda, base), conda.META, conda.described)
    except OSError as error:
        raise AbsentFileError([f"runs.{run.name}: {error.filename}: {error.strerror}"]) from error
    return parts


def unread(run: RunSpec, parts: Mapping[str, object]) -> set[str]:
    """Return the parts that the run has and that could not be read now, which is no change of them.

    An image yet to be fetched, modules that do not load, a silent driver.
    """
    named = {"image": run.environment.container, "modules": run.environment.modules, "driver": run.resources.gpus}
    return {name for name, value in named.items() if value and name not in parts}


def _or_inside(folder: Path, mark: str, read: Callable[[Path], dict[str, object]]) -> dict[str, object]:
    """Return what it holds; only its path where it lies in the image, whose digest covers it."""
    return read(folder) if (folder / mark).exists() else {"path": str(folder)}


def _loaded(names: Sequence[str]) -> dict[str, str]:
    """Return the modules by name with their versions, those that the named ones have loaded too.

    None if they cannot be loaded: the program will say why, in the log where one looks for it.
    """
    with contextlib.suppress(SegmentError):
        answer = process.ask(process.entered(["sh", "-c", _ASK], names, ()), seconds=ANSWER_SECONDS)
        lines = [line.removeprefix(_MARK) for line in answer.lines if line.startswith(_MARK)]
        if answer.code == 0 and lines:
            # Of `compilers/gcc/12.2` the version is what stands last; one without a version has none.
            words = (word.rpartition("/") for word in lines[-1].split(":") if word)
            return {name or version: version if name else "" for name, _, version in words}
    return {}


def _no_conda(name: str) -> Mistake:
    if not conda.is_name(name):
        return _absent(name, f" as {name}/{conda.META}", "the folder of a conda environment")
    places = ", ".join(conda.looked_in()) or "no folder that conda uses"
    return _absent(name, f": no environment of that name in {places}", todo="type its folder")


def _absent(name: str, where: str, allowed: str = "", todo: str = "") -> Mistake:
    return Mistake(f"found '{name}', but there is no such file{where}", allowed, todo, is_absent=True)
