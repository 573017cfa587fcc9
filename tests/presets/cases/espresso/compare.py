"""Print what differs between two runs of pw.x by more than the rounding of sums: energies, atoms, steps."""

import re
import sys
from pathlib import Path

# In Rydberg and bohr.
ENERGY, POSITION = 1e-8, 1e-7


def energies(folder):
    return [float(each) for each in re.findall(r"^!.*=\s+(\S+) Ry", (folder / "h2.out").read_text(), re.MULTILINE)]


def atoms(folder):
    rows = re.findall(r"^H +(\S+) +(\S+) +(\S+)", (folder / "h2.out").read_text(), re.MULTILINE)
    return [float(word) for row in rows for word in row]


def numbers(path):
    return [float(word) for word in path.read_text().split()[:8]]  # energy, step, positions


def compare(name, one, other, most):
    if len(one) != len(other):
        print(f"{name}: {len(one)} and {len(other)}")
    elif (apart := max(map(abs, map(float.__sub__, one, other)))) > most:
        print(f"{name}: up to {apart} apart")


def main():
    one, other = map(Path, sys.argv[1:])
    compare("energies", energies(one), energies(other), ENERGY)
    compare("positions", atoms(one), atoms(other), POSITION)
    if (one / "out/h2.md").exists():
        compare("the state of the dynamics", *(numbers(folder / "out/h2.md") for folder in (one, other)), POSITION)


main()
