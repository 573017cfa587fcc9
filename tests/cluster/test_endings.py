"""Every way in which a job of Slurm can end, on a real cluster: what follows, and what is said."""

import os
import re
import signal
from pathlib import Path

import pytest
from cluster.endings import HUNGRY, arrays, assert_is_whole, freeze, job_of, release_told, wait_until_it_hears
from cluster.lab import Cluster
from support.workdir import Driver, WorkDir, in_no_time, one_long_segment, until

from unbroken.store.history import EndKind

# A submission, a time limit of one minute and Slurm's patience with what it kills.
PATIENCE_SECONDS = 600.0


def start(work: WorkDir, goal: int, **more: object) -> Driver:
    """A driver whose one run, `a`, has published its first checkpoint."""
    work.configure({"a": one_long_segment(goal, **more)})
    driver = work.start()
    until(lambda: work.saved("a") or driver.process.poll() is not None)
    assert driver.process.poll() is None, driver.text
    return driver


@pytest.mark.slow
def test_a_job_that_slurm_kills_at_its_limit_goes_on_from_its_last_checkpoint(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    driver = start(slurm_work, goal=9000, segment_minutes=1)

    freeze(slurm_work.holder("a"))  # neither our clock nor a signal can help it now
    slurm_work.configure({"a": in_no_time(one_long_segment(9000))})
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = assert_is_whole(slurm_work, tmp_path, 9000)
    assert (history[0].kind, history[0].job_state) == (EndKind.DIED, "TIMEOUT")
    assert history[0].message == ("the job was killed (TIMEOUT); what it had published counts")
    assert history[1].progress_from == history[0].progress_to > 0


def test_a_preempted_job_saves_in_its_grace_time_and_goes_on_without_using_up_a_retry(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path
) -> None:
    driver = start(cgroup_work, goal=2500, partition="preempt")
    wait_until_it_hears(cgroup_work)

    urgent = cgroup_cluster.sbatch("sleep 1", "--partition=urgent", "--exclusive")
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert cgroup_cluster.state(urgent) == "COMPLETED"
    history = assert_is_whole(cgroup_work, tmp_path, 2500)
    assert [attempt.kind for attempt in history] == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert history[0].exit_code == 85
    assert history[1].progress_from == history[0].progress_to
    assert "Trying to restart" not in done.text  # no retry was used up


@pytest.mark.slow
def test_a_requeued_job_goes_on_where_it_was(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    driver = start(slurm_work, goal=600)

    cluster.run("scontrol", "requeue", job_of(slurm_work))
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = assert_is_whole(slurm_work, tmp_path, 600)
    assert len(arrays(attempt.slurm_job for attempt in history)) == 1
    assert history[0].job_state in {"REQUEUED", None}  # empty where it was told in time and saved
    assert "Trying to restart" not in done.text


def test_a_lost_node_costs_no_retry_and_the_run_goes_on_elsewhere(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    driver = start(slurm_work, goal=600)
    node = slurm_work.claim("a")["slurm_node"]

    cluster.lose_node(node)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = assert_is_whole(slurm_work, tmp_path, 600)
    assert [attempt.job_state for attempt in history] == ["NODE_FAIL", None]
    assert [attempt.slurm_node == node for attempt in history] == [True, False]
    assert "Trying to restart" not in done.text


@pytest.mark.slow
def test_a_node_that_only_lost_its_slurmd_still_writes_and_nobody_else_does(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    driver = start(slurm_work, goal=3000)

    cluster.kill_slurmd(slurm_work.claim("a")["slurm_node"])  # its job's processes live on
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = assert_is_whole(slurm_work, tmp_path, 3000)
    assert [attempt.kind for attempt in history] == [EndKind.FINISHED]


def test_a_cancelled_run_stops_and_the_others_go_on(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    run = one_long_segment(1500)
    slurm_work.configure({"a": run, "b": one_long_segment(300)})
    driver = slurm_work.start()
    until(lambda: slurm_work.saved("a"))

    job = job_of(slurm_work)
    cluster.run("scancel", job)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert f"; this run stops: Slurm job {job} was canceled; to go on, start snakemake again" in done.text
    assert slurm_work.records("b")[-1].kind is EndKind.FINISHED
    assert all(attempt.slurm_job == job for attempt in slurm_work.history("a"))

    again = slurm_work.start().wait(PATIENCE_SECONDS)

    assert again.code == 0, again.text
    assert_is_whole(slurm_work, tmp_path, 1500)


def test_a_run_that_needs_more_memory_than_it_asked_for_gets_more(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    cgroup_work.write("hungry.py", HUNGRY)
    settings = {"script": "hungry.py", "goal": 5}
    run = {"engine": "torch", "segments": 1, "segment_minutes": 2, "mem_mb": 400, "memory_growth": 2}
    cgroup_work.configure({"a": {**run, "settings": settings}})

    done = cgroup_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = cgroup_work.history("a")
    assert [attempt.kind for attempt in history] == [EndKind.FAILED, EndKind.FINISHED]
    assert [attempt.job_state for attempt in history] == ["OUT_OF_MEMORY", None]
    assert "killed: out of memory; the next attempt asks for 2 times as much (memory_growth)" in history[0].message
    asked = [cgroup_cluster.asked_memory(attempt.slurm_job) for attempt in history]
    assert asked == ["400M", "800M"]


def test_a_held_job_is_told_by_status_with_what_to_type(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_long_segment(100)})
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    driver = slurm_work.start()
    until(lambda: cluster.jobs("pending"))
    (array,) = arrays(cluster.jobs("pending"))

    down = re.compile(rf"a: Slurm job {array}\S* is PENDING \(PartitionDown\): its")
    until(lambda: down.search(slurm_work.unbroken("status", columns=300).text))
    cluster.run("scontrol", "uhold", array)
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    cluster.run(*release_told(slurm_work, cluster, array))
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert slurm_work.records("a")[-1].kind is EndKind.FINISHED


@pytest.mark.slow
def test_a_drained_node_delays_the_run_and_nothing_else(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    driver = start(slurm_work, goal=400)

    for node in cluster.nodes:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=maintenance")
    until(lambda: slurm_work.saved("a") >= 200)
    for node in cluster.nodes:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = assert_is_whole(slurm_work, tmp_path, 400)
    assert [attempt.kind for attempt in history] == [EndKind.FINISHED]


@pytest.mark.slow
def test_a_controller_that_is_restarted_in_mid_run_is_waited_for(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    driver = start(slurm_work, goal=1500)

    cluster.stop_slurmctld()
    until(lambda: slurm_work.saved("a") >= 800)
    cluster.start_slurmctld()
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_is_whole(slurm_work, tmp_path, 1500)


@pytest.mark.slow
@pytest.mark.parametrize("accident", ["kill", "scancel"])
def test_without_accounting_everything_goes_on_as_well(
    silent_work: WorkDir, silent_cluster: Cluster, tmp_path: Path, accident: str
) -> None:
    driver = start(silent_work, goal=600)

    if accident == "kill":
        os.kill(silent_work.holder("a"), signal.SIGKILL)
    else:
        silent_cluster.run("scancel", job_of(silent_work))
    done = driver.wait(PATIENCE_SECONDS)

    if accident == "scancel":
        assert done.code == 1
        assert "was canceled; to go on, start snakemake again" in done.text
        done = silent_work.start().wait(PATIENCE_SECONDS)
    assert done.code == 0, done.text
    assert_is_whole(silent_work, tmp_path, 600)
