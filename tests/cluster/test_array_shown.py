"""The array of a run as `unbroken status` and `unbroken account` show it, on a real cluster."""

import json
import re

import pytest
from cluster.detached import detached, submit, wait_for_jobs
from cluster.lab import Cluster
from support.workdir import WorkDir, until

LONG = {
    "engine": "toy",
    "segments": 4,
    "segment_minutes": 0.3,
    "settings": {"goal": 2000, "step_seconds": 0.05, "save_steps": 20},
}


@pytest.fixture
def closed(slurm_work: WorkDir, cluster: Cluster) -> WorkDir:
    """A run whose six tasks are in the queue of a partition that is down."""
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    slurm_work.configure({"a": LONG})
    submit(detached(slurm_work))
    return slurm_work


def test_a_run_whose_tasks_wait_and_one_that_works_show_what_waits_once(closed: WorkDir, cluster: Cluster) -> None:
    cluster.wait_until(lambda: "PartitionDown" in cluster.run("squeue", "--format=%r"))
    waiting = closed.unbroken("status", columns=300).text
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    until(lambda: len(closed.records("a")) >= 1 and closed.saved("a") > 1)
    cluster.wait_until(lambda: re.search(r" \d+_2 ", cluster.run("squeue", "--states=running", "--format= %i ")))
    until(lambda: "working" in closed.unbroken("status", columns=300).text)
    working = closed.unbroken("status", columns=300).text
    wait_for_jobs(cluster)
    (account,) = json.loads(closed.unbroken("account", "a", "--json").text)

    first = r"^a: Slurm job (\d+)_1 is PENDING \(PartitionDown\): its partition is down; .*"
    assert re.search(first + r"; 5 tasks of job \1 wait behind it$", waiting, re.MULTILINE), waiting
    assert re.search(r"^a: .*; 4 tasks of job \d+ wait behind it", working, re.MULTILINE), working
    assert "PENDING" not in working and "JobArrayTaskLimit" not in working
    # From the first task's end to the last one's start the run waited in the queue: it was submitted all the time.
    assert account["seconds"]["idle"] < 3, account["seconds"]
    assert account["seconds"]["queued"] >= 3, account["seconds"]
