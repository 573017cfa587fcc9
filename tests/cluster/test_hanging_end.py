"""A job that Slurm cannot end, on a real cluster: the chain goes on without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.lab import Cluster
from cluster.lab_limits import configured

from unbroken.job import array
from unbroken.slurm import job
from unbroken.slurm.job import chain_comment
from unbroken.slurm.queue import my_jobs

# The first task is over and lets its epilog hang; the others work until the file is there.
TASKS = """\
[ $SLURM_ARRAY_TASK_ID != 1 ] || { touch hangs.$SLURM_JOB_ID; exit 0; }
until [ -e go ]; do sleep 0.1; done
"""


@contextmanager
def hanging_epilogs(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Let the epilog of a job hang for as long as the file `hangs.<number>` is there."""
    epilog = folder / "epilog"
    epilog.write_text(f'#!/bin/sh\nwhile [ -e "{folder}/hangs.$SLURM_JOB_ID" ]; do sleep 0.1; done\n')
    epilog.chmod(0o755)
    with configured(cluster, Epilog=epilog):
        cluster.run("scontrol", "reconfigure")  # for the nodes
        yield
        for path in folder.glob("hangs.*"):
            path.unlink()
        cluster.cancel_everything()
    cluster.run("scontrol", "reconfigure")


def test_the_next_array_waits_for_no_task_that_hangs_in_its_end(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    with hanging_epilogs(cluster, tmp_path):
        number = cluster.array(TASKS, 2, f"--comment={chain_comment('a')}", cwd=tmp_path)
        cluster.wait_until(lambda: cluster.tasks(number) == {1: "COMPLETING", 2: "RUNNING"})
        jobs = my_jobs()
        assert jobs is not None
        assert array._behind(jobs, "a") == [number]

        monkeypatch.setattr(job, "LEAVING_SECONDS", 1.0)
        cluster.wait_until(lambda: array._behind(jobs, "a") == [f"{number}_2"])
        following = cluster.sbatch("true", f"--dependency=afterany:{number}_2", cwd=tmp_path)
        (tmp_path / "go").touch()
        cluster.wait_until(lambda: cluster.state(following) == "COMPLETED")

        assert cluster.state(f"{number}_1") == "COMPLETING"
