"""One segment of a GROMACS simulation: mdrun from the last checkpoint, in a folder of its own."""

from pathlib import Path

from unbroken.engines.gromacs.command import mdrun_command
from unbroken.engines.gromacs.engine import GromacsEngine
from unbroken.job.attempt import Job, main
from unbroken.job.lifecycle import run_segment
from unbroken.store.record import Record
from unbroken.store.run import RunSpec


def build_command(run: RunSpec, tpr: Path, cpt: Path | None, seconds: float) -> list[str]:
    """Return mdrun on a tpr, from a checkpoint if there is one, to leave after so many seconds.

    gmx -quiet mdrun -s topol.tpr -cpi md.cpt ... -deffnm md -noappend ... -maxh 2.000000000 -cpt 15 -ntmpi 2 -ntomp 4
    """
    return mdrun_command(run, tpr, cpt, seconds)


def gromacs_segment(job: Job) -> Record:
    """Simulate for one segment."""
    return run_segment(job, GromacsEngine(job.base))


if __name__ == "__main__":
    main(snakemake, gromacs_segment)  # type: ignore[name-defined]
