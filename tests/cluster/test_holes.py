"""`segment_minutes: {at_least, at_most}` on a real cluster: a job starts in a hole of the queue."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.detached import PATIENCE_SECONDS, closed, detached, submit, wait_for_jobs
from cluster.endings import assert_is_whole
from cluster.lab import Cluster
from support.workdir import WorkDir

from unbroken.runs.outcome import Outcome
from unbroken.slurm.time_min import WHOLE_HOLE

MOST_MINUTES = 8
# By whether the release gives a hole whole.  There are more steps than fit into a hole, and fewer than into a segment.
HOLE_MINUTES = {False: 3, True: 4}
STEPS = {False: 7500, True: 13000}


def configure(work: WorkDir, goal: int, at_least: int = 1) -> None:
    """A run of so many steps, 50 a second."""
    settings = {"goal": goal, "step_seconds": 0.02, "save_steps": 0}
    length = {"at_least": at_least, "at_most": MOST_MINUTES}
    work.configure({"a": {"engine": "toy", "segments": 3, "segment_minutes": length, "settings": settings}})


def is_given_whole(cluster: Cluster) -> bool:
    return cluster.release >= WHOLE_HOLE


@contextmanager
def hole(cluster: Cluster) -> Iterator[None]:
    """One node is free until a job that needs all of them can start."""
    minutes = HOLE_MINUTES[is_given_whole(cluster)]
    others = [cluster.sbatch("sleep 900", "--exclusive", f"--time={minutes}") for _ in range(3)]
    cluster.wait_until(lambda: all(cluster.state(job) == "RUNNING" for job in others))
    large = cluster.sbatch("sleep 900", "--exclusive", "--nodes=4", f"--time={MOST_MINUTES}")
    cluster.wait_until(lambda: planned(cluster, large))
    try:
        yield
    finally:
        cluster.run("scancel", *others, large)


def planned(cluster: Cluster, job: str) -> bool:
    """Backfill has said when it shall start: until then nobody knows of a hole."""
    return cluster.run("squeue", "--noheader", "--job", job, "--Format=StartTime").strip() != "N/A"


def limit_minutes(cluster: Cluster, job: str) -> int:
    """What Slurm gave a job that has started."""
    shown = dict(word.partition("=")[::2] for word in cluster.run("scontrol", "show", "job", job).split())
    hours, minutes, seconds = map(int, shown["TimeLimit"].split(":"))
    return hours * 60 + minutes + seconds // 60


def assert_it_used_a_hole(work: WorkDir, cluster: Cluster, tmp_path: Path, goal: int) -> None:
    first, last = history = assert_is_whole(work, tmp_path, goal)
    assert [attempt.segment for attempt in history] == [1, 1]
    assert (first.outcome, last.outcome) == (Outcome.INTERRUPTED, Outcome.FINISHED)
    assert f"of {MOST_MINUTES} minutes and goes on in the next job" in first.message
    assert last.progress_from == first.progress_to > 0
    given = limit_minutes(cluster, first.slurm_job)
    # The first minute of the hole is over until the job is there.
    assert given in ((HOLE_MINUTES[True] - 1, HOLE_MINUTES[True]) if is_given_whole(cluster) else (1, 2))
    assert cluster.state(first.slurm_job) == "COMPLETED"
    # It worked until just before its end: as nothing was known of its saves, a tenth.
    assert first.unused_seconds is not None and first.unused_seconds < 0.15 * given * 60
    assert first.work_seconds > 0.75 * given * 60
    assert limit_minutes(cluster, last.slurm_job) == MOST_MINUTES


@pytest.mark.slow
def test_a_job_uses_a_hole_and_the_next_one_goes_on_with_its_segment(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, STEPS[is_given_whole(cluster)]
    configure(work, goal)

    with hole(cluster):
        driver = work.start()
        cluster.wait_until(lambda: work.history("a"))
    said = driver.wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    assert "minutes and goes on in the next job" in said.text
    assert_it_used_a_hole(work, cluster, tmp_path, goal)


@pytest.mark.slow
def test_a_driver_that_is_killed_while_a_job_uses_a_hole_loses_nothing(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """The job ends its part alone; the next driver finds the segment begun, and neither does it again nor ends it."""
    work, goal = slurm_work, STEPS[is_given_whole(cluster)]
    configure(work, goal)

    with hole(cluster):
        driver = work.start()
        cluster.wait_until(lambda: work.processes("unbroken.engines.toy.program"))
        driver.process.kill()
        cluster.wait_until(lambda: work.history("a"))
    said = work.start().wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    assert_it_used_a_hole(work, cluster, tmp_path, goal)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--unbroken-array-chains",)], ids=["jobs", "array"])
def test_without_a_driver_holes_are_used_where_they_are_given_whole(
    words: tuple[str, ...], slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    """An older release would give each job the least only, also where there is more: it is asked for all."""
    work, goal = detached(slurm_work), STEPS[is_given_whole(cluster)]
    configure(work, goal)

    if is_given_whole(cluster):
        with hole(cluster):
            submit(work, *words)
            cluster.wait_until(lambda: work.history("a"))
        wait_for_jobs(cluster)
        return assert_it_used_a_hole(work, cluster, tmp_path, goal)

    configure(work, goal := 300)
    with closed(cluster):
        said = submit(work, *words)
        (first, *_) = sorted(cluster.jobs(), key=int)
        shown = cluster.run("scontrol", "show", "job", first)
    wait_for_jobs(cluster)

    assert "before Slurm 25.05.3 shorter holes are used with a driver alone" in said
    assert ("TimeMin=N/A" in shown, f"TimeLimit=00:0{MOST_MINUTES}:00" in shown) == (True, True)
    (attempt,) = assert_is_whole(work, tmp_path, goal)
    assert attempt.outcome is Outcome.FINISHED


def test_where_the_queue_is_empty_a_job_gets_its_whole_length(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    work, goal = slurm_work, 60
    configure(work, goal)

    said = work.start().wait(PATIENCE_SECONDS)

    assert said.code == 0, said.text
    (attempt,) = assert_is_whole(work, tmp_path, goal)
    assert (attempt.outcome, attempt.segment) == (Outcome.FINISHED, 1)
    assert limit_minutes(cluster, attempt.slurm_job) == MOST_MINUTES
