"""One segment of any process under DMTCP: from its images, to its images."""

from pathlib import Path

from unbroken.engines.dmtcp.command import keeper_command
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.dmtcp.state import DmtcpState, read_state
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run, base: Path) -> list[str]:
    """The keeper, which starts the program under DMTCP."""
    return keeper_command(run, base, RunFolder(run.name, base).root)


def read_checkpoint(folder: Path) -> DmtcpState:
    """What a checkpoint says of the program: how long it has worked, on what machine."""
    return read_state(folder)


def dmtcp_segment(job: Job) -> Record:
    """Lets the program work for one segment."""
    return run_segment(job, DmtcpEngine(job.base))


if __name__ == "__main__":
    main(snakemake, dmtcp_segment)  # type: ignore[name-defined]
