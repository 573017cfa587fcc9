"""Print what differs between two runs by more than the threshold of the SCF (EPS_SCF) leaves open."""

import sys
from pathlib import Path

# Of a row: step, time, kinetic energy, temperature, potential, conserved quantity; then the seconds that it took.
ENERGIES = {2: 1e-7, 3: 1e-2, 4: 1e-7, 5: 1e-7}
POSITIONS = 1e-6  # in Angstrom
VELOCITIES = 1e-6


def numbers(path):
    rows = (line.split() for line in path.read_text().splitlines())
    return [[float(word) for word in row] for row in rows if row[0] != "#"]


def frames(path):
    """Return the heads of the frames, without energies, and the coordinates."""
    lines = path.read_text().splitlines()
    atoms = [line.split() for line in lines if line.split()[0] == "H"]
    heads = [line.rpartition("E =")[0] or line for line in lines if line.split()[0] != "H"]
    return heads, [float(word) for row in atoms for word in row[1:]]


def main():
    folders = [Path(word) for word in sys.argv[1:]]
    one, other = (numbers(folder / "hydrogen-1.ener") for folder in folders)
    if [row[:2] for row in one] != [row[:2] for row in other]:
        print("hydrogen-1.ener: other steps")
    for a, b in zip(one, other, strict=True):
        for column, most in ENERGIES.items():
            if abs(a[column] - b[column]) > most:
                print(f"hydrogen-1.ener: step {a[0]:.0f}, column {column + 1}: {a[column]} and {b[column]}")
    for name, most in {"hydrogen-pos-1.xyz": POSITIONS, "hydrogen-vel-1.xyz": VELOCITIES}.items():
        (heads, values), (other_heads, other_values) = (frames(folder / name) for folder in folders)
        if heads != other_heads:
            print(f"{name}: other frames")
        apart = max(abs(a - b) for a, b in zip(values, other_values, strict=True))
        if apart > most:
            print(f"{name}: up to {apart} apart")


main()
