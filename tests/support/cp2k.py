"""A small system for CP2K: argon as a Lennard-Jones liquid, a few thousand steps of molecular dynamics in a minute."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SAVED_EVERY = 50
# Of a cell, in Angstrom.
SIDE = 5.4
BASE = ((0.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0))
TRIAL_STEPS = 600
# STEPS counts from where a restart begins, MAX_STEPS from the first step of all.
INPUT = """&GLOBAL
  PROJECT aimd
  RUN_TYPE MD
  PRINT_LEVEL LOW
&END GLOBAL
&MOTION
  &MD
    ENSEMBLE NVE
    STEPS @steps@
    MAX_STEPS @steps@
    TIMESTEP 2.0
    TEMPERATURE 80
  &END MD
  &PRINT
    &TRAJECTORY OFF
    &END TRAJECTORY
    &RESTART
      BACKUP_COPIES 0
      &EACH
        MD @every@
      &END EACH
    &END RESTART
    &RESTART_HISTORY OFF
    &END RESTART_HISTORY
  &END PRINT
&END MOTION
&FORCE_EVAL
  METHOD FIST
  &MM
    &FORCEFIELD
      &NONBONDED
        &LENNARD-JONES
          ATOMS Ar Ar
          EPSILON 119.8
          SIGMA 3.405
          RCUT 7.0
        &END LENNARD-JONES
      &END NONBONDED
      &CHARGE
        ATOM Ar
        CHARGE 0.0
      &END CHARGE
    &END FORCEFIELD
    &POISSON
      &EWALD
        EWALD_TYPE NONE
      &END EWALD
    &END POISSON
  &END MM
  &SUBSYS
    &CELL
      ABC 21.6 21.6 21.6
    &END CELL
    &COORD
      @include argon.xyz
    &END COORD
  &END SUBSYS
&END FORCE_EVAL
"""


@dataclass(frozen=True)
class State:
    """What a restart file says: the step that it begins with, and all positions in Angstrom."""

    step: int
    positions: list[float]


def program() -> Path:
    """CP2K itself."""
    return Path(shutil.which("cp2k.psmp") or shutil.which("cp2k") or "cp2k")


def input_text(steps: int) -> str:
    """The input for so many steps."""
    return INPUT.replace("@steps@", str(steps)).replace("@every@", str(SAVED_EVERY))


def argon(cells: int) -> str:
    """Atoms at rest in a cube of so many cells, four in each."""
    places = itertools.product(range(cells), range(cells), range(cells), BASE)
    rows = ((SIDE * (x + a), SIDE * (y + b), SIDE * (z + c)) for x, y, z, (a, b, c) in places)
    return "".join(f"Ar {x:.4f} {y:.4f} {z:.4f}\n" for x, y, z in rows)


def steps_in(folder: Path, atoms: str, seconds: float, least: int) -> int:
    """How many steps take about so many seconds of a core that does nothing else; a busy one takes longer."""
    folder.mkdir()
    (folder / "aimd.inp").write_text(input_text(TRIAL_STEPS))
    (folder / "argon.xyz").write_text(atoms)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = os.times()
    subprocess.run([program(), "-i", "aimd.inp", "-o", "aimd.out"], cwd=folder, check=True, env=environment)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return max(least, int(TRIAL_STEPS / used * seconds) // SAVED_EVERY * SAVED_EVERY)


def state(restart: Path) -> State:
    """What a restart file says."""
    text = restart.read_text()
    found = re.search(r"STEP_START_VAL +(\d+)", text)
    rows = re.findall(
        r"^ *Ar +(\S+) +(\S+) +(\S+)", text.partition("&COORD")[2].partition("&END COORD")[0], re.MULTILINE
    )
    return State(int(found[1]) if found else 0, [float(value) for row in rows for value in row])
