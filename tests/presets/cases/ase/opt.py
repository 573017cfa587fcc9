"""Relax an alloy of copper and gold; resume from opt.traj and opt.json if they are there."""

import os

from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import read
from ase.optimize import BFGS

if os.path.exists("opt.traj"):
    atoms = read("opt.traj")
else:
    atoms = bulk("Cu", cubic=True) * (3, 3, 3)
    atoms.symbols[::7] = "Au"
    atoms.rattle(0.4, seed=1)
atoms.calc = EMT()
optimizer = BFGS(atoms, trajectory="opt.traj", append_trajectory=True, restart="opt.json", logfile="opt.log")
optimizer.run(fmax=0.01)

with open("path.txt", "w") as file:
    for image in read("opt.traj", ":"):
        print(f"{image.get_potential_energy():.12f}", *(f"{x:.12f}" for x in image.positions[5]), file=file)
