"""`executor: unbroken` while Slurm is silent, or another process submits: no run is submitted twice.

Slurm's commands are scripts that answer as it does; no controller can be kept in these states for long.
"""

import os
import time
from pathlib import Path

import pytest
from support.driver import WORDS, Driver, segment, shows
from support.slurm_commands import Slurm

from snakemake_executor_plugin_unbroken.queue_watch import FRESH_SECONDS
from unbroken.job import submissions
from unbroken.store.layout import CHAINS

pytestmark = pytest.mark.process

ENDING = "of its run is ending; the segment goes on as soon as it has left; tried again"
AGED_SECONDS = 200.0  # a submission that was made before anything was asked


class Clock:
    """time.monotonic() of one module, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(f"snakemake_executor_plugin_unbroken.{module}.time.monotonic", lambda: self.now)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    slurm = Slurm(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    return slurm


@pytest.fixture
def driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch, slurm)


def submission(job_id: str = "", age_seconds: float = AGED_SECONDS, key: str = "demo") -> None:
    """What another start of snakemake, or a job, has submitted, or is about to."""
    taken = submissions.take(key, submissions.newest(key))
    assert taken is not None
    if job_id:
        taken.fill(job_id, WORDS)
    found = submissions.newest(key)
    assert found is not None
    os.utime(found.path, (time.time() - age_seconds,) * 2)


def age(seconds: float = AGED_SECONDS, key: str = "demo") -> None:
    """Let the submissions of a run be older."""
    for path in (CHAINS / key).glob("[0-9]*.json"):
        os.utime(path, (time.time() - seconds,) * 2)


# --- what is out for a run ---


def test_while_squeue_is_silent_nothing_is_submitted_and_that_is_told_once(slurm: Slurm, driver: Driver) -> None:
    job = driver.job(segment())
    slurm.answer("squeue", "exit 1")

    for _ in range(2):
        driver.executor.run_job(job)
        assert driver.postponed() == [job]
    said = driver.lines()
    slurm.answer("squeue", f"cat {slurm.folder}/queue")
    driver.try_again(job)

    assert said == ["demo segment 1: Slurm, or another process, is busy with it (squeue does not answer); tried again"]
    assert (driver.postponed(), len(slurm.told)) == ([], 1)


def test_an_old_answer_of_squeue_is_no_word_on_a_job_that_is_to_be_taken_over(
    slurm: Slurm, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "queue_watch")
    submission("17", 10_000.0)
    shows(slurm, "17 RUNNING")
    driver.executor.run_job(driver.job(segment(1)))
    shows(slurm, "17 COMPLETED")

    clock.now += FRESH_SECONDS + 1
    driver.executor.run_job(driver.job(segment(2)))

    assert len(driver.submitted) == 2
    assert len(slurm.told) == 1


def test_the_queue_is_asked_once_for_all_runs_that_are_handed_over_together(slurm: Slurm, driver: Driver) -> None:
    slurm.answer("squeue", f"echo asked >> {slurm.folder}/asked; cat {slurm.folder}/queue")
    for name in ("a", "b", "c"):
        driver.executor.run_job(driver.job(segment(name=name)))

    assert len(slurm.told) == 3
    assert (slurm.folder / "asked").read_text() == "asked\n"


def test_a_silence_between_two_looks_is_not_taken_for_an_empty_queue(
    slurm: Slurm, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "queue_watch")
    submission("17", 10_000.0)
    shows(slurm, "17 RUNNING")
    first = driver.job(segment(1))
    driver.executor.run_job(first)
    driver.chain(segment()).succeed(segment(1))

    clock.now += FRESH_SECONDS + 1
    slurm.answer("squeue", "exit 1")
    second = driver.job(segment(2))
    driver.executor.run_job(second)

    assert driver.postponed() == [second]
    assert slurm.told == []


def test_a_submission_that_is_being_made_is_waited_for_whatever_squeue_says(slurm: Slurm, driver: Driver) -> None:
    submission(age_seconds=0.0)
    job = driver.job(segment())

    driver.executor.run_job(job)

    assert (driver.lines(), slurm.told) == ([], [])
    assert driver.postponed() == [job]


def test_a_submission_of_another_process_that_an_old_answer_of_squeue_does_not_show_is_not_made_again(
    slurm: Slurm, driver: Driver
) -> None:
    driver.executor.run_job(driver.job(segment(name="other")))  # so the queue was asked just now

    submission("17", age_seconds=0.0)
    shows(slurm, "17_1 RUNNING", "17_[2-5%1] PENDING")
    driver.executor.run_job(driver.job(segment()))

    assert len(slurm.told) == 1  # that of the other run
    assert driver.lines()[-1] == "demo segment 1: job 17 of its run is in the queue or running already, taken over"


def test_a_job_that_is_leaving_is_waited_for_and_told_once(slurm: Slurm, driver: Driver) -> None:
    submission("17")
    shows(slurm, "17 COMPLETING")
    job = driver.job(segment())

    driver.executor.run_job(job)
    driver.try_again(job)
    assert driver.postponed() == [job]
    shows(slurm, "17 COMPLETED")
    driver.try_again(job)  # squeue is asked again, although its last answer is fresh

    assert driver.lines()[:1] == [
        "demo segment 1: job 17 of its run is ending; the segment goes on as soon as it has left; tried again"
    ]
    assert (driver.postponed(), len(slurm.told)) == ([], 1)
