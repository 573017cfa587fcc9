"""What changes while tasks of a run's array wait: the config, the goal, what a failure taught, and `scancel`."""

import shutil

import pytest
import yaml
from cluster.both_ways import BOTH_WAYS, DRIVEN, STEPS, Chain, arrays, assert_done_once, steps, until
from cluster.detached import closed
from cluster.endings import BREAKS_ON_A_NODE, HUNGRY
from cluster.lab import Cluster
from support.workdir import WorkDir

from unbroken.job import needs
from unbroken.store.history import EndKind


@pytest.fixture
def work(slurm_work: WorkDir) -> WorkDir:
    return slurm_work


def edit(work: WorkDir, **changes: object) -> None:
    """Change the config of run a."""
    path = work.root / "config/config.yaml"
    config = yaml.safe_load(path.read_text())
    config["runs"]["a"].update(changes)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


@pytest.mark.slow
@BOTH_WAYS
def test_partition_time_and_memory_edited_while_tasks_wait_are_theirs(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(3)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)
    before = chain.waiting()

    edit(work, partition="gpu", segment_minutes=3, mem_mb=700)
    chain.restart()
    until(lambda: "the waiting tasks now ask for" in chain.said)
    asked = [chain.asked(letter) for letter in "Pm"]
    limits = chain.asked("l")
    after = chain.waiting()
    chain.let("all")
    said = chain.end()

    assert asked == [["gpu"], ["700M"]], said
    assert limits == ["3:00"]
    assert after == before
    assert "; they lose their age in the queue" in said
    history = assert_done_once(work, 3)
    assert len(arrays(history)) == 1
    assert {passport.slurm_job["partition"] for passport in work.passports("a")[-2:]} == {"gpu"}


@pytest.mark.slow
@BOTH_WAYS
def test_time_and_memory_edited_while_tasks_wait_cost_no_age(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(3)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)
    ages = {task: cluster.accrue_time(task) for task in chain.waiting()}

    edit(work, segment_minutes=3, mem_mb=700)
    chain.restart()
    until(lambda: "the waiting tasks now ask for MinMemoryNode=700, TimeLimit=3" in chain.said)
    asked = [chain.asked(letter) for letter in "lm"]
    stays = {task: cluster.accrue_time(task) for task in chain.waiting()}
    chain.let("all")
    chain.end()

    assert asked == [["3:00"], ["700M"]]
    assert stays == ages
    assert None not in ages.values()
    assert_done_once(work, 3)


@pytest.mark.slow
@BOTH_WAYS
@pytest.mark.parametrize("is_at_work", [True, False], ids=["one at work", "all wait"])
def test_what_slurm_cannot_change_of_waiting_tasks_is_submitted_again(
    work: WorkDir, cluster: Cluster, is_attached: bool, is_at_work: bool
) -> None:
    work.configure({"a": steps(3)})
    chain = Chain(work, cluster, is_attached)
    if is_at_work:
        chain.start()
        chain.reaches(1)
        change(chain)
    else:
        with closed(cluster):
            chain.start()
            until(chain.waiting)
            change(chain)
    chain.let("all")
    said = chain.end()

    assert said.count("are submitted again and lose their age") == 1, said
    history = assert_done_once(work, 3)
    assert len(arrays(history)) == 1 + is_at_work


def change(chain: Chain) -> None:
    """Edit what only a new submission brings, and start again."""
    before = chain.waiting()
    edit(chain.work, slurm_extra=["--nice=7"])
    chain.restart()
    until(lambda: "are submitted again and lose their age" in chain.said)
    until(lambda: chain.waiting() and not set(chain.waiting()) & set(before))
    assert all("Nice=7" in chain.cluster.run("scontrol", "show", "job", task) for task in chain.waiting())


def test_what_slurm_refuses_to_change_is_not_taken_for_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what it has changed of all that still wait, although one of them has started meanwhile."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    array = cluster.array("sleep 300", 3, "--begin=now+2")
    cluster.wait_until(lambda: cluster.tasks(array)[1] == "RUNNING")
    tasks = [f"{array}_{task}" for task in (1, 2, 3)]

    assert not needs.change_tasks(tasks, "Partition=nowhere")
    assert needs.change_tasks(tasks, "MinMemoryNode=700")
    assert [cluster.asked_memory(task) for task in tasks] == ["500M", "700M", "700M"]


