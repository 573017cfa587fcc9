"""How `executor: unbroken` acts upon the end of a job while its run is held, or its files cannot be read.

A file server that is away for a moment ends no run; what a newer unbroken wrote, or a corrupt file, stops its own run
only.
"""

import errno
import os
from pathlib import Path

import pytest
from support.driver import Driver, ended, ends_as
from support.newer import newer_line, newer_record
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_interruptible import work
from unit.test_executor_outages import slurm
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken import settled
from snakemake_executor_plugin_unbroken.chains import LEAVING_SECONDS
from snakemake_executor_plugin_unbroken.interruptible import Interruptible
from snakemake_executor_plugin_unbroken.segments import out_of
from unbroken.job.rule_state import RuleState, note_done
from unbroken.runs import submissions
from unbroken.runs.exec_note import ExecNote
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import take
from unbroken.runs.record import read_record
from unbroken.runs.segment_end import EndKind

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
    if path.is_dir():
        path.rename(path.with_name("aside"))
        path.write_text("")
    else:
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)


def test_a_job_that_ended_with_its_work_done_gets_its_record(driver: Driver) -> None:
    places = without_record()
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.executor._close(info, out_of(info), ended())

    assert (driver.done, driver.failed) == ([job], [])
    assert places.record(1).exists()


def test_the_end_of_a_job_is_looked_at_again_while_another_one_holds_the_run_and_not_for_ever(driver: Driver) -> None:
    places = without_record()
    job = driver.job(segment(goal=10**6))
    info = driver.out(job, segment(goal=10**6))
    out = out_of(info)
    assert out is not None

    with take(places.lease, 2, 0.0, print):
        is_over = driver.executor._close(info, out, ended("TIMEOUT"))
        assert (is_over, driver.done, driver.failed, driver.submitted) == (False, [], [], [])
        assert out.not_before > 0
        assert driver.executor._close(info, out, ended("TIMEOUT", ago_seconds=LEAVING_SECONDS + 1))
        assert driver.postponed() == [job]  # nothing is submitted for a run that is held
    assert (driver.done, driver.failed, driver.submitted, driver.slurm.told) == ([], [], [], [])


@pytest.mark.parametrize("where", ["history of a run without a checkpoint", "history", "lease"])
def test_a_file_server_that_is_away_for_a_moment_ends_neither_the_run_nor_the_driver(
    driver: Driver, where: str
) -> None:
    """A folder stands in for a file that cannot be read, and a file for a folder that cannot be made."""
    places = RunFolder("demo") if "without" in where else without_record()
    unreadable(places.lease if where == "lease" else places.history)
    submissions.take(segment().key, None)
    job = driver.job(segment())
    info = driver.out(job, segment())
    out = out_of(info)
    assert out is not None

    for _ in range(3):  # told once
        assert not driver.executor._close(info, out, ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [], 1)
    assert out.not_before > 0
    (line,) = driver.lines()
    assert line.startswith("demo segment 1: ") and line.endswith("; tried again every 10 s")
    assert submissions.newest(segment().key) is not None  # it still counts as submitted


@pytest.mark.parametrize("where", ["history", "lease"])
def test_a_file_server_that_is_away_before_a_submission_costs_no_retry(driver: Driver, where: str) -> None:
    places = without_record()
    unreadable(places.lease if where == "lease" else places.history)
    job = driver.job(segment(goal=10**6))

    for _ in range(3):  # told once
        driver.executor.run_job(job)
        assert driver.executor._chains.postponed() == [job]

    assert (driver.done, driver.failed, driver.submitted, job.attempt) == ([], [], [], 1)
    (line,) = driver.lines()
    assert line.startswith("demo segment 1: ") and line.endswith("; tried again every 10 s")


