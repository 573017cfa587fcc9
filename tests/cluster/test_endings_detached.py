"""Every way in which a job of Slurm can end, without a driver: the jobs that wait behind it go on."""

import itertools
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.detached import PATIENCE_SECONDS, attached, detached, slurm_logs, submit, wait_for_jobs
from cluster.endings import (
    BREAKS_ON_A_NODE,
    HUNGRY,
    arrays,
    assert_is_whole,
    freeze,
    job_of,
    release_told,
    wait_until_it_hears,
)
from cluster.lab import Cluster, LabError
from cluster.lab_limits import controller_frozen
from support.workdir import (
    WorkDir,
    in_no_time,
    one_long_segment,
    one_step_segments,
    until,
)

from unbroken.slurm.client import PATIENCE_SECONDS as ASK_SECONDS
from unbroken.store.history import EndKind

pytestmark = pytest.mark.slow


def started(work: WorkDir, goal: int, **more: object) -> WorkDir:
    """One run, `a`, submitted; it has published its first checkpoint."""
    detached(work).configure({"a": one_long_segment(goal, **more)})
    submit(work)
    until(lambda: work.saved("a"), PATIENCE_SECONDS)
    return work


def test_the_next_job_goes_on_after_a_time_limit(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work = started(slurm_work, goal=9000, segment_minutes=1)

    freeze(work.holder("a"))  # neither our clock nor a signal can help it now
    work.configure({"a": in_no_time(one_long_segment(9000))})
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 9000)
    assert (history[0].kind, history[0].job_state) == (EndKind.DIED, "TIMEOUT")
    assert history[1].slurm_job != history[0].slurm_job
    assert history[1].progress_from == history[0].progress_to > 0


def test_a_preempted_job_saves_and_is_done_again_or_by_the_next(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path
) -> None:
    work = started(cgroup_work, goal=2500, partition="preempt")
    wait_until_it_hears(work)

    urgent = cgroup_cluster.sbatch("sleep 1", "--partition=urgent", "--exclusive")
    wait_for_jobs(cgroup_cluster)

    assert cgroup_cluster.state(urgent) == "COMPLETED"
    history = assert_is_whole(work, tmp_path, 2500)
    assert [attempt.kind for attempt in history] == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert history[1].progress_from == history[0].progress_to


def test_a_requeued_job_goes_on_where_it_was(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work = started(slurm_work, goal=600)

    cluster.run("scontrol", "requeue", job_of(work))
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 600)
    assert all(after.progress_from == before.progress_to for before, after in itertools.pairwise(history))


def test_a_lost_node_costs_a_job_and_the_run_goes_on_elsewhere(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work = started(slurm_work, goal=600)
    node = work.claim("a")["slurm_node"]

    cluster.lose_node(node)
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 600)
    assert [attempt.job_state for attempt in history] == ["NODE_FAIL", None]
    assert [attempt.slurm_node == node for attempt in history] == [True, False]


def test_a_node_that_only_lost_its_slurmd_still_writes_and_nobody_else_does(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work = started(slurm_work, goal=3000)

    cluster.kill_slurmd(work.claim("a")["slurm_node"])  # its job's processes live on
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 3000)
    assert [attempt.kind for attempt in history] == [EndKind.FINISHED]


def test_the_jobs_behind_one_that_ran_out_of_memory_ask_for_more(cgroup_work: WorkDir, cgroup_cluster: Cluster) -> None:
    work = detached(cgroup_work)
    work.write("hungry.py", HUNGRY)
    run = {"engine": "torch", "segments": 3, "segment_minutes": 2, "mem_mb": 400, "memory_growth": 2}
    work.configure({"a": {**run, "settings": {"script": "hungry.py", "goal": 5}}})

    submit(work)
    wait_for_jobs(cgroup_cluster)

    history = work.history("a")
    assert [(attempt.kind, attempt.job_state) for attempt in history] == [
        (EndKind.FAILED, "OUT_OF_MEMORY"),
        (EndKind.FINISHED, None),
    ], slurm_logs(work)
    asked = [cgroup_cluster.asked_memory(attempt.slurm_job) for attempt in history]
    assert asked == ["400M", "800M"]
    assert (
        "a: 1 attempt ran out of memory; the waiting tasks now ask for 800 MB; to start with that, set mem_mb: 800"
    ) in slurm_logs(work)


