"""One segment of a run of any engine; torch, tensorflow, gromacs and dmtcp have scripts that show their commands."""

from unbroken.engines.found import engine_of
from unbroken.job.attempt import Job, main
from unbroken.job.lifecycle import run_segment
from unbroken.store.record import Record


def segment(job: Job) -> Record:
    """Work for one segment."""
    return run_segment(job, engine_of(job.run, job.base))


if __name__ == "__main__":
    main(snakemake, segment)  # type: ignore[name-defined]
