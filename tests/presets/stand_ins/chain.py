"""What the stand-ins of programs that cannot be had compute: a chain of atoms with springs that are not linear.

The same arithmetic in the same order each time: a run from a saved state comes to the bytes of an uninterrupted one.
"""

import math
import time

ATOMS = 12
STEP_SECONDS = 0.05


def first_places():
    """Return where the atoms are at the beginning: three numbers for each."""
    return [[1.5 * atom + 0.1 * math.sin(atom), 0.05 * atom, 0.1 * (atom % 3)] for atom in range(ATOMS)]


def first_speeds(seed):
    """Return the speeds of a temperature, as a random number generator draws them."""
    number, speeds = seed, []
    for _ in range(ATOMS):
        speed = []
        for _ in range(3):
            number = (number * 16807) % 2147483647
            speed.append(number / 2147483647 - 0.5)
        speeds.append(speed)
    return speeds


def forces(places):
    """Return the forces of the springs between neighbors."""
    found = [[0.0, 0.0, 0.0] for _ in places]
    for atom in range(len(places) - 1):
        ends = places[atom], places[atom + 1]
        apart = [b - a for a, b in zip(*ends, strict=True)]
        length = math.sqrt(sum(each * each for each in apart))
        pull = (length - 1.5) + 0.3 * (length - 1.5) ** 3
        for axis in range(3):
            found[atom][axis] += pull * apart[axis] / length
            found[atom + 1][axis] -= pull * apart[axis] / length
    return found


def moved(places, speeds, digits=None):
    """Return places and speeds one step later; rounded as a restart file of text has them."""
    time.sleep(STEP_SECONDS)
    half = [[v + 0.05 * f for v, f in zip(*each, strict=True)] for each in zip(speeds, forces(places), strict=True)]
    places = [[x + 0.1 * v for x, v in zip(*each, strict=True)] for each in zip(places, half, strict=True)]
    speeds = [[v + 0.05 * f for v, f in zip(*each, strict=True)] for each in zip(half, forces(places), strict=True)]
    if digits is not None:
        places, speeds = ([[round(x, digits) for x in each] for each in side] for side in (places, speeds))
    return places, speeds


def relaxed(places, digits):
    """Return places one step further down, and the largest force there."""
    time.sleep(STEP_SECONDS)
    pulled = forces(places)
    places = [
        [round(x + 0.2 * f, digits) for x, f in zip(*each, strict=True)] for each in zip(places, pulled, strict=True)
    ]
    return places, max(abs(f) for each in pulled for f in each)
