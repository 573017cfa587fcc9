"""`unbroken exec` in a rule of somebody else's workflow, with `executor: unbroken`, on a real cluster."""

import re
from pathlib import Path

import pytest
from cluster.detached import wait_for_jobs
from cluster.endings import wait_until_it_hears
from cluster.exec_rules import (
    PATIENCE_SECONDS,
    assert_whole,
    chain_logs,
    checkpoints,
    history,
    jobs_of,
    kill,
    outcomes,
    plain_jobs,
    prepare,
    program,
    start,
    started,
    submissions,
    uninterrupted,
    until_noted,
    until_saved_after,
)
from cluster.lab import Cluster
from support.workdir import Done, WorkDir, overlaps, until

from unbroken.store.history import EndKind


def test_a_rule_of_anybodys_goes_on_over_jobs_without_an_error(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work)

    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert "Error" not in done.text
    assert set(outcomes(slurm_work)[:-1]) == {EndKind.PAUSED}
    assert outcomes(slurm_work)[-1] is EndKind.FINISHED
    assert len(history(slurm_work)) >= 3
    assert (plain_jobs(done), len(submissions(done))) == (2, 1)
    assert len(jobs_of(slurm_work)) == len(history(slurm_work)) == started(slurm_work)
    assert len(done.lines("unbroken: deep/count: segment ")) == len(history(slurm_work)) - 1
    assert cluster.wait_until(lambda: not cluster.jobs())
    assert "canceled the waiting tasks" in chain_logs(slurm_work)
    assert {cluster.state(job) for job in jobs_of(slurm_work)} == {"COMPLETED"}, "a pause is no failure to be mailed"


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_the_job_over_and_one_killed_at_the_pause_loses_nothing(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work)
    first = start(slurm_work)
    until(lambda: program(slurm_work), PATIENCE_SECONDS)

    first.kill()
    second = start(slurm_work)
    until(lambda: "is in the queue or running already, taken over" in second.text, PATIENCE_SECONDS)
    until(lambda: EndKind.PAUSED in outcomes(slurm_work), PATIENCE_SECONDS)
    second.kill()  # between the note of the job and the next submission, or just after that
    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert "Error" not in second.text + done.text
    assert len(submissions(Done(0, first.text + second.text + done.text))) == 1
    assert len(jobs_of(slurm_work)) == len(history(slurm_work)), "two jobs, or two segments in one"
    assert list(overlaps(history(slurm_work))) == []


