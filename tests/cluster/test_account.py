"""The account of a run on a real cluster: its times are Slurm's."""

import itertools
import json
import os
import signal
from datetime import datetime

import pytest
from cluster.lab import Cluster
from support.pages import facts_in
from support.workdir import WorkDir, until

from unbroken.report.account import account
from unbroken.report.spans import Kind
from unbroken.store.history import EndKind


def end_of(cluster: Cluster, job: str) -> float:
    """When the job left, in Unix seconds, as accounting tells it."""
    words = ("--allocations", "--noheader", "--parsable2", "--format=End", "--jobs", job)
    end = cluster.wait_until(lambda: (told := cluster.run("sacct", *words).strip()) != "Unknown" and told)
    return datetime.fromisoformat(str(end)).timestamp()


def test_each_job_s_end_is_known_to_the_next_one_and_a_killed_one_ends_with_its_job(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    settings = {"goal": 900, "step_seconds": 0.05, "save_steps": 10}
    slurm_work.configure({"a": {"engine": "toy", "segments": 9, "segment_minutes": 0.3, "settings": settings}})
    slurm_work.added_environment["UNBROKEN_REPORT"] = "on"
    driver = slurm_work.start("--executor", "unbroken", "--retries", "2")
    until(lambda: {passport.token for passport in slurm_work.passports("a")} >= {2})
    job = str(slurm_work.claim("a")["slurm_job"])

    os.kill(slurm_work.holder("a"), signal.SIGKILL)  # as the out-of-memory killer does it
    assert driver.wait().code == 0

    history = slurm_work.history("a")
    assert [line.kind for line in history if not line.kind.settles] == [EndKind.DIED]
    (died,) = (line for line in history if line.kind is EndKind.DIED)
    assert (died.slurm_job, died.times.job_ended) == (job, pytest.approx(end_of(cluster, job), abs=1.0))
    known = 0
    for before, after in itertools.pairwise(history):
        assert after.times.job_started is not None and after.times.submitted is not None
        if after.times.previous_job_ended is not None:  # a short one is over before Slurm says it
            known += 1
            assert after.times.previous_job_ended == pytest.approx(end_of(cluster, before.slurm_job), abs=1.0)
    assert known
    assert {line.slurm_partition for line in history if line is not died} == {"short"}
    told = json.loads(slurm_work.unbroken("account", "--json", "a").text)[0]["seconds"]
    assert told["lost"] > 0
    (run,) = facts_in(slurm_work.root / "results/report.html")["runs"]
    assert (run["state"], run["segments"], run["account"]["kills"]) == ("finished", 9, 1)
    assert len(run["attempts"]) == len(history)
    found = account(history, history[-1].times.ended or 0.0)
    assert {kind for kind in Kind if found.seconds[kind] > 0} >= {Kind.USEFUL, Kind.LOST, Kind.STARTING}
    # Slurm says the end of a job in whole seconds, so that it may be before that of the segment.
    known_ends = [(before.times.ended, after.times.previous_job_ended) for before, after in itertools.pairwise(history)]
    rests = [job_end - ended for ended, job_end in known_ends if ended is not None and job_end is not None]
    assert (found.seconds[Kind.UNUSED] > 0) == any(rest > 0 for rest in rests), rests
