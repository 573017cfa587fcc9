"""The environment of a run's program: how it is entered, what it is made of, and what has changed since a checkpoint.

Modules, launcher, container and Python environment are entered in that order.  The Python that watches the clock stays
outside of all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.errors import AbsentFileError, Mistake, SegmentError, config_error
from unbroken.program import container, process
from unbroken.program.python_environment import Conda, PythonEnvironment, Venv, full_path
from unbroken.store.checkpoint import Passport
from unbroken.store.run import RunSpec
from unbroken.system.host import this_host

# Each part by its name, with its `path` and what it consists of.
Parts = Mapping[str, Mapping[str, object]]
# What only the job's own machine can say.
NOT_ON_DISK = frozenset({"modules", "driver"})

ANSWER_SECONDS = 120.0
_MARK = "unbroken found: "
# Both keep this list [module(1), "ENVIRONMENT"; Lmod, "Environment variables"].
_ASK = f'printf "\\n{_MARK}%s\\n" "$LOADEDMODULES"'
# Recorded runs may have a `runtime`, which is not noted any more.
_NOT_COMPARED = {"path", "runtime"}
# So many of the changes of a part are printed, the others counted.
TOLD = 5
_DIGEST_DIGITS = 19  # sha256: and twelve more


def entered(
    command: Sequence[str], run: RunSpec, base: Path = Path(), launcher: Sequence[str] | None = None
) -> list[str]:
    """Return the command inside the run's environment; the words of `launcher` take the place of the run's `enter`.

    Each task of a launcher enters by itself: what a node's login shell has set is not on the next one.
    """
    around, python = run.environment, _python_of(run, base)
    inner = python.activated(command) if python else list(command)
    if around.container is not None:
        inner = container.inside(inner, run, base, [python.folder] if python else [])
    return process.with_modules([*(around.enter if launcher is None else launcher), *inner], around.modules)


def mistakes(run: RunSpec, base: Path) -> Iterator[tuple[str, Mistake]]:
    """Yield each key that names what does not exist or cannot be meant, and what is wrong with it."""
    around, python = run.environment, _python_of(run, base)
    if around.conda is not None and around.venv is not None:
        found = f"found '{around.venv}' beside conda: {around.conda}"
        yield "venv", Mistake(found, "one of the two", "leave the other out")
    if around.container is not None:
        yield from container.mistakes(run, base)
        return
    if python is not None and (mistake := python.mistake()):
        yield python.key, mistake
    if around.container_options:
        found = f"found {' '.join(around.container_options)}, but the run names no `container`"
        yield "container_options", Mistake(found, todo="leave it out")


def _python_of(run: RunSpec, base: Path) -> PythonEnvironment | None:
    if run.environment.venv is not None:
        return Venv(run.environment.venv, full_path(run.environment.venv, base))
    return None if run.environment.conda is None else Conda.of(run.environment.conda, base)


# --- recorded --------------------------------------------------------------------------------------------------------


def described(run: RunSpec, base: Path) -> Parts:
    """Return each part of the run's environment by its name, as it is on this machine now; empty if the run names none.

    Fetch an image that is to be fetched: OutageError if that fails now.  Raise AbsentFileError if a part is not there.
    """
    if run.environment.container is not None:
        container.fetch(run, base)
    parts = {**on_disk(run, base)}
    if run.environment.modules and (loaded := _loaded(run.environment.modules)):
        parts["modules"] = {"loaded": loaded}
    if run.resources.gpus and (driver := this_host().gpu_driver):
        parts["driver"] = {"version": driver}
    return parts


def on_disk(run: RunSpec, base: Path) -> Parts:
    """Return the parts without NOT_ON_DISK, and without starting a program or fetching an image.

    Raise AbsentFileError if a part is not there.
    """
    if found := [mistake.at(f"runs.{run.name}.{key}") for key, mistake in mistakes(run, base)]:
        raise config_error(found)
    parts: dict[str, Mapping[str, object]] = {}
    image, python = run.environment.container, _python_of(run, base)
    try:
        if image is not None and container.image_of(image, base).exists():
            parts["image"] = container.described(image, base)
        if python is not None:  # only its path where it lies in the image, whose digest covers it
            parts[python.key] = python.described() if python.is_there else {"path": str(python.folder)}
    except OSError as error:
        raise AbsentFileError([f"runs.{run.name}: {error.filename}: {error.strerror}"]) from error
    return parts


def _loaded(names: Sequence[str]) -> dict[str, str]:
    """Return the modules by name with their versions, those that the named ones have loaded too.

    None if they cannot be loaded: the program will say why, in the log where one looks for it.
    """
    with suppress(SegmentError):
        answer = process.ask(process.with_modules(["sh", "-c", _ASK], names), seconds=ANSWER_SECONDS)
        lines = [line.removeprefix(_MARK) for line in answer.lines if line.startswith(_MARK)]
        if answer.code == 0 and lines:
            # Of `compilers/gcc/12.2` the version is what stands last; one without a version has none.
            words = (word.rpartition("/") for word in lines[-1].split(":") if word)
            return {name or version: version if name else "" for name, _, version in words}
    return {}


# --- compared --------------------------------------------------------------------------------------------------------


def changes(run: RunSpec, now: Parts, made: Passport, without: Collection[str] = ()) -> list[str]:
    """Return a line for each part that is not what it was when a checkpoint was made.

    Return none if the checkpoint does not say: its unbroken may not have looked.  A part that the run names and that
    could not be read now is no change: an image yet to be fetched, modules that do not load, a silent driver.  Skip
    the parts `without`.
    """
    named = {"image": run.environment.container, "modules": run.environment.modules, "driver": run.resources.gpus}
    unread = {name for name, value in named.items() if value and name not in now}
    before, at = made.environment, f"checkpoint {made.sequence}"
    names = sorted({*before, *now} - unread - {*without}) if before else []
    return [line for name in names if (line := _change(name, before.get(name), now.get(name), at))]


def refusal(run: str, found: Sequence[str]) -> str:
    """Return the line for a strict run whose environment has changed: what, and what to type."""
    todo = "put it back, or type environment: tell below the run to go on from the same checkpoint with the change"
    return f"runs.{run}.environment: strict, and {'; '.join(found)}; {todo}"


def in_words(parts: Parts) -> str:
    """Return the environment of a run's program, for a line in the log."""
    return "; ".join(f"{name} {_words(part)}" for name, part in sorted(parts.items()))


