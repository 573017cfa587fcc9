"""The claim: who holds a run, or held it, as its file says (`lease`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1


@dataclass(frozen=True)
class Claim:
    """Who holds, or held, a run."""

    token: int
    segment: int
    host: str
    pid: int
    pid_start: str
    pid_namespace: str
    boot_id: str
    slurm_job: str
    user: str
    started_utc: str
    released_utc: str = ""
    slurm_node: str = ""
    slurm_cluster: str = ""  # a job's number means something there alone
    mem_mb: int = 0
    start: str = ""  # the start of snakemake that its attempt belongs to

    @property
    def of_attempt(self) -> dict[str, Any]:
        """Return what the history says of its attempt too, by the same names."""
        names = ("token", "host", "pid", "slurm_job", "slurm_node", "slurm_cluster", "mem_mb", "start")
        return {name: getattr(self, name) for name in names}

    def describe(self) -> str:
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        return f"segment {self.segment} by process {self.pid} on {self.host}{job} since {self.started_utc}"


def claim_path(folder: Path, token: int) -> Path:
    """The file of a claim."""
    return folder / f"{token:06d}.json"
