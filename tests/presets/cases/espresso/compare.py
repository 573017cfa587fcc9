"""Print what differs between two runs of pw.x: of dynamics each step and the last state, of a search its end."""

import math
import re
import sys
from pathlib import Path

# In Rydberg and bohr: what the threshold of the SCF leaves open after 60 steps, and the criteria of the search.
ENERGY, POSITION, END = 1e-7, 1e-6, 1e-4
REPEATED = 2e-8


def energies(folder):
    """Return the energy of each step; an SCF after which pw.x was stopped is computed once more."""
    found = [float(each) for each in re.findall(r"^!.*=\s+(\S+) Ry", (folder / "h2.out").read_text(), re.MULTILINE)]
    return [each for each, before in zip(found, [0.0, *found], strict=False) if abs(each - before) > REPEATED]


def atoms(folder):
    rows = re.findall(r"^H +(\S+) +(\S+) +(\S+)", (folder / "h2.out").read_text(), re.MULTILINE)
    return [float(word) for row in rows for word in row]


def length(molecule):
    """Return the length of the bond: a search may leave it turned by more than its criteria."""
    return math.dist(molecule[:3], molecule[3:])


def state(folder):
    """Return energy, step and positions."""
    return [float(word) for word in (folder / "out/h2.md").read_text().split()[:8]]


def compare(name, values, most):
    one, other = values
    if len(one) != len(other):
        print(f"{name}: {len(one)} and {len(other)}")
    elif (apart := max(map(abs, map(float.__sub__, one, other)))) > most:
        print(f"{name}: up to {apart} apart")


def main():
    folders = list(map(Path, sys.argv[1:]))
    if (folders[0] / "out/h2.md").exists():
        compare("energies", list(map(energies, folders)), ENERGY)
        compare("positions", list(map(atoms, folders)), POSITION)
        compare("the last state", list(map(state, folders)), POSITION)
    else:
        compare("the last energy", [energies(folder)[-1:] for folder in folders], ENERGY)
        compare("the last length", [[length(atoms(folder)[-6:])] for folder in folders], END)


main()