def _change(name: str, before: Mapping[str, object] | None, now: Mapping[str, object] | None, at: str) -> str:
    if now is None:
        return f"{name} was there at {at}, and is not any more"
    if before is None:
        return f"{name} is new since {at}: {_words(now)}"
    was, is_now = _contents(before), _contents(now)
    changed = sorted(key for key in {*was, *is_now} if was.get(key) != is_now.get(key))
    shown = ", ".join(_difference(key, was.get(key), is_now.get(key)) for key in changed[:TOLD])
    more = f" and {len(changed) - TOLD} more" if len(changed) > TOLD else ""
    return f"{name} changed since {at}: {shown}{more}" if changed else ""


def _contents(part: Mapping[str, object]) -> dict[str, object]:
    """Return what a part consists of; where it lies, and what entered it, do not say what it is."""
    contents: dict[str, object] = {}
    for key, value in part.items():
        if key not in _NOT_COMPARED:
            contents |= value if isinstance(value, Mapping) else {key: value}
    return contents


def _difference(key: str, before: object, now: object) -> str:
    if before is None:
        return f"{key} {_short(now)} is new"
    return f"{key} {_short(before)} is gone" if now is None else f"{key} {_short(before)} -> {_short(now)}"


def _words(part: Mapping[str, object]) -> str:
    words = [str(part["path"])] if "path" in part else []
    words += [f"{key} {_short(value)}" for key, value in part.items() if key != "path" and isinstance(value, str)]
    words += [f"{len(value)} {key}" for key, value in part.items() if isinstance(value, Mapping)]
    return ", ".join(words)


def _short(value: object) -> str:
    text = str(value)
    return text[:_DIGEST_DIGITS] if text.startswith("sha256:") else text