def test_an_outage_before_a_submission_is_told_again_once_it_was_over(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, errors = driver.job(segment()), iter([OSError(errno.ESTALE, "stale"), None, OSError(errno.ESTALE, "stale")])

    def look(*words: object) -> bool:
        if (error := next(errors)) is not None:
            raise error
        return False

    monkeypatch.setattr(settled, "is_done", look)
    for _ in range(3):
        driver.executor.run_job(job)
        driver.executor._chains.forget(segment())  # as its end does

    assert [line for line in driver.lines() if "stale" in line] == [
        "demo segment 1: [Errno 116] stale; tried again every 10 s"
    ] * 2


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_what_a_user_has_to_fix_before_a_submission_is_not_waited_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    job = driver.job(segment())

    def look(*words: object) -> bool:
        raise OSError(number, os.strerror(number), ".snakemake/unbroken")

    monkeypatch.setattr(settled, "is_done", look)
    driver.executor.run_job(job)

    assert (driver.failed, driver.executor._chains.postponed()) == ([job], [])
    assert os.strerror(number) in driver.lines()[0]


def test_what_cannot_be_gone_on_with_stops_the_run_and_makes_no_retry(driver: Driver) -> None:
    places = without_record()
    (places.checkpoints / "format.json").write_text("{")
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.executor._close(info, out_of(info), ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [job], job.restart_times + 1)
    assert "format.json" in driver.lines()[0]


def test_a_history_of_a_newer_unbroken_stops_the_run(driver: Driver) -> None:
    places = RunFolder("demo")
    newer_line(places)
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.executor._close(info, out_of(info), ended())

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert str(places.history) in driver.lines()[0]


def test_a_record_that_vanished_is_made_again_and_told(driver: Driver) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    done, places = segment(1, goal=10**6), RunFolder("demo")
    driver.executor._newest_done["demo"] = done
    driver.executor._records.arrived([done])
    places.record(1).unlink()
    driver.executor._records.arrived([segment(2, goal=10**6)])

    driver.executor._restore_vanished()

    record = read_record(places.record(1))
    assert record is not None and record.kind is EndKind.PAUSED
    assert driver.lines() == ["demo segment 1: its job was ended in its last moment, its record is made again"]
    driver.executor._restore_vanished()
    assert driver.lines() == []


# --- jobs of anybody's rules ---


def of_a_rule(outcome: str) -> Interruptible:
    """The job of a rule whose newest task has left such a note."""
    found = work()
    RuleState(ExecNote("net/de", "store", EndKind(outcome), 2) if outcome else None, 1).write(found.key)
    return found


def test_of_a_rules_job_the_end_is_looked_at_again_when_the_file_server_answers(driver: Driver) -> None:
    told = of_a_rule("paused")
    job = driver.job(told)
    info = driver.out(job, told)
    out = out_of(info)
    assert out is not None
    unreadable(Path("store/history.jsonl"))

    assert not driver.executor._close(info, out, ended())
    assert (driver.done, driver.failed, driver.submitted) == ([], [], [])
    assert out.not_before > 0
    (line,) = driver.lines()
    assert line.startswith("net/de: ") and line.endswith("; tried again every 10 s")


def test_of_a_rules_job_a_history_of_a_newer_unbroken_stops_the_run(driver: Driver) -> None:
    told = of_a_rule("paused")
    job = driver.job(told)
    info = driver.out(job, told)
    newer_line(told.places)

    assert driver.executor._close(info, out_of(info), ended())

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert "store/history.jsonl" in driver.lines()[0]


def test_a_rules_job_that_ended_well_is_done_also_if_that_is_seen_after_the_end_of_its_task(driver: Driver) -> None:
    told = of_a_rule("finished")
    job = driver.job(told)
    info = driver.out(job, told)
    out = out_of(info)
    assert out is not None
    note_done(told.key)

    assert driver.executor._close(info, out, ended("COMPLETED"))

    assert (driver.done, driver.failed) == ([job], [])


def test_a_rules_job_in_which_no_segment_began_is_a_failure_that_snakemake_counts(driver: Driver) -> None:
    told = of_a_rule("")
    job = driver.job(told)
    info = driver.out(job, told)
    ends_as(driver.slurm, "17", "FAILED")

    assert driver.executor._close(info, out_of(info), ended())

    assert (driver.done, driver.failed, job.attempt) == ([], [job], 1)
    (line,) = driver.lines()
    assert line.startswith("train: job 17 ended as FAILED")


def test_a_record_of_a_newer_unbroken_is_the_end_of_its_job(driver: Driver) -> None:
    """It was installed while this driver is at work; the next job reads the record, or says that it cannot."""
    toy(Path(), goal=10**6, segment_minutes=0.001)
    newer_record(RunFolder("demo"))
    job = driver.job(segment())
    info = driver.out(job, segment())

    assert driver.executor._records.arrived([segment()]) == {segment()}
    assert driver.executor._close(info, out_of(info), ended())
    assert (driver.done, driver.failed) == ([job], [])
