"""Chains of detached jobs: submitting them, waiting for them, reading what they said."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.lab import Cluster
from cluster.site_scripts import IN_QUEUE
from support.workdir import WorkDir

from unbroken.cli.run_command import DETACHED

# The proofs at full size: UNBROKEN_FULL=1.
IS_FULL = os.environ.get("UNBROKEN_FULL", "") == "1"
PATIENCE_SECONDS = 2400.0 if IS_FULL else 600.0


def detached(work: WorkDir) -> WorkDir:
    """The same working directory, whose drivers only submit from now on."""
    work.words = DETACHED
    return work


# Python finds no command of Slurm in a job.
WITHOUT_SLURM = """\
import os
if "SLURM_JOB_ID" in os.environ:
    os.environ["PATH"] = os.environ["BARE_PATH"]
"""


def without_slurm_on_nodes(work: WorkDir) -> None:
    """Let jobs find the programs of this machine without those of Slurm."""
    folder = work.root / "bare"
    folder.mkdir()
    slurms = {"sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct", "srun", "salloc", "sacctmgr", "sstat"}
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if program.name not in slurms and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    work.write("site/sitecustomize.py", WITHOUT_SLURM)
    path = f"{Path(sys.executable).parent}:{folder}"
    work.added_environment |= {"BARE_PATH": path, "PYTHONPATH": str(work.root / "site")}


def attached(work: WorkDir) -> WorkDir:
    """The same working directory, whose drivers wait for the jobs from now on."""
    work.words = ()
    return work


def submit(work: WorkDir, *words: str) -> str:
    """Submits everything, and checks that the command returns well while the jobs are still out."""
    done = work.start(*words).wait(PATIENCE_SECONDS)
    assert done.code == 0, done.text
    return done.text


@contextmanager
def closed(cluster: Cluster) -> Iterator[None]:
    """Jobs are taken and none starts, so that none is over before it is counted."""
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    yield
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")


def wait_for_jobs(cluster: Cluster, seconds: float = PATIENCE_SECONDS) -> None:
    """Until no job is out any more."""
    # One that puts itself back into the queue is neither pending nor running for a moment.
    cluster.wait_until(lambda: not cluster.jobs(IN_QUEUE) and not time.sleep(1) and not cluster.jobs(IN_QUEUE), seconds)


def slurm_logs(work: WorkDir) -> str:
    """What Slurm kept of all jobs' own words."""
    logs = sorted(work.root.glob("logs/*/slurm-*.log"))
    return "".join(path.read_text(errors="replace") for path in logs)
