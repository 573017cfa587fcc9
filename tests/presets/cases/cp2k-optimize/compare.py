"""Print what differs between two minima by more than the criteria of the search, and frames out of order."""

import math
import re
import sys
from pathlib import Path

ENERGY, LENGTH = 1e-4, 2e-2  # in Hartree and Angstrom


def frames(folder):
    """Return the numbers of the frames, the last energy, and the lengths between the last atoms."""
    text = (folder / "water-pos-1.xyz").read_text()
    heads = re.findall(r"i = +(\d+), E = +(\S+)", text)
    atoms = [[float(word) for word in line.split()[1:]] for line in text.splitlines()[-3:]]
    lengths = [math.dist(atoms[i], atoms[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    return [int(number) for number, _ in heads], float(heads[-1][1]), lengths


def main():
    (_, energy, lengths), (numbers, other_energy, other_lengths) = (frames(Path(word)) for word in sys.argv[1:])
    if numbers != list(range(1, len(numbers) + 1)):
        print(f"water-pos-1.xyz: frames {numbers}")
    if abs(energy - other_energy) > ENERGY:
        print(f"energy: {energy} and {other_energy}")
    if max(map(abs, map(float.__sub__, lengths, other_lengths))) > LENGTH:
        print(f"lengths: {lengths} and {other_lengths}")


main()
