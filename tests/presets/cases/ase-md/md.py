"""Dynamics of a copper crystal; resume from md.traj if it is there."""

import os

import numpy as np
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import read
from ase.io.trajectory import Trajectory
from ase.md import MDLogger, VelocityVerlet
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

STEPS = 600
INTERVAL = 10

done = 0
if os.path.exists("md.traj"):
    done = (len(Trajectory("md.traj")) - 1) * INTERVAL
    atoms = read("md.traj")
else:
    atoms = bulk("Cu", cubic=True) * (3, 3, 3)
    MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.RandomState(1))
atoms.calc = EMT()


def save():
    """Write a frame, and close the file: so it is complete."""
    with Trajectory("md.traj", "a") as trajectory:
        trajectory.write(atoms)


dynamics = VelocityVerlet(atoms, 2 * units.fs)
dynamics.nsteps = done
dynamics.attach(MDLogger(dynamics, atoms, "md.log", header=not done), interval=INTERVAL)
dynamics.attach(save, interval=INTERVAL)
dynamics.run(STEPS - done)

with open("path.txt", "w") as file:
    for image in read("md.traj", ":"):
        print(f"{image.get_potential_energy():.9f}", *(f"{x:.9f}" for x in image.positions[5]), file=file)
