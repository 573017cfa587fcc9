"""`queue_wait_minutes` on a real cluster: the next job waits beside the work, and takes over from the one at work."""

import itertools
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.detached import PATIENCE_SECONDS, closed, detached, slurm_logs, submit, wait_for_jobs
from cluster.endings import HUNGRY, assert_is_whole, job_of
from cluster.lab import Cluster
from support.workdir import Driver, WorkDir, until

from unbroken.runs.history import Attempt
from unbroken.runs.outcome import Outcome

PROGRAM = "-m unbroken.engines.toy.program"
CHAIN_JOB = "-m unbroken.detached.chain_job"


def configure(work: WorkDir, goal: int) -> None:
    """A run of so many steps, 50 a second; its next job may start a minute after the one at work."""
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 0}
    run = {"engine": "toy", "segments": 6, "segment_minutes": 5, "queue_wait_minutes": 4, "settings": settings}
    work.configure({"a": run})


def driven(work: WorkDir, cluster: Cluster) -> tuple[Driver, str, str]:
    """A driver, the job at work and the one that waits behind it."""
    driver = work.start()
    until(lambda: work.processes(PROGRAM) and len(cluster.jobs("running,pending")) == 2, PATIENCE_SECONDS)
    first, second = sorted(cluster.jobs("running,pending"), key=int)
    assert job_of(work) == first
    return driver, first, second


def follow_each_other(history: list[Attempt]) -> bool:
    """No step was lost or counted twice."""
    return all(after.progress_from == before.progress_to > 0 for before, after in itertools.pairwise(history))


