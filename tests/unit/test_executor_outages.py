"""`executor: unbroken` while Slurm is silent, or somebody else submits: no segment is submitted twice.

Slurm's commands are scripts that answer as it does; no controller can be kept in these states for long.
"""

import os
import time
from pathlib import Path

import pytest
from support.slurm_commands import Slurm
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken import adoption
from snakemake_executor_plugin_unbroken.adoption import LOOK_SECONDS, AdoptedJob, Adoption
from unbroken.runs import submissions

AGED_SECONDS = 200.0  # a ticket that was written before anything was asked


class Clock:
    """time.monotonic() of one module, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        self.now = 1000.0
        monkeypatch.setattr(f"snakemake_executor_plugin_unbroken.{module}.time.monotonic", lambda: self.now)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    slurm = Slurm(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    return slurm


def shows(slurm: Slurm, job_id: str, state: str, name: str = "of-a-driver", number: int = 1) -> None:
    """The whole of what squeue shows from now on."""
    comment = f"rule_toy_segment_wildcards_demo_{number:03d}"
    (slurm.folder / "queue").write_text(f"me|{job_id}|{state}|None|{name}|{comment}|{Path().resolve()}\n")


def ticket(number: int, job_id: str = "", age_seconds: float = AGED_SECONDS) -> None:
    key = segment(number).key
    assert submissions.take(key, None)
    if job_id:
        submissions.fill(key, job_id)
    found = submissions.newest(key)
    assert found is not None
    os.utime(found.path, (time.time() - age_seconds,) * 2)


# --- what is out for a segment ---


def test_while_squeue_is_silent_nothing_may_be_submitted_and_that_is_told_once(slurm: Slurm) -> None:
    jobs = Adoption(Path())
    slurm.answer("squeue", "exit 1")

    looks = [jobs.find(segment(), [], []) for _ in range(2)]
    slurm.answer("squeue", f"cat {slurm.folder}/queue")
    answered = jobs.find(segment(), [], [])
    jobs.forget()
    slurm.answer("squeue", "exit 1")
    again = jobs.find(segment(), [], [])

    assert [(look.job_id, look.must_wait) for look in [*looks, again]] == [("", True)] * 3
    line = "squeue does not answer; nothing is submitted until it does"
    assert [look.line for look in [*looks, again]] == [line, "", line]
    assert answered == AdoptedJob()


def test_an_old_answer_of_squeue_is_no_word_on_a_job_that_is_to_be_taken_over(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, jobs = Clock(monkeypatch, "adoption"), Adoption(Path())
    shows(slurm, "17", "RUNNING")
    assert jobs.find(segment(), [], []).job_id == "17"

    shows(slurm, "17", "COMPLETED")
    within = jobs.find(segment(), [], [])
    clock.now += adoption.FRESH_SECONDS
    after = jobs.find(segment(), [], [])

    assert (within.job_id, after) == ("17", AdoptedJob())


def test_a_silence_between_two_looks_is_not_taken_for_an_empty_queue(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, jobs = Clock(monkeypatch, "adoption"), Adoption(Path())
    shows(slurm, "17", "RUNNING")
    assert jobs.find(segment(), [], []).job_id == "17"

    clock.now += adoption.FRESH_SECONDS
    slurm.answer("squeue", "exit 1")

    assert jobs.find(segment(), [], []).must_wait


def test_a_ticket_that_is_being_filled_is_waited_for_whatever_squeue_says(slurm: Slurm) -> None:
    ticket(1, age_seconds=0.0)

    found = Adoption(Path()).find(segment(), [], [])

    assert (found.job_id, found.wait_seconds) == ("", 1.0)
    assert found.ticket is not None and found.ticket.is_being_filled


def test_a_job_that_is_leaving_is_waited_for_and_told_once(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, jobs = Clock(monkeypatch, "adoption"), Adoption(Path())
    ticket(1, "17")
    shows(slurm, "17", "COMPLETING")

    first, second = jobs.find(segment(), [], []), jobs.find(segment(), [], [])
    shows(slurm, "17", "COMPLETED")
    after = jobs.find(segment(), [], [])  # asked anew, although the last answer is fresh

    assert (first.job_id, first.wait_seconds, second.wait_seconds) == ("", LOOK_SECONDS, LOOK_SECONDS)
    assert first.line == "demo segment 1: job 17 is ending; the segment goes on as soon as it has left"
    assert second.line == ""
    assert (after.must_wait, after.job_id) == (False, "")
    assert clock.now == 1000.0


def test_a_job_whose_machine_is_lost_seems_to_be_leaving_for_ever_and_is_not_waited_for_as_long(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, jobs = Clock(monkeypatch, "adoption"), Adoption(Path())
    ticket(1, "17")
    shows(slurm, "17", "COMPLETING")

    waits = [jobs.find(segment(), [], []).must_wait]
    for seconds in (adoption.LEAVING_SECONDS, 1.0, 0.0):
        clock.now += seconds
        waits.append(jobs.find(segment(), [], []).must_wait)

    assert waits == [True, True, True, False]
