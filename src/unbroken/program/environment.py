"""What a run's program is started in: read for the passport at each start, and looked at before anything is queued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from unbroken.errors import AbsentFileError
from unbroken.program import venv
from unbroken.program.entering import folder_of
from unbroken.runs.run import Run

NO_SUCH_FILE = "there is no such file"
# What can be looked at on the machine of the driver as well as on that of the job.
ON_DISK = frozenset({"venv"})


def mistakes(run: Run, base: Path) -> Iterator[tuple[str, str]]:
    """Each key that names what is not there, and what is wrong with it."""
    if run.venv is not None and not (folder_of(run.venv, base) / venv.CONFIG).is_file():
        found = f"found '{run.venv}', but {NO_SUCH_FILE} as {run.venv}/{venv.CONFIG}"
        yield "venv", f"{found}; allowed: the folder of a Python environment; type: python3 -m venv {run.venv}"


def described(run: Run, base: Path, on_disk: bool = False) -> dict[str, Mapping[str, object]]:
    """Each part of the run's environment by its name, as it is on this machine now; empty if the run names none.

    `on_disk`: only what needs no program to be started, and is the same on every machine.  AbsentFileError if one of
    them is not there.
    """
    if found := [f"runs.{run.name}.{key}: {text}" for key, text in mistakes(run, base)]:
        raise AbsentFileError(found)
    parts: dict[str, Mapping[str, object]] = {}
    if run.venv is not None:
        folder = folder_of(run.venv, base)
        try:
            parts["venv"] = venv.described(folder)
        except OSError as error:
            raise AbsentFileError([f"runs.{run.name}.venv: {folder}: {error.strerror}"]) from error
    return parts