def broken_node(work: WorkDir, **more: object) -> Path:
    """A run whose program breaks on the node that it is first started on; returns the file with the node's name."""
    work.write("breaks.py", BREAKS_ON_A_NODE)
    work.added_environment["BAD_NODE"] = str(work.root / "bad_node")
    run = {"engine": "torch", "segments": 5, "segment_minutes": 2, **more}
    work.configure({"a": {**run, "settings": {"script": "breaks.py", "goal": 2}}})
    return work.root / "bad_node"


def test_the_jobs_behind_two_that_failed_on_a_node_go_elsewhere(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    bad = broken_node(work, attempts_without_progress=4, slurm_extra=["--exclude", cluster.nodes[-1]])

    submit(work)
    wait_for_jobs(cluster)

    nodes = [attempt.slurm_node for attempt in work.history("a")]
    assert [node == bad.read_text() for node in nodes] == [True, True, False, False], slurm_logs(work)
    assert work.records("a")[-1].kind is EndKind.FINISHED
    line = f"a: the waiting tasks avoid {bad.read_text()}, where it failed repeatedly"
    assert slurm_logs(work).count(line) == 1
    *_, last = work.history("a")
    excluded = cluster.run("scontrol", "show", "job", last.slurm_job)
    assert f"ExcNodeList={cluster.nodes[-1]},{bad.read_text()}\n" in excluded


def test_a_node_that_breaks_everything_does_not_stop_the_run(slurm_work: WorkDir, cluster: Cluster) -> None:
    """Two attempts without progress are allowed, and both were there: the next one goes elsewhere first."""
    work = detached(slurm_work)
    bad = broken_node(work, attempts_without_progress=2)

    submit(work)
    wait_for_jobs(cluster)

    nodes = [attempt.slurm_node for attempt in work.history("a")]
    assert [node == bad.read_text() for node in nodes] == [True, True, False, False], slurm_logs(work)
    assert work.records("a")[-1].kind is EndKind.FINISHED


def test_who_submits_a_stopped_run_again_gets_other_nodes_for_all_its_segments(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    work = detached(slurm_work)
    bad = broken_node(work, attempts_without_progress=1)
    submit(work)
    wait_for_jobs(cluster)
    stopped = [attempt.slurm_node for attempt in work.history("a")]

    text = submit(work)
    wait_for_jobs(cluster)

    assert stopped == [bad.read_text()] * 2, slurm_logs(work)  # Slurm took the same one twice
    assert f"a: the run stops: 2 attempts without progress on {bad.read_text()}" in slurm_logs(work)
    (submission,) = (line for line in text.splitlines() if "a: submitted array of " in line)
    assert submission.endswith(f"; not on {bad.read_text()}, where it failed repeatedly")
    nodes = [attempt.slurm_node for attempt in work.history("a")]
    assert [node == bad.read_text() for node in nodes] == [True, True, False, False], slurm_logs(work)
    assert work.records("a")[-1].kind is EndKind.FINISHED


def test_the_last_job_that_ran_out_of_memory_comes_back_with_more(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    """Where no task waits behind a job and none is wanted ahead, it puts itself back into the queue."""
    work = detached(cgroup_work)
    work.write("hungry.py", HUNGRY)
    run = {"engine": "torch", "segments": 1, "segment_minutes": 2, "mem_mb": 400, "memory_growth": 2}
    work.configure({"a": {**run, "settings": {"script": "hungry.py", "goal": 5}}})

    submit(work, "--unbroken-ahead", "1")
    wait_for_jobs(cgroup_cluster)

    history = work.history("a")
    assert [attempt.job_state for attempt in history] == ["OUT_OF_MEMORY", None], slurm_logs(work)
    assert history[1].kind is EndKind.FINISHED


def test_a_held_job_is_told_by_status_with_what_to_type(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    work.configure({"a": one_step_segments(3, goal=3)})
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    submit(work)
    (array,) = arrays(cluster.jobs("pending"))

    cluster.run("scontrol", "uhold", array)
    cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    cluster.run(*release_told(work, cluster, array))
    wait_for_jobs(cluster)

    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3]


def test_drained_nodes_delay_the_run_and_nothing_else(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work = started(slurm_work, goal=400)

    for node in cluster.nodes:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=maintenance")
    until(lambda: work.saved("a") >= 200, PATIENCE_SECONDS)
    for node in cluster.nodes:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 400)
    assert [attempt.kind for attempt in history] == [EndKind.FINISHED]


def test_a_controller_that_is_restarted_in_mid_run_costs_nothing(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work = started(slurm_work, goal=1500)

    cluster.stop_slurmctld()
    until(lambda: work.saved("a") >= 800, PATIENCE_SECONDS)
    cluster.start_slurmctld()
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 1500)
    assert [attempt.kind for attempt in history] == [EndKind.FINISHED]


def test_a_controller_that_does_not_answer_when_a_segment_ends_costs_only_its_time(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    """Commands wait for it until their patience ends; a dead one refuses them at once."""
    work = detached(slurm_work)
    settings = {"goal": 60, "step_seconds": 0.5, "save_steps": 4}
    work.configure({"a": {"engine": "toy", "segments": 9, "segment_minutes": 0.3, "settings": settings}})
    submit(work)
    until(lambda: work.saved("a") >= 4, PATIENCE_SECONDS)

    with controller_frozen(cluster):
        until(work.places("a").record(1).exists, PATIENCE_SECONDS)
        time.sleep(1.2 * ASK_SECONDS)
        assert not work.places("a").record(2).exists()
    wait_for_jobs(cluster)

    kinds = [attempt.kind for attempt in work.history("a")]
    assert kinds == [EndKind.PAUSED] * (len(kinds) - 1) + [EndKind.FINISHED], slurm_logs(work)
    assert [attempt.segment for attempt in work.history("a")] == list(range(1, len(kinds) + 1))


def wait_as_told(work: WorkDir, cluster: Cluster, is_so: Callable[[], object]) -> None:
    """Waits, and types what `unbroken status` says of jobs that Slurm holds."""

    def look() -> object:
        for job in re.findall(r"type:\s+scontrol\s+release\s+(\d+)", work.unbroken("status").text):
            with suppress(LabError):  # no longer held
                cluster.run("scontrol", "release", job)
        return is_so()

    cluster.wait_until(look, PATIENCE_SECONDS)


def test_what_a_crashed_controller_forgot_is_submitted_again(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """Whether it forgets the jobs is chance: it saves them within some seconds.

    If it does, it gives their numbers again.  A node that still knows one refuses the new job, and Slurm holds it.
    """
    work = started(slurm_work, goal=1500)
    jobs = set(cluster.jobs())

    cluster.kill_slurmctld()
    cluster.start_slurmctld()
    wait_as_told(work, cluster, lambda: not jobs & set(cluster.jobs("pending,running,completing")))
    submit(work)
    wait_as_told(work, cluster, lambda: (work.places("a").final / "summary.json").exists())

    assert_is_whole(work, tmp_path, 1500)


@pytest.mark.parametrize("accident", ["kill", "scancel"])
def test_without_accounting_everything_goes_on_as_well(
    silent_work: WorkDir, silent_cluster: Cluster, tmp_path: Path, accident: str
) -> None:
    work = started(silent_work, goal=600)

    if accident == "kill":
        os.kill(work.holder("a"), signal.SIGKILL)
    else:
        silent_cluster.run("scancel", job_of(work))
    wait_for_jobs(silent_cluster)

    if accident == "scancel":
        assert len({attempt.slurm_job for attempt in work.history("a")}) == 1
        submit(work)
        wait_for_jobs(silent_cluster)
    assert_is_whole(work, tmp_path, 600)


def test_a_job_whose_own_process_is_killed_is_followed_by_the_next(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """The process that chooses the segment and looks after the tasks behind it, not the segment's."""
    work = started(slurm_work, goal=800)

    for pid in work.processes("-m unbroken.job .snakemake"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 800)
    assert all(after.progress_from == before.progress_to for before, after in itertools.pairwise(history))


def test_two_who_submit_at_once_double_nothing(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    work.configure({run: one_step_segments(4, goal=4) for run in "ab"})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")

    dones = [driver.wait(PATIENCE_SECONDS) for driver in [work.start(), work.start()]]

    assert [done.code for done in dones] == [0, 0], dones[0].text + dones[1].text
    assert len(arrays(cluster.jobs("pending"))) == 2
    cluster.run("scancel", blocker)
    wait_for_jobs(cluster)
    assert [[attempt.segment for attempt in work.history(run)] for run in "ab"] == [[1, 2, 3, 4]] * 2


def test_a_run_is_extended_while_it_works(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    work = started(slurm_work, goal=1500)
    first = job_of(work)

    work.configure({"a": one_long_segment(2000, segments=5)})
    (program,) = work.processes("-m unbroken.engines.toy.program")
    os.kill(program, signal.SIGSTOP)  # else it may be over before all is submitted
    submit(work)
    assert cluster.state(first) == "RUNNING"  # it still goes for the goal that it was told
    os.kill(program, signal.SIGCONT)
    wait_for_jobs(cluster)

    history = assert_is_whole(work, tmp_path, 2000)
    assert [attempt.progress_to for attempt in history] == [1500, 2000]
    assert attached(work).plan() == 0
