"""`executor: unbroken` with a driver that waits, on a real cluster."""

import contextlib
import datetime
import itertools
import os
import random
import re
import signal
import statistics
import time
from pathlib import Path

import pytest
from cluster.detached import wait_for_jobs
from cluster.endings import arrays, signal_job, submitted, wait_until_it_hears
from cluster.lab import Cluster, LabError
from support.workdir import Done, Driver, WorkDir, one_long_segment, one_step_segments, overlaps, uninterrupted, until

from unbroken.store.history import Attempt, EndKind

# The proofs at full size: UNBROKEN_FULL=1.
IS_FULL = os.environ.get("UNBROKEN_FULL", "") == "1"
PATIENCE_SECONDS = 2400.0 if IS_FULL else 600.0
HAS_JOB = re.compile(r"submitted array of \d+ tasks|is in the queue or running already, taken over")


def start(work: WorkDir, *words: str) -> Driver:
    return work.start("--executor", "unbroken", *words)


def finish(work: WorkDir, *words: str) -> Done:
    done = start(work, *words).wait(PATIENCE_SECONDS)
    assert done.code == 0, done.text
    return done


def started(work: WorkDir, runs: dict[str, object], *words: str, **defaults: object) -> Driver:
    """A driver whose runs have each saved something."""
    work.configure(runs, **defaults)
    driver = start(work, *words)
    until(lambda: all(work.saved(run) for run in runs) or driver.process.poll() is not None, PATIENCE_SECONDS)
    assert driver.process.poll() is None, driver.text
    return driver


def job_of(work: WorkDir, run: str = "a") -> str:
    return str(work.claim(run)["slurm_job"])


def _in_jobs(work: WorkDir, needle: str) -> list[int]:
    """The processes below this folder's jobs whose command lines hold these words."""
    found = []
    for pid in work.processes(needle):
        with contextlib.suppress(OSError):
            if b"SLURM_JOB_ID=" in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def assert_no_work_was_done_twice(history: list[Attempt]) -> None:
    """Attempts follow each other, and no step was counted in two of them."""
    assert list(overlaps(history)) == []
    assert all(after.progress_from == before.progress_to for before, after in itertools.pairwise(history))


def test_a_chain_hands_over_within_five_seconds(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": {"engine": "toy", "segments": 5, "segment_minutes": 0.05, "settings": {"goal": 9999}}})

    finish(slurm_work)

    history = slurm_work.history("a")
    gaps = [_unix(after.started_utc) - _unix(before.ended_utc) for before, after in itertools.pairwise(history)]
    assert len(gaps) == 4
    print(f"hand-offs, whole seconds: {gaps}, median {statistics.median(gaps)}")
    assert statistics.median(gaps) <= 5


def test_a_finished_run_queues_nothing_more(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(10, goal=3)})

    done = finish(slurm_work)
    wait_for_jobs(cluster)

    assert len(submitted(done.text)) == 1
    assert cluster.starts(slurm_work.root) == 3, "a waiting task was not canceled"
    assert [record.kind for record in slurm_work.records("a")] == [EndKind.PAUSED] * 2 + [EndKind.FINISHED] * 8
    assert [record.has_worked for record in slurm_work.records("a")] == [True] * 3 + [False] * 7
    assert slurm_work.plan() == 0


def test_a_driver_that_starts_again_takes_over_what_runs_and_what_waits(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 700
    slurm_work.configure({"a": one_long_segment(goal), "b": one_long_segment(goal, threads=4, mem_mb=3900)})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    first = start(slurm_work)
    cluster.wait_until(lambda: len(arrays(cluster.jobs("pending"))) == 2)
    waiting = arrays(cluster.jobs("pending"))

    first.kill()
    second = start(slurm_work)
    until(lambda: second.text.count("is in the queue or running already, taken over") == 2)
    began = time.time() - 1.0
    cluster.run("scancel", blocker)
    until(lambda: all(slurm_work.saved(run) for run in "ab"), PATIENCE_SECONDS)
    programs = slurm_work.processes("-m unbroken.engines.toy.program")
    for pid in programs:
        os.kill(pid, signal.SIGSTOP)  # else they may be over before the next driver looks
    assert len(_in_jobs(slurm_work, "-m unbroken.job ")) == len(programs)
    assert _in_jobs(slurm_work, "snakemake ") == []  # no job has one of its own
    second.kill()
    driver = start(slurm_work)
    until(lambda: driver.text.count("is in the queue or running already, taken over") == 2, PATIENCE_SECONDS)
    for pid in programs:
        os.kill(pid, signal.SIGCONT)
    third = driver.wait(PATIENCE_SECONDS)

    assert third.code == 0, third.text
    assert third.text.count("is in the queue or running already, taken over") == 2
    assert submitted(third.text) == []
    assert arrays(attempt.slurm_job for run in "ab" for attempt in slurm_work.history(run)) == waiting
    for run in "ab":
        assert [attempt.kind for attempt in slurm_work.history(run)] == [EndKind.FINISHED]
        assert slurm_work.final(run) == uninterrupted(tmp_path / run, goal)
        # The hours in the queue are no run time of the rule in Snakemake's report.
        noted = slurm_work.snakemakes_note(f"results/{run}/segments/001.json")
        assert noted["starttime"] == pytest.approx(_unix(slurm_work.history(run)[0].started_utc), abs=30.0)
        assert noted["starttime"] > began
    wait_for_jobs(cluster)


def test_a_job_that_waits_works_by_what_was_changed_since(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_long_segment(100_000)})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    first = start(slurm_work)
    cluster.wait_until(lambda: cluster.jobs("pending"))
    first.kill()

    slurm_work.configure({"a": one_long_segment(30)})  # or a run of hours is queued for nothing
    second = start(slurm_work)
    until(lambda: second.text.count("is in the queue or running already, taken over") == 1)
    cluster.run("scancel", blocker)
    done = second.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert submitted(done.text) == []
    assert {record.progress.done for record in slurm_work.records("a")} == {30}


