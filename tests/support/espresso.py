"""A molecule for Quantum ESPRESSO, with a pseudopotential that its own program makes: nothing is downloaded."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

# Of hydrogen, by Troullier and Martins, with one channel that is local.
ATOM = """&input
 title='H', zed=1.0, rel=0, config='1s1', iswitch=3, dft='PZ'
/
&inputp
 pseudotype=1, tm=.true., lloc=0, file_pseudopw='H.UPF', author='generated'
/
1
1S 1 0 1.00 0.00 0.80 0.80
"""
# Where there is nothing to restart from, pw.x begins anew.
INPUT = """&control
 calculation='relax', restart_mode='restart', prefix='h2', outdir='./out', pseudo_dir='@folder@'
 nstep=100, forc_conv_thr=1e-6, etot_conv_thr=1e-10
/
&system
 ibrav=1, celldm(1)=18.0, nat=2, ntyp=1, ecutwfc=90.0
/
&electrons
 conv_thr=1e-12
/
&ions
/
ATOMIC_SPECIES
H 1.0 H.UPF
ATOMIC_POSITIONS bohr
H 0.0 0.0 0.0
H 2.4 0.3 0.2
K_POINTS gamma
"""


def make_pseudopotential(folder: Path) -> None:
    """H.UPF, in a folder."""
    subprocess.run(["ld1.x"], cwd=folder, input=ATOM, text=True, check=True, capture_output=True)


def input_text(folder: Path) -> str:
    """The input, for a pseudopotential that lies in a folder."""
    return INPUT.replace("@folder@", str(folder))


def distance(data: Path) -> float:
    """Between the atoms that the last step left, in bohr."""
    text = data.read_text().rpartition("<output>")[2]
    atoms = re.findall(r'<atom name="H"[^>]*>([^<]*)</atom>', text)
    first, second = ([float(value) for value in atom.split()] for atom in atoms[:2])
    return math.dist(first, second)
