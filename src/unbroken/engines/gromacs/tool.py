"""Call the `gmx` program of a run: its command lines in the run's environment, the answers of its small tools."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.program import process as child
from unbroken.program.entering import entered, folder_of
from unbroken.program.process import Answer
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import RunSpec

# The energies of a run as a table that any program can read.
ENERGY_TABLE = "energy.tsv"
# What a chemist looks at first; a run without pressure coupling has no density worth a look.
SHOWN = ("Temperature", "Pressure", "Potential", "Density")
UNITS = {"Temperature": "K", "Pressure": "bar", "Potential": "kJ/mol", "Density": "kg/m³"}
_CHOICE = re.compile(r"(\d+) +(\S+)")
_NUMBERED = re.compile(r"(ERROR|WARNING) \d+ \[")
_FATAL = re.compile(r"(Fatal error|Error in user input|Inconsistency in user input|File input/output error):")


def with_gmxrc(run: RunSpec, command: list[str], base: Path = Path()) -> list[str]:
    """Return the command after sourcing the run's GMXRC, if it names one; the command's words stay its arguments.

    The path is absolute: programs start in other folders than `base`, and `source` looks for a bare name on the PATH.
    """
    gmxrc = str(run.settings["gmxrc"])
    if not gmxrc:
        return command
    # GMXRC finds out which shell reads it, and some releases of it trip over `set -e`.
    return ["bash", "-c", 'source "$1" && shift && exec "$@"', "unbroken", str(folder_of(gmxrc, base)), *command]


def program_of(run: RunSpec, setting: str, base: Path = Path()) -> str:
    """Return the program that a setting names."""
    return whole_path(str(run.settings[setting]), base)


def whole_path(word: str, base: Path) -> str:
    """Return a word, or the absolute path if it is a path: it is relative to `base`, and programs start elsewhere."""
    return str(folder_of(word, base)) if "/" in word else word


def gmx(
    run: RunSpec,
    *words: str,
    folder: Path | None = None,
    told: str = "",
    is_enough: Callable[[str], bool] = lambda line: False,
    base: Path = Path(),
) -> Answer:
    """Return the answer of one of gmx's tools, inside the run's environment; `words` begin with the tool's name.

    `base` is the folder in which snakemake is started, where that is not this process's.
    """
    program = program_of(run, "tools" if run.settings["tools"] else "gmx", base)
    command = with_gmxrc(run, [program, "-nobackup", "-quiet", *words], base)
    return child.ask(entered(command, run, base), folder, told, is_enough=is_enough)


def must_gmx(run: RunSpec, *words: str, folder: Path | None = None, told: str = "", base: Path = Path()) -> None:
    """Run one of gmx's tools; raise SegmentError with the tool's own message if it fails."""
    answer = gmx(run, *words, folder=folder, told=told, base=base)
    if answer.code != 0:
        what = f"exit code {answer.code} of: gmx {shlex.join(words)}"
        raise SegmentError(f"gmx {words[0]}: {complaint(answer.lines)}; {what}")


def complaint(lines: list[str]) -> str:
    """Return the reason that gmx gives for its failure, in one line; its last words if it gives none.

    grompp numbers its errors and warnings, and its fatal error in the end only counts them.
    """
    for heads in (_NUMBERED, _FATAL):
        if blocks := [_block(lines[number:]) for number, line in enumerate(lines) if heads.match(line)]:
            return " ".join(blocks)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _block(lines: list[str]) -> str:
    """Return a head and the lines up to the next empty one; a head that only says that it is an error is left out."""
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    return " ".join(line.strip() for line in lines[0 if _NUMBERED.match(lines[0]) else 1 : end])


# --- energies ---


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots for the Snakemake report of those runs that have joined energies by now."""
    places = [RunFolder(run.name) for run in runs]
    done = [place for place in places if (base / place.final / ENERGY_TABLE).is_file()]
    return [str(place.root / "report" / "energies.svg") for place in done]


def write_energy_table(run: RunSpec, energies: Path, table: Path, base: Path = Path()) -> None:
    """Write a row a frame, a column an energy, tab-separated; the first column is the time in ps."""
    terms = _terms(run, energies, base)
    plain = table.with_name(f".{table.name}.xvg")
    words = ("energy", "-f", str(energies.resolve()), "-o", plain.name, "-xvg", "none", "-dp")
    told = "\n".join([*(str(number) for number in range(1, len(terms) + 1)), "", ""])
    must_gmx(run, *words, folder=table.parent, told=told, base=base)
    with plain.open() as source, table.open("w") as rows:
        rows.write("\t".join(["time_ps", *terms]) + "\n")
        rows.writelines("\t".join(line.split()) + "\n" for line in source)
    plain.unlink()


def _terms(run: RunSpec, energies: Path, base: Path) -> list[str]:
    """Return the names of all energies in an .edr file, as `gmx energy` offers them."""
    # It ends with an error because nothing is chosen, after having printed what there is.
    offered = gmx(run, "energy", "-f", str(energies.resolve()), folder=energies.parent, told="\n", base=base).lines
    begin = next((n for n, line in enumerate(offered) if line.startswith("---")), None)
    if begin is None:
        raise SegmentError(f"{energies}: gmx energy offers nothing: {' '.join(offered[-3:])}")
    rows = [_CHOICE.findall(line) for line in offered[begin + 1 :] if _CHOICE.match(line.strip())]
    return [name for row in rows for _, name in row]
