"""One segment of a GROMACS simulation: mdrun from the last checkpoint, in a folder of its own."""

from pathlib import Path

from unbroken.engines.gromacs.command import mdrun_command
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.outcome import MdrunEnd, newest_state
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run, tpr: Path, cpt: Path | None, seconds: float) -> list[str]:
    """mdrun on a tpr, from a checkpoint if there is one, to leave after so many seconds."""
    return mdrun_command(run, tpr, cpt, seconds)


def read_ending(folder: Path, origin: Checkpoint | None, end_step: int | None) -> MdrunEnd:
    """What mdrun left in its folder: the checkpoint that counts, and whether the simulation is over."""
    log = Log(max(folder.glob("md.part*.log"), default=folder / "md.log"))
    log.read()
    return newest_state(folder, origin, end_step, log.has_finished)


def gromacs_segment(job: Job) -> Record:
    """Simulates for one segment."""
    return run_segment(job, GromacsEngine(job.base))


if __name__ == "__main__":
    main(snakemake, gromacs_segment)  # type: ignore[name-defined]