@pytest.mark.slow
@BOTH_WAYS
def test_at_the_goal_none_of_twenty_waiting_tasks_is_left_or_starts(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(2, segments=22)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)
    waiting = chain.waiting()
    chain.let("all")
    said = chain.end()

    assert len(waiting) >= 20
    assert "canceled the waiting tasks: " in said
    assert cluster.starts(work.root) == 2, said
    assert [attempt.kind for attempt in work.history("a")] == [EndKind.PAUSED, EndKind.FINISHED]


@pytest.mark.slow
@BOTH_WAYS
def test_a_goal_raised_and_segments_added_while_tasks_wait_are_reached(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(2)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)

    edit(work, **steps(8))
    chain.restart()
    if is_attached:
        until(lambda: "taken over" in chain.said)
    chain.let("all")
    said = chain.end()

    history = assert_done_once(work, 8)
    assert cluster.starts(work.root) == 8, said
    assert len(arrays(history)) == 2


@pytest.mark.slow
@BOTH_WAYS
def test_waiting_tasks_age_while_the_first_one_works(work: WorkDir, cluster: Cluster, is_attached: bool) -> None:
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    ages = []
    for _ in range(4):
        chain.start()
        chain.reaches(1)
        ages += [cluster.accrue_time(task) for task in chain.waiting()]
        for driver in chain.drivers:
            driver.kill()
        chain.drivers.clear()
        cluster.cancel_everything()
        chain.hold_again()

    assert len(ages) >= 4 * 3
    assert None not in ages


@pytest.mark.slow
@BOTH_WAYS
def test_scancel_of_the_task_at_work_stops_the_run_and_the_next_start_goes_on(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)

    cluster.run("scancel", chain.working())
    said = chain.end(code=1)
    left = cluster.jobs()
    attempts = [attempt.segment for attempt in work.history("a")]
    chain.let("all")
    chain.start()
    chain.end()

    assert left == []
    assert attempts == [1, 2], said  # the next task may have started; it only says that the run stops
    assert "was canceled; to go on, start snakemake again" in said
    assert_done_once(work, 4)


