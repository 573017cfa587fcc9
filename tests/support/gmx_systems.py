"""Small systems for GROMACS, built offline in a second, and what an uninterrupted `mdrun` makes of them."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gromacs"

TOPOLOGY = """#include "amber99sb-ildn.ff/forcefield.itp"
#include "amber99sb-ildn.ff/tip3p.itp"
[ system ]
water
[ molecules ]
"""
SHORT_RANGE = {"cutoff-scheme": "Verlet", "coulombtype": "PME", "rcoulomb": 0.8, "rvdw": 0.8}
# Two thirds of what PME costs; PME itself is in NPT and in the dipeptide.
CHEAP = {**SHORT_RANGE, "coulombtype": "reaction-field", "epsilon-rf": 78}
NVT = {
    **CHEAP,
    "integrator": "md",
    "dt": 0.002,
    "nsteps": 5000,
    "nstxout-compressed": 100,
    "nstxout": 1000,
    "nstvout": 1000,
    "nstenergy": 50,
    "nstlog": 200,
    "constraints": "h-bonds",
    "tcoupl": "v-rescale",
    "tc-grps": "System",
    "tau-t": 0.1,
    "ref-t": 300,
    "gen-vel": "yes",
    "gen-temp": 300,
    "gen-seed": 1,
    "ld-seed": 1,
}
NPT = {**NVT, **SHORT_RANGE, "pcoupl": "C-rescale", "tau-p": 1.0, "ref-p": 1.0, "compressibility": 4.5e-5}
# Two molecules held at their distance by a spring, and charges scaled by lambda: each writes tables of its own.
UMBRELLA = {
    "pull": "yes",
    "pull-ngroups": 2,
    "pull-group1-name": "one",
    "pull-group2-name": "two",
    "pull-ncoords": 1,
    "pull-coord1-type": "umbrella",
    "pull-coord1-geometry": "distance",
    "pull-coord1-groups": "1 2",
    "pull-coord1-k": 1000,
    "pull-coord1-start": "yes",
    "pull-nstxout": 10,
    "pull-nstfout": 10,
}
FREE_ENERGY = {
    "free-energy": "yes",
    "couple-moltype": "SOL",
    "couple-lambda0": "vdw-q",
    "couple-lambda1": "vdw",
    "couple-intramol": "yes",
    "init-lambda-state": 1,
    "coul-lambdas": "0 0.01 0.02",
    "nstdhdl": 10,
}
# The dipeptide is turned in slabs: a table of its own, and three that no checkpoint of mdrun counts.
ROTATION = {
    **CHEAP,
    "rotation": "yes",
    "rot-nstrout": 20,
    "rot-nstsout": 100,
    "rot-ngroups": 1,
    "rot-group0": "Protein",
    "rot-type0": "flex2",
    "rot-vec0": "0 0 1",
    "rot-pivot0": "0 0 0",
    "rot-rate0": 10,
    "rot-k0": 500,
    "rot-slab-dist0": 0.5,
    "rot-fit-method0": "norm",
}
FIXED_LIST = {"verlet-buffer-tolerance": -1, "nstlist": 20, "rlist": 0.9}


def run(folder: Path, *words: object, told: str = "") -> subprocess.CompletedProcess[str]:
    """gmx in a folder; a failure shows all that it said."""
    command = ["gmx", "-quiet", "-nobackup", *map(str, words)]
    done = subprocess.run(command, cwd=folder, input=told, text=True, capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@functools.cache
def workplace() -> Path:
    """A folder for the systems of this process."""
    folder = Path(tempfile.mkdtemp(prefix="unbroken-gmx-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def water() -> Path:
    """A folder with 221 relaxed molecules of water (663 atoms): conf.gro and topol.top."""
    folder = workplace() / "water"
    folder.mkdir()
    (folder / "topol.top").write_text(TOPOLOGY)
    run(folder, "solvate", "-cs", "spc216.gro", "-box", 2, 2, 2, "-o", "box.gro", "-p", "topol.top")
    # Two molecules by themselves, for forces between them.
    groups = {"System": range(1, 664), "one": (1, 2, 3), "two": (331, 332, 333)}
    (folder / "index.ndx").write_text(
        "".join(f"[ {name} ]\n{' '.join(map(str, atoms))}\n" for name, atoms in groups.items())
    )
    write_mdp(folder / "em.mdp", {**SHORT_RANGE, "integrator": "steep", "nsteps": 500})
    run(folder, "grompp", "-f", "em.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "em.tpr")
    run(folder, "mdrun", "-deffnm", "em", "-c", "conf.gro", "-ntmpi", 1, "-ntomp", 1)
    return folder


@functools.cache
def dipeptide() -> Path:
    """The folder of the example, built in a copy; 4000 steps instead of 10,000, which `dipeptide_mdp` changes."""
    folder = workplace() / "dipeptide"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("results", "logs", "system", ".snakemake"))
    subprocess.run([folder / "build.sh"], check=True, capture_output=True)
    mdp = folder / "md.mdp"
    mdp.write_text(_with_steps(mdp, 4000))
    return folder


def rotation_tpr(steps: int) -> Path:
    """A tpr of the dipeptide under enforced rotation, in water, with one fixed list of neighbors."""
    folder = dipeptide()
    tpr = folder / f"rotation-{steps}.tpr"
    if not tpr.exists():
        values = {**NVT, **ROTATION, **FIXED_LIST, "nsteps": steps, "nstxout": 0, "nstvout": 0}
        write_mdp(folder / "rotation.mdp", values)
        files = ("-f", "rotation.mdp", "-c", "system/conf.gro", "-p", "system/topol.top")
        run(folder, "grompp", *files, "-o", tpr.name, "-maxwarn", 3)
    return tpr


def dipeptide_mdp(steps: int) -> Path:
    """The same settings for another number of steps."""
    mdp = dipeptide() / f"md-{steps}.mdp"
    mdp.write_text(_with_steps(dipeptide() / "md.mdp", steps))
    return mdp


def _with_steps(mdp: Path, steps: int) -> str:
    return re.sub(r"(?m)^(nsteps +=) \d+", rf"\1 {steps}", mdp.read_text())


@functools.cache
def nvt_steps_per_second() -> float:
    """How fast a core of this machine computes the NVT water if it does nothing else."""
    tpr, before, began = water_tpr("speed", nsteps=2000), os.times(), time.monotonic()
    measured = _steps_per_second(plain_mdrun(tpr, workplace() / "speed") / "md.log")
    lasted, after = time.monotonic() - began, os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    return measured * max(1.0, lasted / worked)


def steps_in(seconds: float, least: int, cost: float = 1.0) -> int:
    """So many steps as last that long on an idle core here, for a run that a test has to meet on its way.

    `cost` is that of a step, the NVT water's being 1.
    """
    return max(least, round(seconds * nvt_steps_per_second() / cost / 1000) * 1000)


def _steps_per_second(log: Path) -> float:
    found = re.search(r"(?m)^Performance: +([0-9.]+)", log.read_text())
    assert found is not None, log
    ns_per_day = float(found[1])
    return ns_per_day * 1000 / float(NVT["dt"]) / 86400  # type: ignore[arg-type]


def write_mdp(path: Path, values: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    return path


def water_tpr(name: str, values: Mapping[str, object] = NVT, **changes: object) -> Path:
    """A tpr of the water, made once for each name; `nst_log=5` sets nst-log."""
    tpr = water() / f"{name}.tpr"
    if not tpr.exists():
        wanted = {**values, **{key.replace("_", "-"): value for key, value in changes.items()}}
        mdp = write_mdp(water() / f"{name}.mdp", wanted)
        files = ("-f", mdp.name, "-c", "conf.gro", "-p", "topol.top", "-n", "index.ndx")
        run(water(), "grompp", *files, "-o", tpr.name, "-maxwarn", 2)
    return tpr


def plain_mdrun(tpr: Path, folder: Path, *words: object) -> Path:
    """One uninterrupted mdrun of a tpr, without unbroken; the folder with md.xtc, md.trr, md.edr and md.gro."""
    folder.mkdir(parents=True)
    run(folder, "mdrun", "-s", tpr.resolve(), "-deffnm", "md", "-ntmpi", 1, "-ntomp", 1, "-reprod", *words)
    return folder


def is_here() -> bool:
    """True where there is a gmx."""
    return shutil.which("gmx") is not None
