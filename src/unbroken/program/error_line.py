"""The line in which a program said why it failed: an exception with its place, `Fatal error`, `not found`, ...

Read from the end of what it printed, which is data: control sequences are left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# The end of a log; a traceback with all its frames is shorter.
READ_BYTES = 64 * 1024
# More is no line for a table.
MOST_CHARACTERS = 240
# Further up nothing explains the end.
LOOKED_AT = 200
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
_OURS = re.compile(r"unbroken \d{4}-\d\d-\d\dT")
_TRACEBACK = re.compile(r"^(?P<prefix>.*?)Traceback \(most recent call last\):$")
_FRAME = re.compile(r'^\s+(\| )?File "(?P<path>[^"]+)", line (?P<line>\d+)(, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(\w+\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Warning|Failure)?(: .*)?$")
_UNREADABLE = re.compile(r"^(Syntax|Indentation|Tab)Error: ")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<frozen ")
# Of GROMACS [gmx: src/gromacs/utility/fatalerror.cpp]: the message stands below.
_HEADINGS = re.compile(
    r"^(Fatal error|Error in user input|Inconsistency in user input|File input/output error|Program input error):$"
)
# In the order in which they are believed; each names what printed it.
_TELLING = [
    re.compile(pattern)
    for pattern in (
        r"^ERROR( on proc \d+)?: .+",  # LAMMPS, Julia
        r"^(Error|Fehler) (in|bei) .+",  # R
        r"^thread '.*' panicked at .+",  # Rust
        r"Fortran runtime error: .+",
        r"what\(\): .+",  # C++
        r"\bAssertion .* failed",
        r"command not found|: not found$|error while loading shared libraries|cannot execute",
        r"[Oo]ut of memory|[Cc]annot allocate memory|std::bad_alloc",
        r"No space left on device|Disk quota exceeded|Permission denied|No such file or directory",
        r"Segmentation fault|Bus error|Illegal instruction|Floating point exception",
        r"\b([Ff]atal|FATAL|[Ee]rror|ERROR)\b.*:.+",
    )
]


def error_line(log: Path, begins: int, *, or_last_line: bool = True) -> str:
    """Return the error in a log after its first `begins` bytes; empty if there is none, or it cannot be read."""
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(begins, size - READ_BYTES))
        return error_in(file.read(READ_BYTES).decode(errors="replace"), or_last_line=or_last_line)
    return ""


def log_bytes(log: Path) -> int:
    """Return the length of a log; 0 if there is none, or it cannot be read."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def error_in(text: str, *, or_last_line: bool = True) -> str:
    """Return the error in what a program printed; if nothing looks like one its last line, or nothing."""
    lines = [_plain(line) for line in re.split(r"\r\n|\n|\r", text)]
    lines = [line for line in lines if not _OURS.match(line)][-LOOKED_AT:]
    if not any(line.strip() for line in lines):
        return ""
    found = _exception(lines) or _below_heading(lines) or _telling(lines)
    if not found and or_last_line:
        found = f"last line: {next(line.strip() for line in reversed(lines) if line.strip())}"
    return _short(found)


def _exception(lines: Sequence[str]) -> str:
    """Return the exception of the last traceback of Python, and the last place in a file that is no library."""
    for number, line in reversed(list(enumerate(lines))):
        if match := _TRACEBACK.match(line):
            prefix, frames = match["prefix"], []  # torchrun writes `[rank0]: ` before each line
            for each in lines[number + 1 :]:
                own = each.removeprefix(prefix if each.startswith(prefix) else prefix.rstrip())
                if frame := _FRAME.match(own):
                    frames.append(frame)
                elif _EXCEPTION.match(own):
                    return f"{own.strip()}{_place(frames)}"
    for number, line in reversed(list(enumerate(lines))):
        if _UNREADABLE.match(line):  # a script that Python cannot read has no traceback
            return f"{line}{_place([frame for each in lines[:number] if (frame := _FRAME.match(each))][-1:])}"
    return ""


def _place(frames: Sequence[re.Match[str]]) -> str:
    own = [frame for frame in frames if not _LIBRARY.search(frame["path"])] or list(frames)
    return f" in {Path(own[-1]['path']).name}, line {own[-1]['line']}" if own else ""


def _below_heading(lines: Sequence[str]) -> str:
    for number, line in reversed(list(enumerate(lines))):
        if _HEADINGS.match(line.strip()):
            below = itertools.takewhile(str.strip, lines[number + 1 :])
            return " ".join([line.strip(), *map(str.strip, below)])
    return ""


def _telling(lines: Sequence[str]) -> str:
    found = (line.strip() for pattern in _TELLING for line in reversed(lines) if pattern.search(line.strip()))
    return next(found, "")


def _plain(line: str) -> str:
    return "".join(character for character in _ANSI.sub("", line).expandtabs() if character.isprintable())


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
