"""Read a program's progress in its restart files, or in what it writes while it runs."""

from __future__ import annotations

import logging
import math
import mmap
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.config.found import found as shown
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import Stamp, matching
from unbroken.errors import CheckpointError, SegmentError
from unbroken.program import process as child
from unbroken.program.environment import entered
from unbroken.store.run import RunSpec
from unbroken.system import fs

logger = logging.getLogger(__name__)

# Of a file that grows only the end is read.
TAIL_BYTES = 64 * 1024
# A message of an error is looked for in so much of what was printed.
MOST_SEARCHED_BYTES = 64 * 1024 * 1024
ANSWER_SECONDS = 60.0
LONGEST_LINE = 120
BINARY = "binary"  # the name of the group of a progress_pattern around a number that is no text
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Reading:
    """Hold the progress of restart files and its source; `done` is None if the config gives no way to read it."""

    done: float | None
    how: str


def no_step(said: str, reading: Reading, last: float | None, written: float | None) -> str:
    """Return why a number is no progress after the `last` one; `written` is how far the outputs are beyond it."""
    before, never = ("as at the start", "; it never grew") if last is None else (f"after {last:.10g}", "")
    also = f", while the outputs are at {written:.10g}" if written is not None else ""
    return f"{said}, {before}: {reading.how}{never}{also}"


def reading_of(run: RunSpec, program: Program, folder: Path, number: str) -> Reading:
    """Return the progress of the restart files in `folder`; raise CheckpointError with the file and what it lacks.

    `number` is the one in the names of the files.
    """
    if number:
        return Reading(float(number), f"the names of `files` have {number} in them")
    if program.progress_command:
        return _answered(run, program.progress_command, folder)
    if not program.progress_file:
        return Reading(None, "")
    names = matching(folder, [program.progress_file])
    if not names:
        raise CheckpointError(f"{folder}: no file in it matches progress_file: {program.progress_file}")
    return _in_text(folder / names[-1], program.progress_pattern)


def last_number(path: Path, pattern: str) -> float | None:
    """Return the number in the last match of a pattern at the end of a file that may grow; None if there is none.

    A binary number is looked for at the beginning of the file, where formats have it.
    """
    expression = re.compile(pattern.encode(), re.MULTILINE)
    try:
        with path.open("rb") as file:
            file.seek(0 if BINARY in expression.groupindex else max(0, file.seek(0, 2) - TAIL_BYTES))
            found = list(expression.finditer(file.read(TAIL_BYTES)))
    except OSError:
        return None
    last = found[-1] if found else None
    data = last[last.lastindex] if last is not None and last.lastindex else b""
    return _of_bytes(data, is_binary=last is not None and last.lastgroup == BINARY) if data else None


def first_match(path: Path, pattern: str, begin: int = 0) -> str:
    """Return what a pattern first matches in a file from byte `begin` on, on one line of at most 200 characters."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin if begin <= size else 0, size - MOST_SEARCHED_BYTES))  # it may have been begun again
            found = re.search(pattern.encode(), file.read(), re.MULTILINE)
    except OSError:
        return ""
    return " ".join(found[0].decode(errors="replace").split())[:200] if found else ""


def _in_text(path: Path, pattern: str) -> Reading:
    """Read the last match in a whole restart file, which may be larger than the memory and is no longer written."""
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path}: nothing in it matches progress_pattern: {pattern}; it is empty")
    expression = re.compile(pattern.encode(), re.MULTILINE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        span, count, is_binary = (0, 0), 0, False
        for match in expression.finditer(text):
            span, count, is_binary = match.span(match.lastindex or 1), count + 1, match.lastgroup == BINARY
            del match  # it would keep the map open
        begin = text.rfind(b"\n", 0, span[0]) + 1
        line = shown(text[begin : begin + LONGEST_LINE].partition(b"\n")[0].decode(errors="replace").rstrip())
        parts = range(0, span[0], TAIL_BYTES)
        number = 1 + sum(text[each : min(span[0], each + TAIL_BYTES)].count(b"\n") for each in parts)
        data = bytes(text[slice(*span)])
    if not count:
        raise CheckpointError(f"{path}: nothing in it matches progress_pattern: {pattern}; it begins with {line}")
    done = _of_bytes(data, is_binary=is_binary)
    matched = f"{done:.10g}" if is_binary else data.decode(errors="replace")
    if done is None:
        raise CheckpointError(f"{path}: progress_pattern: {pattern} matched {shown(matched)}, allowed: a number")
    times, last = ("once", "") if count == 1 else (f"{count} times", "last ")
    how = f"progress_pattern {pattern} matched {times} in {path.name}, {last}'{matched}' at line {number}: {line}"
    return Reading(done, how)


# --- commands of the user ---


def confirm_check(run: RunSpec, program: Program) -> None:
    """Raise SegmentError if check_command cannot be started, which would leave every restart file out."""
    words = program.check_command
    if words and not run.environment.is_entered and shutil.which(words[0]) is None:
        found = f"found '{words[0]}', which is not a program that can be found here"
        raise SegmentError(f"runs.{run.name}.settings.check_command: {found}")


def why_not_whole(run: RunSpec, program: Program, folder: Path) -> str:
    """Return what check_command says against the restart files in `folder`; empty if it accepts them."""
    if not program.check_command:
        return ""
    said = f"check_command {' '.join(program.check_command)}"
    try:
        code, last = _ask(run, program.check_command, folder)
    except SegmentError as error:
        return f"{said}: {error}"
    return "" if code == 0 else f"{said}: exit code {code}{f', last line {shown(last)}' if last else ''}"


class CopyCheck:
    """Ask check_command about each copy of restart files; `says` is what it said against the last one."""

    def __init__(self, run: RunSpec, program: Program) -> None:
        self._run, self._program = run, program
        self._refused: set[tuple[Stamp, ...]] = set()
        self.says = ""

    def has_refused(self, stamps: Mapping[str, Stamp]) -> bool:
        """Return True for files of which a copy was refused, and which are as they were."""
        return tuple(stamps.values()) in self._refused

    def accepts(self, draft: Path, stamps: Mapping[str, Stamp]) -> bool:
        """Return True for a copy that is complete; remove and log one that is not."""
        why = why_not_whole(self._run, self._program, draft)
        if why:
            fs.remove_tree(draft)
            self._refused.add(tuple(stamps.values()))
            if why != self.says:
                logger.warning(f"restart files are not taken: {why}; the next ones may be")
        self.says = why
        return not why


def _answered(run: RunSpec, command: Sequence[str], folder: Path) -> Reading:
    """Return what a command of the user says of the folder that it is started in."""
    said = f"progress_command {' '.join(command)}"
    code, last = _ask(run, command, folder)
    done = _number(last.strip())
    if code != 0 or done is None:
        raise CheckpointError(f"{said}: exit code {code}, last line {last!r}, allowed: exit code 0 and a number")
    return Reading(done, f"{said} printed {done:.10g}")


def _ask(run: RunSpec, command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Return the exit code of a command, and the last line that it prints."""
    launcher = run.environment.enter if run.resources.tasks == 1 else ()  # it would start it many times
    answer = child.ask(entered(command, run, launcher=launcher), folder, seconds=ANSWER_SECONDS)
    return answer.code, next((line for line in reversed(answer.lines) if line.strip()), "")


def _of_bytes(data: bytes, *, is_binary: bool) -> float | None:
    """Return the number that bytes are, as text or as an integer whose lowest byte is the first."""
    return float(int.from_bytes(data, "little")) if is_binary else _number(data.decode(errors="replace"))


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    number = float(match[0]) if match else math.nan
    return number if math.isfinite(number) else None
