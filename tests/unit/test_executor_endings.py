"""How `executor: unbroken` acts upon the end of a job while its run is held, or its files cannot be read.

A file server that is away for a moment ends no run; what a newer unbroken wrote, or a corrupt file, stops its own run
only.
"""

import errno
import os
import time
from pathlib import Path

import pytest
from support.driver import Driver, ended, ends_as, segment
from support.newer import newer_line, newer_passport, newer_record
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_interruptible import work
from unit.test_executor_outages import slurm

from snakemake_executor_plugin_unbroken.chain import LEAVING_SECONDS
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.job import submissions
from unbroken.job.rule_state import RuleState, note_done
from unbroken.store import lease
from unbroken.store.exec_note import ExecNote
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.store.lease import take

pytestmark = pytest.mark.process

__all__ = ["slurm"]  # a fixture


@pytest.fixture
def driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch, slurm)


def without_record(number: int = 1) -> RunFolder:
    """A segment whose work is done and whose record is missing."""
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places = RunFolder("demo")
    places.record(number).unlink()
    return places


def unreadable(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def take_away(where: str, places: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file server not answer; a folder stands in for a history that cannot be read."""

    def stale(folder: Path) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(folder))

    if where == "lease":
        monkeypatch.setattr(lease, "_newest_token", stale)
    else:
        unreadable(places.history)


def test_a_job_that_ended_with_its_work_done_gets_its_record(driver: Driver) -> None:
    places = without_record()
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.ends(info, ended())

    assert (driver.done, driver.failed) == ([job], [])
    assert places.record(1).exists()


def test_the_end_of_a_job_is_looked_at_again_while_another_one_holds_the_run_and_not_for_ever(driver: Driver) -> None:
    places = without_record()
    job = driver.job(segment(goal=10**6))
    info = driver.out(job, segment(goal=10**6))

    with take(places.lease, 2, 0.0):
        is_over = driver.ends(info, ended("TIMEOUT"))
        assert (is_over, driver.done, driver.failed, driver.slurm.told) == (False, [], [], [])
        driver.chain(segment())._held_since = time.monotonic() - LEAVING_SECONDS
        assert driver.ends(info, ended("TIMEOUT"))

    assert (driver.done, driver.failed) == ([], [])
    assert len(driver.slurm.told) == 1  # its tasks find out by whom it is held


@pytest.mark.parametrize("where", ["history of a run without a checkpoint", "history", "lease"])
def test_a_file_server_that_is_away_for_a_moment_ends_neither_the_run_nor_the_driver(
    driver: Driver, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(where, RunFolder("demo") if "without" in where else without_record(), monkeypatch)
    submissions.take(segment().key, None)
    job = driver.job(segment())
    info = driver.out(job, segment())

    for _ in range(3):  # told once
        assert not driver.ends(info, ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [], 1)
    assert driver.postponed() == [job]
    (line,) = driver.lines()
    assert line.startswith("demo segment 1: ") and line.endswith("; tried again every 10 s")
    assert submissions.newest(segment().key) is not None  # it still counts as submitted


@pytest.mark.parametrize("where", ["history", "lease"])
def test_a_file_server_that_is_away_before_a_submission_costs_no_retry(
    driver: Driver, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(where, without_record(), monkeypatch)
    job = driver.job(segment(goal=10**6))

    for _ in range(3):  # told once
        driver.executor.run_job(job)
        assert driver.postponed() == [job]

    assert (driver.done, driver.failed, driver.slurm.told, job.attempt) == ([], [], [], 1)
    (line,) = driver.lines()
    assert line.startswith("demo segment 1: ") and line.endswith("; tried again every 10 s")


def test_an_outage_before_a_submission_is_told_again_once_it_was_over(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_stale = [True]

    def look(*words: object) -> bool:
        if is_stale[0]:
            raise OSError(errno.ESTALE, "stale")
        return True

    monkeypatch.setattr("snakemake_executor_plugin_unbroken.segments.is_done", look)
    for number in (1, 2):
        job = driver.job(segment(number))
        is_stale[0] = True
        driver.executor.run_job(job)
        driver.try_again(job)
        is_stale[0] = False
        driver.try_again(job)

    assert [line for line in driver.lines() if "stale" in line] == [
        f"demo segment {number}: [Errno 116] stale; tried again every 10 s" for number in (1, 2)
    ]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_what_a_user_has_to_fix_before_a_submission_is_not_waited_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    job = driver.job(segment())

    def look(*words: object) -> bool:
        raise OSError(number, os.strerror(number), ".snakemake/unbroken")

    monkeypatch.setattr("snakemake_executor_plugin_unbroken.segments.is_done", look)
    driver.executor.run_job(job)

    assert (driver.failed, driver.postponed()) == ([job], [])
    assert os.strerror(number) in driver.lines()[0]


def test_what_cannot_be_gone_on_with_stops_the_run_and_makes_no_retry(driver: Driver) -> None:
    places = without_record()
    newer_passport(places)
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.ends(info, ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [job], job.restart_times + 1)
    assert "found format " in driver.lines()[0]


def test_a_history_of_a_newer_unbroken_stops_the_run(driver: Driver) -> None:
    places = RunFolder("demo")
    newer_line(places)
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.ends(info, ended())

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert str(places.history) in driver.lines()[0]


# --- jobs of anybody's rules ---


def of_a_rule(outcome: str) -> Segment:
    """The job of a rule whose newest task has left such a note."""
    found = work()
    RuleState(ExecNote("net/de", "store", EndKind(outcome), 2) if outcome else None, 1).write(found.key)
    return found


def test_of_a_rules_job_the_end_is_looked_at_again_when_the_file_server_answers(driver: Driver) -> None:
    told = of_a_rule("paused")
    job = driver.job(told)
    info = driver.out(job, told)
    unreadable(Path("store/history.jsonl"))

    assert not driver.ends(info, ended())
    assert (driver.done, driver.failed, driver.slurm.told) == ([], [], [])
    assert driver.postponed() == [job]
    (line,) = driver.lines()
    assert line.startswith("net/de: ") and line.endswith("; tried again every 10 s")


def test_of_a_rules_job_a_history_of_a_newer_unbroken_stops_the_run(driver: Driver) -> None:
    told = of_a_rule("paused")
    job = driver.job(told)
    info = driver.out(job, told)
    newer_line(told.folder)

    assert driver.ends(info, ended())

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert "store/history.jsonl" in driver.lines()[0]


def test_a_rules_job_that_ended_well_is_done_also_if_that_is_seen_after_the_end_of_its_task(driver: Driver) -> None:
    told = of_a_rule("finished")
    job = driver.job(told)
    info = driver.out(job, told)
    note_done(told.key)

    assert driver.ends(info, ended("COMPLETED"))

    assert (driver.done, driver.failed) == ([job], [])


def test_a_rules_job_in_which_no_segment_began_is_a_failure_that_snakemake_counts(driver: Driver) -> None:
    told = of_a_rule("")
    job = driver.job(told)
    info = driver.out(job, told)
    ends_as(driver.slurm, "17", "FAILED")

    assert driver.ends(info, ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [job], 1)
    (line,) = driver.lines()
    assert line.startswith("train: job 17 ended as FAILED")


def test_a_record_of_a_newer_unbroken_is_the_end_of_its_job(driver: Driver) -> None:
    """It was installed while this driver is at work; the next job reads the record, or says that it cannot."""
    toy(Path(), goal=10**6, segment_minutes=0.001)
    newer_record(RunFolder("demo"))
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.executor.look_after([info]) == []
    assert (driver.done, driver.failed) == ([job], [])