def slurm_job(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(line.partition("=")[::2] for line in variables).get("SLURM_JOB_ID", "")


def kill_job(work: WorkDir, number: str) -> None:
    """All its processes, as a node does that loses its power: the one that holds the run first."""
    for pid in [work.holder("a"), *work.processes()]:
        with suppress(OSError):
            if slurm_job(pid) == number:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("has_driver", [True, False], ids=["attached", "detached"])
def test_the_next_job_takes_over_before_the_end_of_the_one_at_work(
    has_driver: bool, slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """On an idle cluster it starts as soon as it may."""
    work, goal = slurm_work, 4500
    configure(work, goal)

    if has_driver:
        driver, *jobs = driven(work, cluster)
        said = driver.wait(PATIENCE_SECONDS)
        assert said.code == 0, said.text
        assert "taken over" not in said.text
    else:
        submit(detached(work))
        jobs = sorted(cluster.jobs(), key=int)
        wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, goal)
    first, *others = history
    assert [attempt.outcome for attempt in history] == [*[Outcome.PAUSED] * len(others), Outcome.FINISHED]
    assert [attempt.segment for attempt in history] == list(range(1, 1 + len(history)))
    assert first.unused_seconds is not None and first.unused_seconds > 120
    assert [attempt.slurm_job for attempt in history[:2]] == jobs
    assert len({attempt.slurm_job for attempt in history}) == len(history) > 1
    assert follow_each_other(history)
    log = (work.root / "logs/a/001.log").read_text()
    assert "stopping the program: the next job of the run has started and takes over" in log
    assert cluster.jobs() == []


@pytest.mark.slow
def test_one_that_is_killed_while_it_asks_is_made_up_for_by_the_one_at_work(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = detached(slurm_work), 1500
    configure(work, goal)
    submit(work)
    until(lambda: work.processes(PROGRAM), PATIENCE_SECONDS)
    (program,) = work.processes(PROGRAM)
    os.kill(program, signal.SIGSTOP)  # it cannot save and leave before the other one is dead
    first = job_of(work)
    until(lambda: "is at work: it is asked" in slurm_logs(work), PATIENCE_SECONDS)

    (asking,) = [pid for pid in work.processes(CHAIN_JOB) if slurm_job(pid) != first]
    number = slurm_job(asking)
    os.kill(asking, signal.SIGKILL)
    cluster.wait_until(lambda: cluster.state(number) == "FAILED")
    os.kill(program, signal.SIGCONT)
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, goal)
    assert history[0].slurm_job == first
    assert history[0].outcome is Outcome.PAUSED  # it has left, as it was asked to
    assert number not in {attempt.slurm_job for attempt in history}
    assert follow_each_other(history)
    assert "no job of this run is pending: submitting the next ones" in slurm_logs(work)


@pytest.mark.slow
def test_the_one_that_waits_does_the_segment_of_one_that_was_killed(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, 1500
    configure(work, goal)
    driver, first, second = driven(work, cluster)

    kill_job(work, first)
    said = driver.wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    killed, *others = assert_is_whole(work, tmp_path, goal)
    assert (killed.slurm_job, killed.segment, killed.outcome) == (first, 1, Outcome.DIED)
    assert [(attempt.slurm_job, attempt.segment) for attempt in others] == [(second, 1)]
    assert cluster.jobs() == []


@pytest.mark.slow
def test_the_one_that_waits_has_more_memory_after_one_that_had_too_little(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    cgroup_work.write("hungry.py", HUNGRY)
    run = {"engine": "torch", "segments": 3, "segment_minutes": 4, "queue_wait_minutes": 1}
    run |= {"mem_mb": 400, "memory_growth": 2, "settings": {"script": "hungry.py", "goal": 5}}
    cgroup_work.configure({"a": run})

    done = cgroup_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = cgroup_work.history("a")
    ends = [(attempt.outcome, attempt.cause) for attempt in history]
    assert ends == [(Outcome.FAILED, "OUT_OF_MEMORY"), (Outcome.FINISHED, "")], slurm_logs(cgroup_work)
    assert [cgroup_cluster.asked_memory(attempt.slurm_job) for attempt in history] == ["400M", "800M"]
    assert done.text.count("has been submitted with SLURM jobid") == 1  # the other one had waited


def test_the_goal_takes_the_job_that_waits_out_of_the_queue(slurm_work: WorkDir, cluster: Cluster) -> None:
    configure(slurm_work, 200)
    driver, first, second = driven(slurm_work, cluster)

    with closed(cluster):  # else it may start with the end of the one before, sooner than it is cancelled
        said = driver.wait(PATIENCE_SECONDS)
        cluster.wait_until(lambda: cluster.state(second) == "CANCELLED")

    assert said.code == 0, said.text
    assert [attempt.slurm_job for attempt in slurm_work.history("a")] == [first]
    assert cluster.jobs() == []


@pytest.mark.slow
def test_ctrl_c_leaves_no_job_and_a_killed_driver_leaves_both_to_the_next(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, 2500
    configure(work, goal)
    driver, *_ = driven(work, cluster)
    driver.interrupt()
    driver.wait(PATIENCE_SECONDS)
    cluster.wait_until(lambda: not cluster.jobs("running,pending,completing"))

    driver, first, second = driven(work, cluster)
    driver.kill()
    again = work.start()
    until(lambda: f"job {first} is in the queue or running already, taken over" in again.text, PATIENCE_SECONDS)
    assert set(cluster.jobs("running,pending")) == {first, second}
    with closed(cluster):
        said = again.wait(PATIENCE_SECONDS)
        cluster.wait_until(lambda: cluster.state(second) == "CANCELLED")

    assert said.code == 0, said.text
    history = assert_is_whole(work, tmp_path, goal)
    assert history[-1].slurm_job == first


@pytest.mark.slow
def test_one_that_is_cancelled_while_it_waits_is_made_up_for_by_the_driver(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    settings = {"goal": 3000, "step_seconds": 0.05, "save_steps": 0}
    run = {"engine": "toy", "segments": 6, "segment_minutes": 2, "queue_wait_minutes": 1, "settings": settings}
    slurm_work.configure({"a": run})
    driver, first, second = driven(slurm_work, cluster)

    cluster.run("scancel", second)
    said = driver.wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    history = assert_is_whole(slurm_work, tmp_path, 3000)
    jobs = [attempt.slurm_job for attempt in history]
    assert jobs[0] == first and second not in jobs and len(set(jobs)) == len(jobs) > 1
    assert follow_each_other(history)
    assert cluster.jobs() == []


def test_no_job_is_queued_for_a_segment_that_nobody_asked_for(slurm_work: WorkDir, cluster: Cluster) -> None:
    configure(slurm_work, 100)

    said = slurm_work.start("results/a/segments/001.json").wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    rows = cluster.run("squeue", "--noheader", "--states=all", "--format=%Z").splitlines()
    assert rows.count(str(slurm_work.root)) == 1


@pytest.mark.slow
def test_restart_cancels_the_one_that_waits_and_whose_driver_is_dead(slurm_work: WorkDir, cluster: Cluster) -> None:
    configure(slurm_work, 9000)
    driver, first, second = driven(slurm_work, cluster)
    with closed(cluster):
        driver.kill()
        kill_job(slurm_work, first)
        cluster.wait_until(lambda: cluster.jobs("running,pending,completing") == [second])

        done = slurm_work.unbroken("restart", "a")

        assert done.code == 0, done.text
        assert f"a: cancelled the pending jobs: {second}" in done.text
        assert cluster.state(second) == "CANCELLED"


def test_scancel_of_the_job_at_work_stops_the_run_and_the_one_that_waits(slurm_work: WorkDir, cluster: Cluster) -> None:
    configure(slurm_work, 9000)
    driver, first, _ = driven(slurm_work, cluster)

    cluster.run("scancel", first)
    said = driver.wait(PATIENCE_SECONDS)

    assert said.code == 1
    assert f"job {first} ended as CANCELLED; this run stops" in said.text
    assert f"the run stops: Slurm job {first} was cancelled; to go on, start snakemake again" in slurm_logs(slurm_work)
    cluster.wait_until(lambda: not cluster.jobs("running,pending,completing"))
    assert [attempt.slurm_job for attempt in slurm_work.history("a")] == [first]
