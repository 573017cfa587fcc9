"""`unbroken-array-chains`: the jobs of a detached run are one array, whose tasks follow each other."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from cluster.detached import PATIENCE_SECONDS, closed, detached, slurm_logs, submit, wait_for_jobs
from cluster.endings import assert_is_whole, job_of
from cluster.lab import Cluster
from support.workdir import ROOT, WorkDir, until

from unbroken.runs.outcome import Outcome

ARRAYS = ("--unbroken-array-chains", "--unbroken-ahead", "3")
# One step a job; notes what it sees of the array.
ONE_STEP = """\
import json, os, pathlib
save, resume = pathlib.Path(os.environ["UNBROKEN_SAVE"]), os.environ.get("UNBROKEN_RESUME")
done = 1 + (int((pathlib.Path(resume) / "state").read_text()) if resume else 0)
seen = [name for name in os.environ if "ARRAY" in name and name.startswith("SLURM")]
(save / "state").write_text(str(done))
(save / "seen").write_text(json.dumps(seen))
(save / "progress.json").write_text(f'{{"done": {done}, "goal": 5, "unit": "steps"}}')
raise SystemExit(0 if done == 5 else 85)
"""


def one_step_a_job(work: WorkDir) -> None:
    work.write("steps.py", ONE_STEP)
    settings = {"script": "steps.py", "goal": 5}
    work.configure({"a": {"engine": "torch", "segments": 9, "segment_minutes": 9, "settings": settings}})


def long_segments(work: WorkDir, goal: int) -> None:
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 20}
    work.configure({"a": {"engine": "toy", "segments": 9, "segment_minutes": 9, "settings": settings}})


def array_of(job: str) -> str:
    return job.partition("_")[0]


def test_the_tasks_of_an_array_do_the_segments_and_the_last_one_submits_the_next_array(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    work = detached(slurm_work)
    one_step_a_job(work)

    with closed(cluster):
        submit(work, *ARRAYS)
        (shown,) = cluster.run("squeue", "--noheader", "--format=%i").split()
    wait_for_jobs(cluster)

    history = work.history("a")
    jobs = [attempt.slurm_job for attempt in history]
    first, second = dict.fromkeys(map(array_of, jobs))
    assert shown == f"{first}_[1-3%1]"
    assert jobs == [f"{first}_1", f"{first}_2", f"{first}_3", f"{second}_1", f"{second}_2"]
    assert [attempt.outcome for attempt in history] == [Outcome.PAUSED] * 4 + [Outcome.FINISHED]
    assert [attempt.segment for attempt in history] == [1, 2, 3, 4, 5]
    assert json.loads((work.places("a").final / "seen").read_text()) == []  # a seed by the task's number would differ
    assert cluster.jobs() == []
    assert list((work.root / ".snakemake/slurm_logs").rglob(f"{first}_2.log"))


@pytest.mark.slow
def test_the_tasks_that_are_left_over_at_the_goal_are_cancelled(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    one_step_a_job(work)

    submit(work, "--unbroken-array-chains", "--unbroken-ahead", "9")
    wait_for_jobs(cluster)

    array = array_of(job_of(work))
    assert [attempt.slurm_job for attempt in work.history("a")] == [f"{array}_{task}" for task in range(1, 6)]
    left = ", ".join(f"{array}_{task}" for task in range(6, 10))
    assert f"cancelled the pending jobs: {left}\n" in slurm_logs(work)


@pytest.mark.slow
def test_a_killed_task_is_made_up_for_by_the_next(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work, goal = detached(slurm_work), 600
    long_segments(work, goal)
    submit(work, *ARRAYS)
    until(lambda: work.saved("a"), PATIENCE_SECONDS)
    killed = job_of(work)

    os.kill(work.holder("a"), signal.SIGKILL)
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, goal)
    assert [(attempt.segment, attempt.outcome) for attempt in history] == [(1, Outcome.DIED), (1, Outcome.FINISHED)]
    assert [attempt.slurm_job for attempt in history] == [killed, f"{array_of(killed)}_2"]


@pytest.mark.slow
def test_a_cancelled_task_stops_the_run_and_the_rest_of_its_array(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    long_segments(work, 3000)
    submit(work, *ARRAYS)
    until(lambda: work.saved("a"), PATIENCE_SECONDS)

    job = job_of(work)
    cluster.run("scancel", job)
    wait_for_jobs(cluster)

    # The next task starts before the cancelled one has left, and then does nothing.
    assert {attempt.slurm_job for attempt in work.history("a") if not attempt.before_work} == {job}
    assert re.search(rf"a: the run stops: (Slurm )?job {job} was cancelled; to go on", slurm_logs(work))


@pytest.mark.slow
def test_submitting_again_adds_what_is_missing_and_a_driver_takes_all_over(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    work = detached(slurm_work)
    one_step_a_job(work)
    with closed(cluster):
        submit(work, *ARRAYS)
        submit(work, *ARRAYS)
        before = cluster.run("squeue", "--noheader", "--array", "--format=%i").split()
        submit(work, "--unbroken-array-chains", "--unbroken-ahead", "4")
        after = cluster.run("squeue", "--noheader", "--array", "--format=%i").split()

    work.profile = ROOT / "profiles" / "slurm"
    done = work.start().wait(PATIENCE_SECONDS)
    wait_for_jobs(cluster)

    assert (len(before), len(after)) == (3, 4)
    assert {*before} < {*after}
    assert done.code == 0, done.text
    history = work.history("a")
    assert [attempt.segment for attempt in history] == [1, 2, 3, 4, 5]
    assert {attempt.slurm_job for attempt in history[:4]} == {*after}
    assert history[-1].outcome is Outcome.FINISHED


@pytest.mark.slow
def test_where_only_some_jobs_of_an_array_are_allowed_they_are_submitted_one_by_one(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    work = detached(slurm_work)
    one_step_a_job(work)
    setting = ("sacctmgr", "--immediate", "modify", "user", cluster.plan.user, "set")
    cluster.run(*setting, "MaxSubmitJobs=2")
    try:
        cluster.wait_until(lambda: "2" in cluster.run("sacctmgr", "-nP", "show", "assoc", "format=MaxSubmitJobs"))
        with closed(cluster):
            submit(work, *ARRAYS)
            assert len(cluster.jobs()) == 2
        wait_for_jobs(cluster)
    finally:
        cluster.run(*setting, "MaxSubmitJobs=-1")

    assert work.history("a")[-1].outcome is Outcome.FINISHED
