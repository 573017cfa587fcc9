"""How far a program is: read in its restart files, or in what it writes while it works."""

from __future__ import annotations

import json
import math
import mmap
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.config.found import found as shown
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import matching
from unbroken.errors import CheckpointError, SegmentError
from unbroken.program import process as child
from unbroken.program.entering import entered
from unbroken.runs.run import Run

# Of a file that grows only the end is read.
TAIL_BYTES = 64 * 1024
ANSWER_SECONDS = 60.0
LONGEST_LINE = 120
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Reading:
    """How far restart files are, None where the config does not say how to know, and what says so."""

    done: float | None
    how: str


def progress_of(run: Run, program: Program, folder: Path, number: str) -> float | None:
    """How far the restart files in `folder` are; None where the config does not say how to know.

    CheckpointError names the file, and what is not in it.
    """
    return reading_of(run, program, folder, number).done


def reading_of(run: Run, program: Program, folder: Path, number: str, among: Collection[str] | None = None) -> Reading:
    """The same with what says so, for a message.

    `number` is the one in the names of the files; `among` are the names in the folder of which progress_file is one.
    """
    if number:
        return Reading(float(number), f"the names of `files` have {number} in them")
    if program.progress_command:
        done, how_many = _answered(run, program.progress_command, folder)
        printed = "one line" if how_many == 1 else f"{how_many} lines, the last"
        return Reading(done, f"progress_command {' '.join(program.progress_command)} printed {printed} {done:.10g}")
    if not program.progress_file:
        return Reading(None, "")
    path = _named_file(folder, program.progress_file, among)
    if program.progress_json:
        done = _in_json(path, program.progress_json)
        return Reading(done, f"progress_json {program.progress_json} is {done:.10g} in {path.relative_to(folder)}")
    return _last_in_all(path, program.progress_pattern, folder)


def last_number(path: Path, pattern: str) -> float | None:
    """The number in the last match of a pattern at the end of a file that may grow; None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return _last_match(pattern, file.read())
    except OSError:
        return None


def _last_in_all(path: Path, pattern: str, folder: Path) -> Reading:
    """The same in a whole restart file, which may be larger than the memory and is written by nobody now."""
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path}: nothing in it matches progress_pattern: {pattern}; it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        span, count = None, 0
        for match in re.finditer(pattern.encode(), text, re.MULTILINE):
            span, count = match.span(1), count + 1
            del match  # it would keep the map open
        if span is None or span[0] < 0:
            begins = shown(_line_at(text, 0))
            raise CheckpointError(f"{path}: nothing in it matches progress_pattern: {pattern}; it begins with {begins}")
        matched, line = bytes(text[slice(*span)]).decode(errors="replace"), shown(_line_at(text, span[0]))
        place = f"'{matched}' at line {_lines_before(text, span[0]) + 1}: {line}"
    done = _number(matched)
    if done is None:
        raise CheckpointError(f"{path}: progress_pattern: {pattern} matched {shown(matched)}, allowed: a number")
    times, last = ("once", "") if count == 1 else (f"{count} times", "last ")
    return Reading(done, f"progress_pattern {pattern} matched {times} in {path.relative_to(folder)}, {last}{place}")


def _lines_before(text: mmap.mmap, at: int) -> int:
    """How many lines end before a byte, read in parts because the file may be larger than the memory."""
    parts = range(0, at, TAIL_BYTES)
    return sum(text[begin : min(at, begin + TAIL_BYTES)].count(b"\n") for begin in parts)


def _line_at(text: mmap.mmap, at: int) -> str:
    """The beginning of the line in which a byte is."""
    begin = text.rfind(b"\n", 0, at) + 1
    end = text.find(b"\n", at)
    end = len(text) if end < 0 else end
    return bytes(text[begin : min(end, begin + LONGEST_LINE)]).decode(errors="replace").rstrip()


def _last_match(pattern: str, text: bytes) -> float | None:
    found = None
    for match in re.finditer(pattern.encode(), text, re.MULTILINE):
        found = bytes(match[1])
    return _number(found.decode(errors="replace")) if found else None


def _named_file(folder: Path, glob: str, among: Collection[str] | None) -> Path:
    names = [name for name in matching(folder, [glob]) if among is None or name in among]
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


def confirm_check(run: Run, program: Program) -> None:
    """SegmentError if check_command cannot be started, which would leave every restart file out."""
    words = program.check_command
    if words and not run.is_entered and shutil.which(words[0]) is None:
        found = f"found '{words[0]}', which is not a program that can be found here"
        raise SegmentError(f"runs.{run.name}.settings.check_command: {found}")


def why_not_whole(run: Run, program: Program, folder: Path) -> str:
    """What check_command says against the restart files in `folder`; empty if they are whole, or nothing is asked."""
    if not program.check_command:
        return ""
    said = f"check_command {' '.join(program.check_command)}"
    try:
        answer = _ask(run, program.check_command, folder)
    except SegmentError as error:
        return f"{said}: {error}"
    last = f", last line {shown(_last_line(answer))}" if _last_line(answer) else ""
    return "" if answer.code == 0 else f"{said}: exit code {answer.code}{last}"


def _answered(run: Run, command: Sequence[str], folder: Path) -> tuple[float, int]:
    """What a command of the user says of the folder that it is started in, and of how many lines that is the last."""
    answer = _ask(run, command, folder)
    last = _last_line(answer)
    number = _number(last.strip())
    if answer.code != 0 or number is None:
        said = f"exit code {answer.code}, last line {last!r}"
        raise CheckpointError(f"progress_command {' '.join(command)}: {said}, allowed: exit code 0 and a number")
    return number, sum(1 for line in answer.lines if line.strip())


def _ask(run: Run, command: Sequence[str], folder: Path) -> child.Answer:
    launcher = run.enter if run.tasks == 1 else ()  # it would start it many times
    return child.ask(entered(command, run, launcher=launcher), folder, seconds=ANSWER_SECONDS)


def _last_line(answer: child.Answer) -> str:
    return next((line for line in reversed(answer.lines) if line.strip()), "")


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    number = float(match[0]) if match else math.nan
    return number if math.isfinite(number) else None
