"""`segment_minutes: {at_least, at_most}` on a real cluster: a job that gets less time does a part of its segment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.detached import PATIENCE_SECONDS, closed, detached, submit, wait_for_jobs
from cluster.endings import arrays, assert_is_whole
from cluster.lab import Cluster
from support.workdir import WorkDir

from unbroken.slurm.sbatch import ALL_TIME
from unbroken.store.history import EndKind

MOST_MINUTES = 8
# What the first job gets, by whether Slurm gives it all the time that is free.
LESS_MINUTES = {False: 2, True: 4}
# More steps than fit into that, and fewer than into a segment.
STEPS = {False: 7500, True: 13000}


def configure(work: WorkDir, goal: int, at_least: int = 1) -> None:
    """A run of so many steps, 50 a second."""
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 0}
    length = {"at_least": at_least, "at_most": MOST_MINUTES}
    work.configure({"a": {"engine": "toy", "segments": 3, "segment_minutes": length, "settings": settings}})


def gives_all_time(cluster: Cluster) -> bool:
    return cluster.release >= ALL_TIME


@contextmanager
def less_time(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Give the first job less time; the function is called once it is submitted.

    An older Slurm gives no job less.  There its user lowers its limit while it waits.
    """
    if gives_all_time(cluster):
        with one_node_free(cluster):
            yield lambda: None
        return

    def lower_limit() -> None:
        cluster.wait_until(cluster.jobs)
        (array,) = arrays(cluster.jobs())
        cluster.run("scontrol", "update", f"JobId={array}_1", f"TimeLimit={LESS_MINUTES[False]}")
        cluster.run("scontrol", "update", "PartitionName=short", "State=UP")

    with closed(cluster):
        yield lower_limit


@contextmanager
def one_node_free(cluster: Cluster) -> Iterator[None]:
    """Leave one node free until a job that needs all of them can start."""
    others = [cluster.sbatch("sleep 900", "--exclusive", f"--time={LESS_MINUTES[True]}") for _ in range(3)]
    cluster.wait_until(lambda: all(cluster.state(job) == "RUNNING" for job in others))
    large = cluster.sbatch("sleep 900", "--exclusive", "--nodes=4", f"--time={MOST_MINUTES}")
    cluster.wait_until(lambda: planned(cluster, large))
    try:
        yield
    finally:
        cluster.run("scancel", *others, large)


def planned(cluster: Cluster, job: str) -> bool:
    """Return True once backfill has said when a job will start: until then it plans with no free time."""
    return cluster.run("squeue", "--noheader", "--job", job, "--Format=StartTime").strip() != "N/A"


def limit_minutes(cluster: Cluster, job: str) -> int:
    """What Slurm gave a job that has started."""
    shown = dict(word.partition("=")[::2] for word in cluster.run("scontrol", "show", "job", job).split())
    hours, minutes, seconds = map(int, shown["TimeLimit"].split(":"))
    return hours * 60 + minutes + seconds // 60


def assert_a_job_had_less_time(work: WorkDir, cluster: Cluster, tmp_path: Path, goal: int) -> None:
    first, last = history = assert_is_whole(work, tmp_path, goal)
    assert [attempt.segment for attempt in history] == [1, 1]
    assert (first.kind, last.kind) == (EndKind.INTERRUPTED, EndKind.FINISHED)
    assert f"of {MOST_MINUTES} minutes and goes on in the next job" in first.message
    assert last.progress_from == first.progress_to > 0
    given = limit_minutes(cluster, first.slurm_job)
    is_whole = gives_all_time(cluster)
    # The first free minute is over until the job is there.
    assert given in (LESS_MINUTES[is_whole] - is_whole, LESS_MINUTES[is_whole])
    assert cluster.state(first.slurm_job) == "COMPLETED"
    # It worked until just before its end: as nothing was known of its saves, a tenth.
    assert first.unused_seconds is not None and first.unused_seconds < 0.15 * given * 60
    assert first.work_seconds > 0.75 * given * 60
    assert limit_minutes(cluster, last.slurm_job) == MOST_MINUTES


@pytest.mark.slow
def test_the_next_job_goes_on_with_the_segment_of_one_that_got_less_time(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, STEPS[gives_all_time(cluster)]
    configure(work, goal)

    with less_time(cluster) as is_submitted:
        driver = work.start()
        is_submitted()
        cluster.wait_until(lambda: work.history("a"))
    said = driver.wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    assert_a_job_had_less_time(work, cluster, tmp_path, goal)


@pytest.mark.slow
def test_a_driver_that_is_killed_while_a_job_has_less_time_loses_nothing(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """The job ends its part alone; the next driver finds the segment begun, and neither does it again nor ends it."""
    work, goal = slurm_work, STEPS[gives_all_time(cluster)]
    configure(work, goal)

    with less_time(cluster) as is_submitted:
        driver = work.start()
        is_submitted()
        cluster.wait_until(lambda: work.processes("unbroken.engines.toy.program"))
        driver.process.kill()
        cluster.wait_until(lambda: work.history("a"))
    said = work.start().wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    assert_a_job_had_less_time(work, cluster, tmp_path, goal)


@pytest.mark.slow
def test_without_a_driver_a_job_with_less_time_is_followed_too(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = detached(slurm_work), STEPS[gives_all_time(cluster)]
    configure(work, goal)

    with less_time(cluster) as is_submitted:
        submit(work)
        is_submitted()
        cluster.wait_until(lambda: work.history("a"))
    wait_for_jobs(cluster)

    assert_a_job_had_less_time(work, cluster, tmp_path, goal)


@pytest.mark.parametrize("has_driver", [True, False], ids=["attached", "detached"])
def test_an_older_slurm_counts_at_most_alone_and_the_driver_says_so(
    has_driver: bool, slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """It would give each job the least only, also where there is more."""
    if gives_all_time(cluster):
        pytest.skip("missing: Slurm before 25.05.3")
    work, goal = slurm_work if has_driver else detached(slurm_work), 60
    configure(work, goal)

    with closed(cluster):
        driver = work.start()
        cluster.wait_until(cluster.jobs)
        shown = [cluster.run("scontrol", "show", "job", job) for job in cluster.jobs()]
    said = driver.wait(PATIENCE_SECONDS)
    wait_for_jobs(cluster)

    needs = "at_least needs executor: unbroken, and Slurm 25.05.3 or later"
    line = f"at_most alone counts; {needs}; to say so, type segment_minutes: {MOST_MINUTES}"
    assert said.text.count(f"runs.a.segment_minutes: {line}") == 1
    assert all("TimeMin=N/A" in job and f"TimeLimit=00:0{MOST_MINUTES}:00" in job for job in shown)
    (attempt,) = assert_is_whole(work, tmp_path, goal)
    assert attempt.kind is EndKind.FINISHED


def test_where_the_queue_is_empty_a_job_gets_its_whole_length(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, 60
    configure(work, goal)

    said = work.start().wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    (attempt,) = assert_is_whole(work, tmp_path, goal)
    assert (attempt.kind, attempt.segment) == (EndKind.FINISHED, 1)
    assert limit_minutes(cluster, attempt.slurm_job) == MOST_MINUTES
