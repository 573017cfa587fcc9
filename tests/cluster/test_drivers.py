"""Drivers that die, are started again or twice, and runs that are extended while others work, on a real cluster."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from cluster.endings import arrays
from cluster.lab import Cluster
from support.workdir import ROOT, WorkDir, overlaps, uninterrupted, until

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0
GOAL = 600


def run(goal: int = GOAL, **more: object) -> dict[str, object]:
    """Two or three segments of a few seconds; more than the cluster runs at once have to wait."""
    settings = {"goal": goal, "step_seconds": 0.01, "save_steps": 20}
    return {"engine": "toy", "segments": 20, "segment_minutes": 0.06, "settings": settings, **more}


def assert_all_whole(work: WorkDir, tmp_path: Path, goals: dict[str, int]) -> None:
    for name, goal in goals.items():
        assert work.final(name) == uninterrupted(tmp_path / f"whole_{name}", goal), name
        history = work.history(name)
        assert list(overlaps(history)) == []
        settled = [attempt.segment for attempt in history if attempt.kind.settles]
        assert settled == sorted(set(settled)), f"{name}: a segment was done twice"


def test_four_runs_reach_their_goals_side_by_side_on_two_partitions(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    slurm_work.configure({"a": run(), "b": run(700), "c": run(800, place="gpu"), "d": run(place="gpu", gpus=2)})

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_all_whole(slurm_work, tmp_path, {"a": 600, "b": 700, "c": 800, "d": 600})
    where = {name: slurm_work.passports(name)[-1].slurm_job["partition"] for name in "abcd"}
    assert where == {"a": "short", "b": "short", "c": "gpu", "d": "gpu"}
    assert all(record.kind is EndKind.FINISHED for name in "abcd" for record in slurm_work.records(name)[-1:])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["KILL", "HUP"])
def test_a_driver_that_is_started_again_takes_over_what_runs_and_what_waits(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    # Two nodes' memory is all that four of the runs get: the others wait.
    goals = dict.fromkeys("abcdef", 1500)
    slurm_work.configure({name: run(goal, segment_minutes=2, mem_mb=4000) for name, goal in goals.items()})
    first = slurm_work.start()
    until(lambda: len(cluster.jobs("running")) == 4 and len(arrays(cluster.jobs())) == 6)
    until(lambda: sum(slurm_work.saved(name) > 0 for name in goals) == 4)
    before = arrays(cluster.jobs())

    first.interrupt(number) if number is signal.SIGHUP else first.kill()
    first.process.wait()
    out = slurm_work.unbroken("status").text
    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    states = [row.split()[1:2] for row in out.splitlines()]
    assert (states.count(["queued"]), states.count(["working"])) == (2, 4)
    assert_all_whole(slurm_work, tmp_path, goals)
    assert arrays(attempt.slurm_job for name in goals for attempt in slurm_work.history(name)) == before


@pytest.mark.slow
def test_two_drivers_at_once_double_nothing(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    goals = {"a": 600, "b": 600}
    slurm_work.configure({name: run(goal) for name, goal in goals.items()})

    drivers = [slurm_work.start(), slurm_work.start()]
    done = [driver.wait(PATIENCE_SECONDS) for driver in drivers]

    assert [each.code for each in done] == [0, 0], "\n".join(each.text for each in done)
    assert_all_whole(slurm_work, tmp_path, goals)


@pytest.mark.slow
def test_a_run_that_is_extended_while_another_works_computes_only_what_is_new(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    other = run(10_000, segment_minutes=3)  # works still when the second driver begins, also on a slow machine
    slurm_work.configure({"a": run(200), "b": other})
    first = slurm_work.start()
    # Its line in the history comes after `final/`.
    until(lambda: [line.kind for line in slurm_work.history("a")][-1:] == [EndKind.FINISHED], PATIENCE_SECONDS)
    done_before = slurm_work.history("a")

    slurm_work.configure({"a": run(400, segments=30), "b": other})
    second = slurm_work.start()
    done = [first.wait(PATIENCE_SECONDS), second.wait(PATIENCE_SECONDS)]

    assert [each.code for each in done] == [0, 0], "\n".join(each.text for each in done)
    assert_all_whole(slurm_work, tmp_path, {"a": 400, "b": 10_000})
    assert slurm_work.history("a")[: len(done_before)] == done_before
    assert slurm_work.history("a")[len(done_before)].progress_from == 200


@pytest.mark.slow
def test_the_plugin_alone_serves_as_well(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    more = {"segment_minutes": 5, "segments": 5}
    slurm_work.configure({"a": run(1200, **more), "b": run(place="gpu", **{**more, "segments": 1})})
    slurm_work.words = ("--executor", "slurm", "--slurm-init-seconds-before-status-checks", "2")

    driver = slurm_work.start()
    until(lambda: slurm_work.saved("a") > 0, PATIENCE_SECONDS)
    os.kill(slurm_work.holder("a"), signal.SIGUSR1)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_all_whole(slurm_work, tmp_path, {"a": 1200, "b": GOAL})
    assert [attempt.kind for attempt in slurm_work.history("a")] == [EndKind.PAUSED, EndKind.FINISHED]
    assert done.text.count("has been submitted with SLURM jobid") == 3  # none for those that a has left over


@pytest.mark.slow
def test_a_training_ends_on_slurm_as_in_one_piece_although_it_is_killed(slurm_work: WorkDir, cluster: Cluster) -> None:
    shutil.copy(ROOT / "examples" / "torch" / "train.py", slurm_work.root)
    settings = {"script": "train.py", "goal": 30, "goal_unit": "epochs"}
    run = {"engine": "torch", "segments": 3, "save_minutes": 0.02, "segment_minutes": 9}
    # It rests in each batch, so that it is at work yet when it is hit.
    resting = {**settings, "args": ["--pause-seconds", 0.05]}
    slurm_work.configure(
        {"pieces": {**run, "settings": resting}, "whole": {**run, "segments": 1, "settings": settings}}
    )

    driver = slurm_work.start()
    for token, number in ((1, signal.SIGKILL), (2, signal.SIGUSR1)):
        until(lambda: token in {each.token for each in slurm_work.passports("pieces")}, PATIENCE_SECONDS)  # noqa: B023
        os.kill(slurm_work.holder("pieces"), number)
    done = driver.wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    outcomes = [attempt.kind for attempt in slurm_work.history("pieces")]
    assert outcomes == [EndKind.DIED, EndKind.PAUSED, EndKind.FINISHED]
    assert list(overlaps(slurm_work.history("pieces"))) == []
    assert slurm_work.final("pieces")["model.pt"] == slurm_work.final("whole")["model.pt"]
