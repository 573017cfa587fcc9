"""One segment of a toy run: the smallest engine and the pattern for all others."""

from unbroken.engines.toy.engine import ToyEngine, counting_command
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run) -> list[str]:
    """The argument list that starts the counting program; it finds its last state by itself (UNBROKEN_RESUME)."""
    return counting_command(run)


def toy_segment(job: Job) -> Record:
    """Counts for one segment."""
    return run_segment(job, ToyEngine(job.base))


if __name__ == "__main__":
    main(snakemake, toy_segment)  # type: ignore[name-defined]
