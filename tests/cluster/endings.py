"""What the tests of the ways in which a job can end share, with a driver and without."""

import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cluster.lab import Cluster, LabError
from support.workdir import WorkDir, overlaps, uninterrupted, until

from unbroken.engines.testing.chain import is_alive
from unbroken.store.history import Attempt

# Wants more memory than 400 MB, then has reached its goal.
HUNGRY = """\
import os, pathlib
block = bytearray(500 * 1024 * 1024)
save = pathlib.Path(os.environ["UNBROKEN_SAVE"])
(save / "state").write_text("5")
(save / "progress.json").write_text('{"done": 5, "goal": 5, "unit": "steps"}')
"""

# Counts one step a job, and breaks on the node that it fails on first.
BREAKS_ON_A_NODE = """\
import os, pathlib
node, bad = os.environ["SLURMD_NODENAME"], pathlib.Path(os.environ["BAD_NODE"])
if not bad.exists():
    bad.write_text(node)
if bad.read_text() == node:
    raise SystemExit(f"{node} is broken")
save, resume = pathlib.Path(os.environ["UNBROKEN_SAVE"]), os.environ.get("UNBROKEN_RESUME")
done = 1 + (int((pathlib.Path(resume) / "state").read_text()) if resume else 0)
(save / "state").write_text(str(done))
(save / "progress.json").write_text(f'{{"done": {done}, "goal": 2, "unit": "steps"}}')
raise SystemExit(0 if done == 2 else 85)
"""


def job_of(work: WorkDir, run: str = "a") -> str:
    """The Slurm job that holds, or last held, the run."""
    return str(work.claim(run)["slurm_job"])


def arrays(jobs: Iterable[str]) -> set[str]:
    """Return the numbers of the arrays that these tasks are of; a single job has its own."""
    return {job.partition("_")[0] for job in jobs}


def submitted(text: str) -> list[str]:
    """Return the numbers of the arrays and jobs that a driver says it has submitted for runs."""
    return re.findall(r"unbroken: \S+: submitted (?:array of \d+ tasks|job) (\d+)", text)


def signal_job(cluster: Cluster, job: str, word: str) -> None:
    """Send a signal to a job; whether it arrives is seen in the log of its segment.

    Of a task scancel looks again some seconds later, and fails if the task has left on the signal [Slurm 22.05].
    """
    with suppress(LabError):
        cluster.run("scancel", f"--signal={word}", job)


def release_told(work: WorkDir, cluster: Cluster, array: str) -> list[str]:
    """Return the command that `unbroken status` says to type for the held tasks of an array, once it says so."""
    text = rf"a: Slurm job {array}\S* is PENDING \(JobHeldUser\): it is held; type: (scontrol release \w+)"
    found = cluster.wait_until(lambda: re.search(text, work.unbroken("status", columns=300).text))
    assert isinstance(found, re.Match)
    return str(found[1]).split()


def wait_until_it_hears(work: WorkDir) -> None:
    """Until the segment at work hears what Slurm tells its job: a step of its own starts for that, beside the work."""
    until(lambda: any(_handles(pid, signal.SIGURG) for pid in work.processes("slurm/signal_relay.py")))


def _handles(pid: int, number: signal.Signals) -> bool:
    try:
        (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)


def freeze(pid: int) -> None:
    """Keeps a process from running until it is killed; Slurm wakes what it ends."""
    while is_alive(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.002)


def assert_is_whole(work: WorkDir, tmp_path: Path, goal: int, run: str = "a") -> list[Attempt]:
    """The result is that of an uninterrupted count and no two attempts overlap; returns the history."""
    assert work.final(run) == uninterrupted(tmp_path / "whole", goal)
    history = work.history(run)
    assert list(overlaps(history)) == []
    return history
