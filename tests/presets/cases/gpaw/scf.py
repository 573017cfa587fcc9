"""Ground state of ethanol; resume from scf.gpw if it is there."""

import os

from ase.build import molecule
from gpaw import GPAW, PW

if os.path.exists("scf.gpw"):
    calc = GPAW("scf.gpw", txt="scf.txt")
    atoms = calc.get_atoms()
else:
    atoms = molecule("CH3CH2OH", vacuum=2.0, pbc=True)
    calc = GPAW(mode=PW(250), xc="PBE", txt="scf.txt", convergence={"density": 1e-7})
    atoms.calc = calc
calc.attach(calc.write, 3, "scf.gpw", "all")

energy = atoms.get_potential_energy()
with open("energy.txt", "w") as file:
    print(f"{energy:.9f}", file=file)
