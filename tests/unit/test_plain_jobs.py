"""What follows for plain jobs from answers of Slurm that no cluster gives when it is wanted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.plain_driver import PlainDriver
from support.slurm_commands import Slurm

from snakemake_executor_plugin_unbroken import plain_jobs

pytestmark = pytest.mark.process


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = Slurm(tmp_path, monkeypatch)
    # The plugin asks for two columns, by the name of all jobs; it hears nothing new, we see the queue.
    slurm.answer("squeue", f'case "$*" in *--name*) echo "17|RUNNING";; *) cat {tmp_path}/queue;; esac')
    slurm.answer("sacct", "exit 1")
    slurm.answer("scontrol", "echo MaxArraySize = 1001; echo MinJobAge = 300")
    return slurm


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> PlainDriver:
    driver = PlainDriver(tmp_path, monkeypatch)
    driver.submit("17")
    return driver


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds pass for the module."""
    passed = [0.0]
    clock = plain_jobs.time.monotonic
    monkeypatch.setattr(plain_jobs.time, "monotonic", lambda: clock() + passed[0])
    return lambda seconds: passed.__setitem__(0, passed[0] + seconds)


def test_an_end_that_the_plugin_did_not_see_is_reported_at_the_second_look(slurm: Slurm, driver: PlainDriver) -> None:
    slurm.shows(17, "PREEMPTED")

    assert driver.check() == ["17"]
    assert driver.check() == []
    assert driver.failed["17"].startswith("SLURM-job '17' ended: PREEMPTED. ")


def test_a_job_that_has_completed_unseen_by_the_plugin_is_a_success(slurm: Slurm, driver: PlainDriver) -> None:
    slurm.shows(17, "COMPLETED")

    assert [driver.check(), driver.check()] == [["17"], []]
    assert (driver.done, driver.failed) == (["17"], {})


def test_a_job_that_slurm_has_started_again_meanwhile_is_active(slurm: Slurm, driver: PlainDriver) -> None:
    slurm.shows(17, "PREEMPTED")
    driver.check()
    (slurm.folder / "queue").write_text("")
    slurm.shows(17, "RUNNING")

    assert [driver.check(), driver.check()] == [["17"], ["17"]]


def test_a_controller_that_does_not_answer_says_nothing_of_a_job(
    slurm: Slurm, driver: PlainDriver, later: Callable[[float], None]
) -> None:
    slurm.answer("squeue", "exit 1")

    for _ in range(3):
        assert driver.check() == ["17"]
        later(2 * plain_jobs.UNKNOWN_SECONDS)


def test_a_job_that_nobody_knows_fails_after_a_while_in_which_accounting_may_come_back(
    driver: PlainDriver, later: Callable[[float], None]
) -> None:
    assert [driver.check(), driver.check()] == [["17"], ["17"]]
    later(plain_jobs.UNKNOWN_SECONDS + 1)

    assert driver.check() == []
    assert "ended: UNKNOWN" in driver.failed["17"]
