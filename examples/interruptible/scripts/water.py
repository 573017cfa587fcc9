"""Makes a small box of water ready for GROMACS: 216 molecules, as they come with it, and what is to be simulated."""

import subprocess
import sys
import tempfile
from pathlib import Path

TOPOLOGY = """\
#include "amber99sb-ildn.ff/forcefield.itp"
#include "amber99sb-ildn.ff/tip3p.itp"
[ system ]
water
[ molecules ]
"""
SETTINGS = """\
integrator = md
dt = 0.002
nsteps = {steps}
nstxout-compressed = 500
nstenergy = 500
coulombtype = reaction-field
epsilon-rf = 78
rcoulomb = 0.8
rvdw = 0.8
constraints = h-bonds
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-temp = 300
gen-seed = 1
ld-seed = 1
"""

tpr, steps = Path(sys.argv[1]).absolute(), sys.argv[2]

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "topol.top").write_text(TOPOLOGY)
    Path(folder, "md.mdp").write_text(SETTINGS.format(steps=steps))
    box = ["gmx", "solvate", "-cs", "spc216.gro", "-box", "1.86206", "-o", "box.gro", "-p", "topol.top"]
    subprocess.run(box, cwd=folder, check=True)
    input_file = ["gmx", "grompp", "-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", str(tpr)]
    subprocess.run(input_file, cwd=folder, check=True)
