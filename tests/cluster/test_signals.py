"""What a segment hears of Slurm's signals, with control groups and without."""

from pathlib import Path

import pytest
from cluster.endings import signal_job, wait_until_it_hears
from cluster.lab import Cluster
from support.workdir import WorkDir, one_long_segment, overlaps, uninterrupted, until

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0
GOAL = 900


def signalled(work: WorkDir, cluster: Cluster, word: str) -> str:
    """A run of which the first job got a signal at work, brought to its goal; what its first attempt's log says."""
    work.configure({"a": one_long_segment(GOAL, segment_minutes=8)})
    driver = work.start()
    until(lambda: work.saved("a"))
    wait_until_it_hears(work)
    signal_job(cluster, str(work.claim("a")["slurm_job"]), word)
    done = driver.wait(PATIENCE_SECONDS)
    assert done.code == 0, done.text
    return (work.root / "logs/a/001.1.log").read_text()


SAVED = [("URG", EndKind.PAUSED), ("USR1", EndKind.PAUSED), ("TERM", EndKind.INTERRUPTED)]


def assert_is_saved(work: WorkDir, tmp_path: Path, outcome: EndKind) -> None:
    history = work.history("a")
    assert history[0].kind is outcome
    assert history[1].progress_from == history[0].progress_to > 0
    assert list(overlaps(history)) == []
    assert work.final("a") == uninterrupted(tmp_path / "whole", GOAL)


@pytest.mark.parametrize(("word", "outcome"), SAVED)
def test_with_control_groups_a_signal_reaches_the_segment_which_saves(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, tmp_path: Path, word: str, outcome: EndKind
) -> None:
    log = signalled(cgroup_work, cgroup_cluster, word)

    assert f"(SIG{word})" in log
    assert_is_saved(cgroup_work, tmp_path, outcome)


@pytest.mark.slow
@pytest.mark.parametrize(("word", "outcome"), SAVED)
def test_without_control_groups_it_does_as_well(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path, word: str, outcome: EndKind
) -> None:
    log = signalled(slurm_work, cluster, word)

    assert f"(SIG{word})" in log
    assert_is_saved(slurm_work, tmp_path, outcome)


@pytest.fixture(params=["cgroup_work", "slurm_work"])
def either_work(request: pytest.FixtureRequest) -> WorkDir:
    """A working directory on a cluster with control groups, then on one without."""
    return request.getfixturevalue(request.param)


def test_a_ctrl_c_of_the_driver_saves_what_its_jobs_have_done(either_work: WorkDir, tmp_path: Path) -> None:
    # A save every 300 steps, and one when it is told to leave.
    settings = {"goal": 2000, "step_seconds": 0.01, "save_steps": 300}
    either_work.configure({"a": one_long_segment(2000, settings=settings)})
    driver = either_work.start()
    until(lambda: either_work.saved("a"))
    wait_until_it_hears(either_work)
    until(lambda: either_work.reported("a") > either_work.saved("a") + 50)
    done_before = either_work.reported("a")

    driver.interrupt()
    driver.wait(PATIENCE_SECONDS)
    done = either_work.start().wait(PATIENCE_SECONDS)  # at once, while the job may still be leaving

    history = either_work.history("a")
    assert done.code == 0, done.text
    assert history[0].kind is EndKind.INTERRUPTED
    assert history[0].progress_to >= done_before > 350
    assert either_work.final("a") == uninterrupted(tmp_path / "whole", 2000)
