"""The `gmx` program of a run: its command lines inside the run's environment, and what its small tools answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.program import process as child
from unbroken.program.entering import entered, folder_of
from unbroken.program.process import Answer
from unbroken.runs.run import Run

_NUMBERED = re.compile(r"(ERROR|WARNING) \d+ \[")
_FATAL = re.compile(r"(Fatal error|Error in user input|Inconsistency in user input|File input/output error):")


def with_gmxrc(run: Run, command: list[str], base: Path = Path()) -> list[str]:
    """The command behind sourcing the run's GMXRC, if it names one; the words of the command stay its arguments.

    By its whole path: programs start in other folders than `base`, and `source` looks for a bare name on the PATH.
    """
    gmxrc = str(run.settings["gmxrc"])
    if not gmxrc:
        return command
    # GMXRC finds out which shell reads it, and some releases of it trip over `set -e`.
    return ["bash", "-c", 'source "$1" && shift && exec "$@"', "unbroken", str(folder_of(gmxrc, base)), *command]


def program_of(run: Run, setting: str, base: Path = Path()) -> str:
    """Return the program that a setting names."""
    return whole_path(str(run.settings[setting]), base)


def whole_path(word: str, base: Path) -> str:
    """Return a word, or the whole path if it is one: it was written for `base`, and programs start in other folders."""
    return str(folder_of(word, base)) if "/" in word else word


def gmx(
    run: Run,
    *words: str,
    folder: Path | None = None,
    told: str = "",
    is_enough: Callable[[str], bool] = lambda line: False,
    base: Path = Path(),
) -> Answer:
    """What one of gmx's tools answers, inside the run's modules and container; `words` begin with the tool's name.

    `base` is the folder in which snakemake is started, where that is not this process's.
    """
    program = program_of(run, "tools" if run.settings["tools"] else "gmx", base)
    command = with_gmxrc(run, [program, "-nobackup", "-quiet", *words], base)
    return child.ask(entered(command, run, base), folder, told, is_enough=is_enough)


def must_gmx(run: Run, *words: str, folder: Path | None = None, told: str = "", base: Path = Path()) -> Answer:
    """The same; SegmentError with the tool's own words if it fails."""
    answer = gmx(run, *words, folder=folder, told=told, base=base)
    if answer.code != 0:
        what = f"exit code {answer.code} of: gmx {shlex.join(words)}"
        raise SegmentError(f"gmx {words[0]}: {complaint(answer.lines)}; {what}")
    return answer


def complaint(lines: list[str]) -> str:
    """What gmx gives as the reason of its failure, in one line; its last words if it gives none.

    grompp numbers its errors and warnings, and what it calls fatal in the end is only how many there were.
    """
    for is_head in (_NUMBERED.match, _FATAL.match):
        blocks = [_block(lines[number:]) for number, line in enumerate(lines) if is_head(line)]
        if blocks:
            return " ".join(blocks)
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "it said nothing"


def _block(lines: list[str]) -> str:
    """A head and what follows it to the next empty line; heads that only say that it is an error are left out."""
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    first = 0 if _NUMBERED.match(lines[0]) else 1
    return " ".join(line.strip() for line in lines[first:end])
