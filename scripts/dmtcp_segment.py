"""One segment of any process under DMTCP: from its images, to its images."""

from collections.abc import Sequence
from pathlib import Path

from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.dmtcp.programs import Programs
from unbroken.engines.dmtcp.protocol import supervisor_command
from unbroken.job.attempt import Job, main
from unbroken.job.lifecycle import run_segment
from unbroken.store.layout import RunFolder
from unbroken.store.record import Record
from unbroken.store.run import RunSpec


def build_command(run: RunSpec, base: Path) -> list[str]:
    """Return the supervisor, which starts the program under DMTCP and asks for its checkpoints.

    python -I -m unbroken.engines.dmtcp.supervisor --live results/demo/live -- ./simulate -n 5
    """
    return supervisor_command(run, base, RunFolder(run.name, base).root)


def program_command(port: int, images: Path, saved: Sequence[Path], command: Sequence[str]) -> list[str]:
    """Return what the supervisor starts: the program in the first segment, its saved processes in later ones.

    dmtcp_launch --join-coordinator --coord-port 7779 --no-gzip --ckptdir images ... ./simulate -n 5
    dmtcp_restart --join-coordinator --coord-port 7779 --ckptdir images ckpt_simulate.dmtcp
    """
    return Programs().restart(port, images, saved) if saved else Programs().launch(port, images, (), command)


def dmtcp_segment(job: Job) -> Record:
    """Let the program work for one segment."""
    return run_segment(job, DmtcpEngine(job.base))


if __name__ == "__main__":
    main(snakemake, dmtcp_segment)  # type: ignore[name-defined]