@pytest.mark.slow
def test_the_console_has_a_line_for_each_pause_and_none_for_each_job(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.added_environment["UNBROKEN_CONSOLE"] = "on"
    prepare(slurm_work, goal=300)

    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert "unbroken: deep/count: segment " in done.text and " of 40 paused" in done.text
    assert plain_jobs(done) == 0
    assert "Error" not in done.text


@pytest.mark.slow
def test_a_killed_program_is_tried_again_from_its_newest_state(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, options="")
    driver = start(slurm_work)
    until(lambda: checkpoints(slurm_work), PATIENCE_SECONDS)

    kill(program(slurm_work))
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert outcomes(slurm_work) == [EndKind.FAILED, EndKind.FINISHED]
    assert history(slurm_work)[-1].progress_from > 0


@pytest.mark.slow
def test_unbroken_killed_with_its_program_goes_on_without_a_retry(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, options="")
    driver = start(slurm_work)
    until(lambda: checkpoints(slurm_work), PATIENCE_SECONDS)

    kill(slurm_work.processes("count.py data.txt"))
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert "Error" not in done.text
    assert outcomes(slurm_work) == [EndKind.DIED, EndKind.FINISHED]
    assert history(slurm_work)[-1].progress_from > 0


@pytest.mark.slow
def test_a_lost_node_costs_no_retry(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    prepare(slurm_work, options="")
    driver = start(slurm_work)
    until(lambda: checkpoints(slurm_work), PATIENCE_SECONDS)
    (row,) = cluster.run("squeue", "--noheader", "--states=running", "--format=%N").split()

    cluster.lose_node(row)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert "Error" not in done.text
    assert outcomes(slurm_work) == [EndKind.DIED, EndKind.FINISHED]


@pytest.mark.slow
def test_a_cancelled_job_stops_its_rule_and_the_next_start_goes_on(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, options="")
    driver = start(slurm_work)
    until(lambda: checkpoints(slurm_work), PATIENCE_SECONDS)
    (job,) = cluster.jobs("running")

    cluster.run("scancel", job)
    stopped = driver.wait(PATIENCE_SECONDS)
    done = start(slurm_work).wait(PATIENCE_SECONDS)

    assert stopped.code == 1
    assert len(jobs_of(slurm_work)) == 2, "a canceled job is not tried again"
    # Said by the task itself, or by the next one, which starts while Slurm still ends it.
    lines = stopped.lines("unbroken: deep/count: job ")
    assert [line for line in lines if re.search(f"this run stops: .*ob {job} was cancel+ed; to go on, start ", line)]
    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path)
    assert history(slurm_work)[-1].progress_from > 0


def test_a_program_that_fails_is_a_failure_of_snakemake(slurm_work: WorkDir, cluster: Cluster) -> None:
    prepare(slurm_work, options="", goal=20, seconds=0)
    slurm_work.write("broken", "")

    done = start(slurm_work, "--retries", "0").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert "Error in rule count" in done.text
    assert outcomes(slurm_work) == [EndKind.FAILED]
    assert started(slurm_work) == 1
    assert "this run stops: segment 1 failed 1 times; last: " in done.text
    assert cluster.jobs() == []
    assert not (slurm_work.root / "result.txt").exists()


@pytest.mark.slow
def test_segments_are_counted_over_drivers_and_used_up_in_one_line(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(slurm_work, segments=2, goal=2000)

    used_up = start(slurm_work).wait(PATIENCE_SECONDS)
    prepare(slurm_work, segments=40, goal=2000, seconds=0.05)
    again = start(slurm_work)
    until(lambda: "deep/count: segment 3 of 40 paused" in again.text, PATIENCE_SECONDS)

    assert used_up.code == 1
    assert outcomes(slurm_work)[:2] == [EndKind.PAUSED] * 2
    assert len(jobs_of(slurm_work)) >= 3
    assert used_up.text.count("unbroken: deep/count: segment ") == 2
    lines = used_up.lines("unbroken: deep/count: job ")
    (line,) = [line for line in lines if "; this run stops: deep/count: its 2 segments are used up, with " in line]
    assert line.endswith("; to go on, raise `segments` of rule count, then start snakemake again")


@pytest.mark.slow
def test_two_drivers_share_the_jobs_of_one_rule(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    prepare(slurm_work)
    first = start(slurm_work, "--until", "prepare").wait(PATIENCE_SECONDS)

    both = [start(slurm_work, "result.txt"), start(slurm_work, "result.txt")]
    codes = [driver.wait(PATIENCE_SECONDS).code for driver in both]
    text = "".join(driver.text for driver in both)

    assert first.code == 0, first.text
    assert codes == [0, 0], text
    assert (slurm_work.root / "result.txt").read_bytes() == uninterrupted(tmp_path / "whole")
    assert len(submissions(Done(0, text))) == 1
    assert len(history(slurm_work)) == len(jobs_of(slurm_work)) == started(slurm_work)
    assert "Error" not in text


@pytest.mark.slow
def test_a_requeued_task_saves_first_and_costs_no_retry(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path
) -> None:
    prepare(cgroup_work, options="")
    driver = start(cgroup_work)
    until(lambda: checkpoints(cgroup_work), PATIENCE_SECONDS)
    wait_until_it_hears(cgroup_work)
    (job,) = cgroup_cluster.jobs("running")

    cgroup_cluster.run("scontrol", "requeue", job)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(cgroup_work, tmp_path)
    assert "Error" not in done.text
    assert history(cgroup_work)[0].slurm_job == job
    assert outcomes(cgroup_work) == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert history(cgroup_work)[-1].progress_from > 0


def test_without_a_driver_its_tasks_go_on_by_themselves(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    prepare(slurm_work)
    slurm_work.write("data.txt", "7\n")

    done = start(slurm_work, "--immediate-submit", "--notemp", "result.txt").wait(PATIENCE_SECONDS)
    at_once = (slurm_work.root / "result.txt").exists()
    wait_for_jobs(cluster, PATIENCE_SECONDS)
    left = start(slurm_work, "--dry-run", "result.txt").wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert len(submissions(done)) == 1
    assert not at_once
    assert (slurm_work.root / "result.txt").read_bytes() == uninterrupted(tmp_path / "whole")
    assert outcomes(slurm_work) == [EndKind.PAUSED] * (len(history(slurm_work)) - 1) + [EndKind.FINISHED]
    assert len(history(slurm_work)) == len(jobs_of(slurm_work)) == started(slurm_work) >= 3
    assert "Nothing to be done" in left.text, "a mark that the result is under way would run the rule again"


@pytest.mark.slow
def test_the_end_of_slurms_time_kills_and_killed_drivers_leave_what_one_run_leaves(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 2000
    prepare(slurm_work, options="", runtime=1, goal=goal)
    driver = start(slurm_work)
    for attempts in (1, 2):
        until(lambda: program(slurm_work), PATIENCE_SECONDS)
        driver.kill()
        driver = start(slurm_work)
        known = len(checkpoints(slurm_work)) and checkpoints(slurm_work)[-1]
        until_saved_after(slurm_work, known)
        kill(slurm_work.processes("count.py data.txt"))
        until_noted(slurm_work, attempts)

    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path, goal)
    assert list(overlaps(history(slurm_work))) == []
    assert EndKind.PAUSED in outcomes(slurm_work)
    assert outcomes(slurm_work).count(EndKind.DIED) == 2
