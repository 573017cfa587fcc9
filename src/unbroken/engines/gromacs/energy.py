"""The energies of a simulation as a table that any program can read."""

from __future__ import annotations

import re
from pathlib import Path

from unbroken.engines.gromacs.tool import gmx, must_gmx
from unbroken.errors import SegmentError
from unbroken.runs.run import Run

ENERGY_TABLE = "energy.tsv"
_CHOICE = re.compile(r"(\d+) +(\S+)")


def energy_terms(run: Run, energies: Path, base: Path = Path()) -> list[str]:
    """The names of all energies in an .edr file, as `gmx energy` offers them."""
    # It ends with an error because nothing is chosen, after having printed what there is.
    offered = gmx(run, "energy", "-f", str(energies.resolve()), folder=energies.parent, told="\n", base=base).lines
    begin = next((n for n, line in enumerate(offered) if line.startswith("---")), None)
    if begin is None:
        raise SegmentError(f"{energies}: gmx energy offers nothing: {' '.join(offered[-3:])}")
    rows = [_CHOICE.findall(line) for line in offered[begin + 1 :] if _CHOICE.match(line.strip())]
    return [name for row in rows for _, name in row]


def write_energy_table(run: Run, energies: Path, table: Path, base: Path = Path()) -> None:
    """A row a frame, a column an energy, tab-separated; the first column is the time in ps."""
    terms = energy_terms(run, energies, base)
    plain = table.with_name(f".{table.name}.xvg")
    words = ("energy", "-f", str(energies.resolve()), "-o", plain.name, "-xvg", "none", "-dp")
    told = "\n".join([*(str(number) for number in range(1, len(terms) + 1)), "", ""])
    must_gmx(run, *words, folder=table.parent, told=told, base=base)
    with plain.open() as source, table.open("w") as rows:
        rows.write("\t".join(["time_ps", *terms]) + "\n")
        rows.writelines("\t".join(line.split()) + "\n" for line in source)
    plain.unlink()
