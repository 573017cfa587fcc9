"""Call the `gmx` program of a run: its command lines in the run's environment, the answers of its small tools."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from unbroken.engines.gromacs.cpt import energy_head
from unbroken.errors import SegmentError
from unbroken.program import process as child
from unbroken.program.environment import entered
from unbroken.program.error_line import error_in
from unbroken.program.python_environment import full_path
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec

# The energies of a run as a table that any program can read.
ENERGY_TABLE = "energy.tsv"
# What a chemist looks at first; a run without pressure coupling has no density worth a look.
UNITS = {"Temperature": "K", "Pressure": "bar", "Potential": "kJ/mol", "Density": "kg/m³"}
SHOWN = tuple(UNITS)
_NUMBERED = re.compile(r"(ERROR|WARNING) \d+ \[")


def with_gmxrc(run: RunSpec, command: list[str], base: Path) -> list[str]:
    """Return the command after sourcing the run's GMXRC, if it names one; the command's words stay its arguments.

    The path is absolute: programs start in other folders than `base`, and `source` looks for a bare name on the PATH.
    """
    gmxrc = str(run.settings["gmxrc"])
    if not gmxrc:
        return command
    # GMXRC finds out which shell reads it, and some releases of it trip over `set -e`.
    return ["bash", "-c", 'source "$1" && shift && exec "$@"', "unbroken", str(full_path(gmxrc, base)), *command]


def whole_path(word: str, base: Path) -> str:
    """Return a word, or the absolute path if it is a path: it is relative to `base`, and programs start elsewhere."""
    return str(full_path(word, base)) if "/" in word else word


def gmx(
    run: RunSpec,
    *words: str,
    base: Path,
    folder: Path | None = None,
    told: str = "",
    is_enough: Callable[[str], bool] = lambda line: False,
) -> list[str]:
    """Return the lines of one of gmx's tools, inside the run's environment; `words` begin with the tool's name.

    Raise SegmentError with the tool's own message if it fails.
    """
    program = whole_path(str(run.settings["tools"] or run.settings["gmx"]), base)
    command = with_gmxrc(run, [program, "-nobackup", "-quiet", *words], base)
    answer = child.ask(entered(command, run, base), folder, told, is_enough=is_enough)
    if answer.code != 0:
        what = f"exit code {answer.code} of: gmx {shlex.join(words)}"
        raise SegmentError(f"gmx {words[0]}: {complaint(answer.lines)}; {what}", run=run.name)
    return answer.lines


def complaint(lines: list[str]) -> str:
    """Return the reason that gmx gives for its failure, in one line.

    grompp numbers its errors and warnings, and its fatal error in the end only counts them.
    """
    heads = [number for number, line in enumerate(lines) if _NUMBERED.match(line)]
    numbered = [line.strip() for head in heads for line in itertools.takewhile(str.strip, lines[head:])]
    return " ".join(numbered) or error_in("\n".join(lines)) or "it said nothing"


# --- energies ---


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots for the Snakemake report of those runs that have joined energies by now."""
    places = [RunFolder(run.name) for run in runs]
    done = [place for place in places if (base / place.final / ENERGY_TABLE).is_file()]
    return [str(place.root / "report" / "energies.svg") for place in done]


def write_energy_table(run: RunSpec, energies: Path, table: Path, base: Path = Path()) -> None:
    """Write a row a frame, a column an energy, tab-separated; the first column is the time in ps."""
    # As `gmx energy` calls them.
    terms = [name.replace(" ", "-") for name in energy_head(energies)[0]]
    plain = table.with_name(f".{table.name}.xvg")
    words = ("energy", "-f", str(energies.resolve()), "-o", plain.name, "-xvg", "none", "-dp")
    told = "\n".join([*(str(number) for number in range(1, len(terms) + 1)), "", ""])
    gmx(run, *words, base=base, folder=table.parent, told=told)
    with plain.open() as source, table.open("w") as rows:
        rows.write("\t".join(["time_ps", *terms]) + "\n")
        rows.writelines("\t".join(line.split()) + "\n" for line in source)
    plain.unlink()
