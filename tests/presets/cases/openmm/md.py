"""Simulate water; resume from md.chk if it is there."""

import os

from openmm import LangevinMiddleIntegrator, Platform
from openmm.app import (
    PME,
    CheckpointReporter,
    DCDReporter,
    ForceField,
    HBonds,
    PDBFile,
    Simulation,
    StateDataReporter,
)
from openmm.unit import kelvin, nanometer, picosecond, picoseconds

STEPS = 7000

pdb = PDBFile("water.pdb")
forcefield = ForceField("amber14/tip3p.xml")
system = forcefield.createSystem(
    pdb.topology, nonbondedMethod=PME, nonbondedCutoff=0.45 * nanometer, constraints=HBonds
)
integrator = LangevinMiddleIntegrator(300 * kelvin, 1 / picosecond, 0.001 * picoseconds)
integrator.setRandomNumberSeed(1)
platform = Platform.getPlatformByName("Reference")  # which computes the same bytes after a restart
simulation = Simulation(pdb.topology, system, integrator, platform)
resumed = os.path.exists("md.chk")
if resumed:
    simulation.loadCheckpoint("md.chk")
else:
    simulation.context.setPositions(pdb.positions)
    simulation.minimizeEnergy()
    simulation.context.setVelocitiesToTemperature(300 * kelvin, 2)
simulation.reporters.append(DCDReporter("md.dcd", 50, append=resumed))
simulation.reporters.append(
    StateDataReporter("md.csv", 10, step=True, potentialEnergy=True, temperature=True, append=resumed)
)
simulation.reporters.append(CheckpointReporter("md.chk", 100))
simulation.step(STEPS - simulation.currentStep)
simulation.saveState("final.xml")