@pytest.mark.slow
@BOTH_WAYS
def test_a_start_right_after_scancel_goes_on_and_the_task_that_starts_meanwhile_counts_as_no_attempt(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    work.write("steps.py", f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{STEPS}")
    chain.start()
    chain.let(1)
    chain.reaches(2)
    canceled = chain.working()

    cluster.run("scancel", canceled)  # it has KillWait to save
    cluster.wait_until(lambda: set(cluster.jobs("running")) - {canceled})
    chain.drivers = [again := work.start(*DRIVEN)]
    until(lambda: again.text)
    chain.let("all")
    said = chain.end()

    history = work.history("a")
    assert [attempt.kind for attempt in history if attempt.kind is EndKind.FAILED] == [], said
    assert history[-1].kind is EndKind.FINISHED


@pytest.mark.slow
@BOTH_WAYS
def test_scancel_of_a_waiting_task_takes_out_that_task_alone(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)
    second, *_ = chain.waiting()

    cluster.run("scancel", second)
    chain.let("all")
    chain.end()

    history = assert_done_once(work, 4)
    assert second not in {attempt.slurm_job for attempt in history}
    assert len(arrays(history)) == 1


@pytest.mark.slow
@BOTH_WAYS
def test_scancel_of_the_array_stops_the_run_and_the_next_start_goes_on(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.let(1)
    chain.reaches(2)

    cluster.run("scancel", chain.working().partition("_")[0])
    said = chain.end(code=1)
    attempts = [attempt.segment for attempt in work.history("a")]
    status = work.unbroken("status").text
    chain.let("all")
    chain.start()
    chain.end()

    assert attempts == [1, 2], said
    assert "was canceled; to go on, start snakemake again" in said
    assert "a: " in status
    assert_done_once(work, 4)


@pytest.mark.slow
@BOTH_WAYS
def test_scancel_of_all_waiting_tasks_loses_nothing(work: WorkDir, cluster: Cluster, is_attached: bool) -> None:
    """The task at work has seen them when it began, and none is left when it ends."""
    work.configure({"a": steps(4)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)

    cluster.run("scancel", "--state=PENDING", chain.working().partition("_")[0])
    cluster.wait_until(lambda: not chain.waiting())
    chain.let("all")
    chain.end()

    assert_done_once(work, 4)


@BOTH_WAYS
def test_after_the_last_attempt_that_is_allowed_no_task_starts(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    work.write("fails.py", "raise SystemExit('it is broken')")
    run = {"engine": "torch", "segments": 5, "segment_minutes": 2, "attempts_without_progress": 9}
    work.configure({"a": {**run, "settings": {"script": "fails.py", "goal": 5}}})
    chain = Chain(work, cluster, is_attached)
    chain.start("--retries", "1")
    said = chain.end(code=1)

    assert [attempt.kind for attempt in work.history("a")] == [EndKind.FAILED] * 2, said
    assert cluster.starts(work.root) == 2
    assert "the run stops: segment 1 failed 2 times; last: " in said
    assert "canceled the waiting tasks" in said


@pytest.mark.slow
@BOTH_WAYS
def test_waiting_tasks_avoid_a_node_on_which_the_run_failed_twice(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    bad = work.root / "bad_node"
    work.write("breaks.py", BREAKS_ON_A_NODE)
    work.added_environment["BAD_NODE"] = str(bad)
    run = {"engine": "torch", "segments": 5, "segment_minutes": 2, "attempts_without_progress": 4}
    work.configure({"a": {**run, "settings": {"script": "breaks.py", "goal": 2}}})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    said = chain.end()

    history = work.history("a")
    assert [attempt.slurm_node == bad.read_text() for attempt in history] == [True, True, False, False], said
    assert history[-1].kind is EndKind.FINISHED
    assert len(arrays(history)) == 1
    assert said.count(f"the waiting tasks avoid {bad.read_text()}, where it failed repeatedly") == 1


@pytest.mark.slow
@BOTH_WAYS
def test_waiting_tasks_ask_for_more_memory_after_one_ran_out_of_it(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, is_attached: bool
) -> None:
    cgroup_work.write("hungry.py", HUNGRY)
    run = {"engine": "torch", "segments": 3, "segment_minutes": 2, "mem_mb": 400, "memory_growth": 2}
    cgroup_work.configure({"a": {**run, "settings": {"script": "hungry.py", "goal": 5}}})
    chain = Chain(cgroup_work, cgroup_cluster, is_attached)
    chain.start()
    said = chain.end()

    history = cgroup_work.history("a")
    assert [(attempt.kind, attempt.job_state) for attempt in history] == [
        (EndKind.FAILED, "OUT_OF_MEMORY"),
        (EndKind.FINISHED, None),
    ], said
    assert [cgroup_cluster.asked_memory(attempt.slurm_job) for attempt in history] == ["400M", "800M"]
    assert len(arrays(history)) == 1
    assert "the waiting tasks now ask for 800 MB; to start with that, set mem_mb: 800" in said


@pytest.mark.slow
@BOTH_WAYS
def test_where_snakemakes_folder_was_removed_the_log_is_named_and_the_next_start_does_the_rest(
    work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """`rm -rf .snakemake` is a habit; what the waiting tasks are told lies in there."""
    work.configure({"a": steps(3)})
    chain = Chain(work, cluster, is_attached)
    chain.start()
    chain.reaches(1)

    shutil.rmtree(work.root / ".snakemake")
    chain.let("all")
    until(lambda: not cluster.jobs())
    if is_attached:
        chain.drivers[0].wait(240)
    chain.restart()
    said = chain.end()

    # A driver may have written it again in time.
    assert is_attached or "spec.json: missing; start snakemake again" in said
    assert not is_attached or "read logs/a/slurm-" in said or "this run stops" not in said
    assert_done_once(work, 3)