def test_a_driver_that_is_told_to_end_leaves_what_has_not_begun_in_the_queue(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 60
    slurm_work.configure({run: one_long_segment(goal, threads=4) for run in "ab"})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    driver = start(slurm_work)
    until(lambda: len(submitted(driver.text)) == 2)
    out = cluster.jobs("pending")

    driver.process.terminate()
    told = driver.wait(PATIENCE_SECONDS)
    left = cluster.jobs("pending")
    again = start(slurm_work)
    until(lambda: again.text.count("is in the queue or running already, taken over") == 2)
    cluster.run("scancel", blocker)
    done = again.wait(PATIENCE_SECONDS)

    assert told.code == 1
    assert told.text.count("told to end (SIGTERM): the jobs of all runs stay in the queue and go on") == 1
    assert "Error in rule" not in told.text
    assert arrays(left) == set(submitted(told.text))
    assert out == left
    assert done.code == 0, done.text
    assert submitted(done.text) == []
    assert {attempt.slurm_job for run in "ab" for attempt in slurm_work.history(run)} <= set(left)
    for run in "ab":
        assert slurm_work.final(run) == uninterrupted(tmp_path / run, goal)


@pytest.mark.slow
def test_drivers_told_to_end_while_they_submit_and_killed_before_they_have_ended_lose_no_job(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 60
    slurm_work.configure({run: one_long_segment(goal, threads=4) for run in "ab"})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    first = start(slurm_work)
    until(lambda: submitted(first.text))

    first.process.terminate()  # the second job may just be on its way to sbatch
    told = first.wait(PATIENCE_SECONDS)
    second = start(slurm_work)
    until(lambda: "taken over" in second.text)
    second.process.terminate()
    second.kill()
    third = start(slurm_work)
    until(lambda: len(HAS_JOB.findall(third.text)) == 2)
    cluster.run("scancel", blocker)
    done = third.wait(PATIENCE_SECONDS)

    assert (told.code, done.code) == (1, 0), done.text
    for run in "ab":
        assert [attempt.kind for attempt in slurm_work.history(run)] == [EndKind.FINISHED]
        assert slurm_work.final(run) == uninterrupted(tmp_path / run, goal)
    wait_for_jobs(cluster)


def test_a_driver_that_is_told_to_end_returns_at_once_and_what_works_goes_on_without_it(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 2500
    driver = started(slurm_work, {"a": one_long_segment(goal), "b": one_long_segment(goal)})

    driver.process.terminate()
    done = driver.wait(PATIENCE_SECONDS)
    at_work = [run for run in "ab" if slurm_work.history(run) == []]
    wait_for_jobs(cluster)

    assert done.code == 1
    assert "told to end (SIGTERM): the jobs of all runs stay in the queue and go on" in done.text
    assert at_work == ["a", "b"]
    for run in "ab":
        assert [attempt.kind for attempt in slurm_work.history(run)] == [EndKind.FINISHED]
        assert slurm_work.final(run) == uninterrupted(tmp_path / run, goal)


@pytest.mark.slow
def test_a_segment_that_ended_while_no_driver_looked_is_not_computed_again(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    driver = started(slurm_work, {"a": one_long_segment(400)})
    job = job_of(slurm_work)

    driver.kill()
    cluster.wait_until(lambda: cluster.state(job) == "COMPLETED", PATIENCE_SECONDS)
    done = finish(slurm_work)

    assert submitted(done.text) == []
    assert [attempt.slurm_job for attempt in slurm_work.history("a")] == [job]


@pytest.mark.slow
def test_two_drivers_share_one_array_for_each_run(slurm_work: WorkDir, cluster: Cluster) -> None:
    run = {"engine": "toy", "segments": 4, "segment_minutes": 0.05, "settings": {"goal": 9999}}
    slurm_work.configure({"a": run, "b": run})

    drivers = [start(slurm_work), start(slurm_work)]
    dones = [driver.wait(PATIENCE_SECONDS) for driver in drivers]

    assert [done.code for done in dones] == [0, 0], dones[0].text + dones[1].text
    assert sum(len(submitted(done.text)) for done in dones) == 2
    for run in "ab":
        assert [attempt.segment for attempt in slurm_work.history(run)] == [1, 2, 3, 4]


@pytest.mark.slow
def test_scancel_stops_one_run_and_says_what_to_type(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 1200
    driver = started(slurm_work, {"a": one_long_segment(goal), "b": one_long_segment(goal)})
    job = job_of(slurm_work)

    cluster.run("scancel", job)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 1
    (line,) = done.lines("unbroken: a segment 1: job ")
    assert line.endswith(f"; this run stops: Slurm job {job} was canceled; to go on, start snakemake again")
    assert len(submitted(done.text)) == 2
    assert slurm_work.final("b") == uninterrupted(tmp_path / "b", goal)
    assert len({attempt.slurm_job for attempt in slurm_work.history("a")}) == 1


@pytest.mark.slow
def test_an_interrupted_segment_goes_on_without_using_up_a_retry(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path
) -> None:
    goal = 1500
    driver = started(cgroup_work, {"a": one_long_segment(goal)}, "--retries", "0")
    wait_until_it_hears(cgroup_work)
    job = job_of(cgroup_work)

    # As a preemption without requeue, or a site's own tool: TERM, and Slurm calls the job FAILED.
    signal_job(cgroup_cluster, job, "TERM")
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = cgroup_work.history("a")
    assert history[0].slurm_job == job
    assert [attempt.kind for attempt in history] == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert_no_work_was_done_twice(history)
    assert cgroup_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_preempted_job_that_slurm_does_not_requeue_is_submitted_again(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path
) -> None:
    goal = 2500
    words = ("--retries", "0", "--unbroken-no-requeue")
    driver = started(cgroup_work, {"a": one_long_segment(goal, partition="preempt")}, *words)
    wait_until_it_hears(cgroup_work)
    job = job_of(cgroup_work)

    urgent = cgroup_cluster.sbatch("sleep 1", "--partition=urgent", "--exclusive")
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert cgroup_cluster.state(urgent) == "COMPLETED"
    history = cgroup_work.history("a")
    assert [attempt.kind for attempt in history] == [EndKind.INTERRUPTED, EndKind.FINISHED]
    assert history[0].slurm_job == job != history[1].slurm_job
    assert cgroup_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_node_that_does_not_boot_costs_no_retry(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 600
    words = ("--retries", "0", "--unbroken-no-requeue")
    driver = started(slurm_work, {"a": one_long_segment(goal)}, *words)
    job = job_of(slurm_work)

    cluster.fail_boot(job)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = slurm_work.history("a")
    assert cluster.state(job) == "BOOT_FAIL"
    assert history[0].kind in {EndKind.INTERRUPTED, EndKind.DIED}  # as it was told in time or not
    assert history[1].kind is EndKind.FINISHED
    assert history[0].slurm_job == job != history[1].slurm_job
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_lost_node_costs_no_retry(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goal = 600
    driver = started(slurm_work, {"a": one_long_segment(goal)}, "--retries", "0")

    cluster.kill_slurmd(slurm_work.claim("a")["slurm_node"])
    os.kill(slurm_work.holder("a"), signal.SIGKILL)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_killed_segment_that_had_saved_something_is_no_failure(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 600
    driver = started(slurm_work, {"a": one_long_segment(goal)}, "--retries", "0")
    job = job_of(slurm_work)

    os.kill(slurm_work.holder("a"), signal.SIGKILL)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    history = slurm_work.history("a")
    assert [attempt.kind for attempt in history] == [EndKind.DIED, EndKind.FINISHED]
    assert history[0].slurm_job == job != history[1].slurm_job
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", goal)


def test_a_crash_uses_up_the_retries_and_names_the_log(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(2, goal=2, enter=["false"])})

    done = start(slurm_work, "--retries", "1").wait(PATIENCE_SECONDS)

    assert done.code == 1
    assert len(submitted(done.text)) == 1
    (line,) = done.lines("unbroken: a segment 1: job ")
    assert "ended as FAILED; this run stops: " in line
    assert "the program ended with exit code 1" in line and "logs/a/001" in line
    assert len(slurm_work.history("a")) == 2


@pytest.mark.slow
def test_the_controller_may_be_away_while_segments_end_and_start(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 900
    run = {"engine": "toy", "segments": 8, "segment_minutes": 0.1, "settings": {"goal": goal, "step_seconds": 0.02}}
    driver = started(slurm_work, {"a": {**run, "save_minutes": 0.01}})

    cluster.stop_slurmctld()
    before = len(slurm_work.records("a"))
    until(lambda: len(slurm_work.records("a")) > before, PATIENCE_SECONDS)
    time.sleep(5)  # the job that is over waits for an answer
    cluster.start_slurmctld()
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_no_work_was_done_twice(slurm_work.history("a"))
    # None was a failure; on a busy machine one may have used up its job's minute before its program was there.
    assert {attempt.driver_attempt for attempt in slurm_work.history("a")} == {1}
    assert slurm_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_without_accounting_endings_are_known_all_the_same(
    silent_work: WorkDir, silent_cluster: Cluster, tmp_path: Path
) -> None:
    goal = 600
    driver = started(silent_work, {"a": one_long_segment(goal)}, "--retries", "0")

    os.kill(silent_work.holder("a"), signal.SIGKILL)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert silent_work.final("a") == uninterrupted(tmp_path / "whole", goal)


@pytest.mark.slow
def test_a_held_job_is_named_with_what_to_type(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(1, goal=1)})
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")
    driver = start(slurm_work, "--unbroken-init-seconds-before-status-checks", "5")
    cluster.wait_until(lambda: cluster.jobs("pending"))
    (array,) = arrays(cluster.jobs("pending"))
    job = f"{array}_1"

    cluster.run("scontrol", "uhold", array)
    until(lambda: "is PENDING (JobHeld" in driver.text, PATIENCE_SECONDS)
    cluster.run("scancel", blocker)
    cluster.run("scontrol", "release", array)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    told = f"unbroken: a segment 1: Slurm job {job} is PENDING (JobHeld"
    assert [line.endswith(f": it is held; type: scontrol release {array}") for line in done.lines(told)] == [True]


@pytest.mark.slow
def test_a_driver_killed_at_random_moments_doubles_nothing_and_leaves_nothing(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    kills, count, goal = (20, 20, 2600) if IS_FULL else (8, 5, 1300)
    chance = random.Random(7)
    runs = [f"r{number}" for number in range(count)]
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 20}

    def configure(segment_minutes: float) -> None:
        # Beside other tests three seconds may be over before a program's first step; no driver is to stop for that.
        more = {"segments": 40, "segment_minutes": segment_minutes, "attempts_without_progress": 100}
        slurm_work.configure({run: {"settings": settings} for run in runs}, engine="toy", **more)

    def advanced() -> int:
        return sum(slurm_work.saved(run) for run in runs)

    hits = 0
    configure(segment_minutes=0.05)  # what works on without a driver does not come far
    for _ in range(kills):
        before, driver = advanced(), start(slurm_work)
        moment = chance.choice(["begins", "has jobs", "further"])
        until(
            lambda: (  # it is asked at once
                driver.process.poll() is not None  # noqa: B023
                or (moment == "begins" and driver.text)  # noqa: B023
                or (moment == "has jobs" and HAS_JOB.search(driver.text))  # noqa: B023
                or (moment == "further" and advanced() > before)  # noqa: B023
            ),
            PATIENCE_SECONDS,
        )
        time.sleep(chance.uniform(0, 0.5))
        hits += driver.process.poll() is None
        driver.kill()
    configure(segment_minutes=2)
    finish(slurm_work)

    assert hits >= kills // 2
    for run in runs:
        history = slurm_work.history(run)
        assert_no_work_was_done_twice(history)
        settled = [attempt.segment for attempt in history if attempt.kind.settles]
        assert settled == sorted(set(settled))
        assert slurm_work.final(run) == uninterrupted(tmp_path / run, goal)
    wait_for_jobs(cluster)
    # One task for each attempt, and none that started for nothing.
    jobs = [attempt.slurm_job for run in runs for attempt in slurm_work.history(run)]
    assert len(set(jobs)) == len(jobs)
    # Accounting, because the controller forgets ended jobs after minutes.
    columns = "--format=JobID,NodeList,WorkDir"
    words = ("sacct", "--starttime=now-1days", "--allocations", "--noheader", "--parsable2", columns)

    def own() -> set[str]:
        rows = (line.split("|") for line in cluster.run(*words).splitlines())
        return {job for job, nodes, folder in rows if folder == str(slurm_work.root) and nodes != "None assigned"}

    with contextlib.suppress(LabError):  # the sets below say what is missing
        cluster.wait_until(lambda: own() >= set(jobs), 200)
    assert own() == set(jobs)


def _unix(utc: str) -> float:
    return datetime.datetime.fromisoformat(utc.replace("Z", "+00:00")).timestamp()
