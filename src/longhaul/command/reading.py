"""How far a program is: read in its restart files, or in what it writes while it works."""

from __future__ import annotations

import json
import math
import mmap
import re
from collections.abc import Sequence
from pathlib import Path

from longhaul import child
from longhaul.command.settings import Program
from longhaul.command.states import matching
from longhaul.errors import CheckpointError
from longhaul.run import Run

# Of a file that grows only the end is read.
TAIL_BYTES = 64 * 1024
ANSWER_SECONDS = 60.0
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def progress_of(run: Run, program: Program, folder: Path, number: str) -> float | None:
    """How far the restart files in `folder` are; None where the config does not say how to know.

    CheckpointError names the file, and what is not in it.
    """
    if number:
        return float(number)
    if program.progress_command:
        return _answered(run, program.progress_command, folder)
    if not program.progress_file:
        return None
    path = _named_file(folder, program.progress_file)
    if program.progress_json:
        return _in_json(path, program.progress_json)
    found = _last_in_all(path, program.progress_pattern)
    if found is None:
        raise CheckpointError(f"{path}: nothing in it matches progress_pattern: {program.progress_pattern}")
    return found


def last_number(path: Path, pattern: str) -> float | None:
    """The number in the last match of a pattern at the end of a file that may grow; None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return _last_match(pattern, file.read())
    except OSError:
        return None


def _last_in_all(path: Path, pattern: str) -> float | None:
    """The same in a whole restart file, which may be larger than the memory and is written by nobody now."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return _last_match(pattern, text)


def _last_match(pattern: str, text: bytes | mmap.mmap) -> float | None:
    found = None
    for match in re.finditer(pattern.encode(), text, re.MULTILINE):
        found = bytes(match[1])
    return _number(found.decode(errors="replace")) if found else None


def _named_file(folder: Path, glob: str) -> Path:
    names = matching(folder, [glob])
    if not names:
        raise CheckpointError(f"{folder}: no file in it matches progress_file: {glob}")
    return folder / names[-1]


def _in_json(path: Path, dotted: str) -> float:
    try:
        value = json.loads(path.read_bytes())
        for name in dotted.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{path}: no progress_json: {dotted} in it ({error!r})") from error
    number = _number(str(value))
    if number is None:
        raise CheckpointError(f"{path}: progress_json: {dotted} is {value!r}, allowed: a number")
    return number


def _answered(run: Run, command: Sequence[str], folder: Path) -> float:
    """What a command of the user says of the folder that it is started in."""
    prefix = run.enter if run.tasks == 1 else ()  # a launcher would start it many times
    answer = child.ask(child.entered(command, run.modules, prefix), folder, seconds=ANSWER_SECONDS)
    last = next((line for line in reversed(answer.lines) if line.strip()), "")
    number = _number(last.strip())
    if answer.code != 0 or number is None:
        said = f"exit code {answer.code}, last line {last!r}"
        raise CheckpointError(f"progress_command {' '.join(command)}: {said}, allowed: exit code 0 and a number")
    return number


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    number = float(match[0]) if match else math.nan
    return number if math.isfinite(number) else None
