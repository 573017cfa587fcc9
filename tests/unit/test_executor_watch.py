"""What `executor: unbroken` takes from Slurm about jobs that are out: a silence, or one odd answer, ends no job."""

import pytest
from support.slurm_commands import Slurm
from unit.test_executor_outages import Clock, shows, slurm
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken.segments import Out
from snakemake_executor_plugin_unbroken.watch import LOST_LOOKS, JobWatch
from unbroken.runs.layout import RunFolder

__all__ = ["slurm"]  # a fixture


def looks(jobs: JobWatch, clock: Clock, out: Out, told: list[str], count: int, seconds: float = 30.0) -> list[str]:
    """What is known of a job's end after each of so many looks."""
    found = []
    for _ in range(count):
        clock.now += seconds
        found.append(end.state if (end := jobs.look([out], told.append).get(out.job_id)) else "")
    return found


def test_a_silent_controller_ends_no_job_and_is_told_now_and_then(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told, jobs, out = Clock(monkeypatch, "watch"), list[str](), JobWatch(1.0, 5.0), Out(segment(), "17")
    slurm.answer("squeue", "exit 1")
    jobs.expect()
    line = "squeue does not answer; segments that leave their record go on, the others are waited for"

    assert looks(jobs, clock, out, told, 3) == [""] * 3
    assert told == []
    assert looks(jobs, clock, out, told, 1) == [""]
    assert told == [line]
    assert looks(jobs, clock, out, told, 10) == [""] * 10
    assert told == [line]
    assert looks(jobs, clock, out, told, 1) == [""]
    assert told == [line] * 2

    shows(slurm, "17", "RUNNING")
    slurm.answer("squeue", f"cat {slurm.folder}/queue")
    looks(jobs, clock, out, told, 1)
    slurm.answer("squeue", "exit 1")
    assert looks(jobs, clock, out, told, 3) == [""] * 3
    assert told == [line] * 2
    assert looks(jobs, clock, out, told, 1) == [""]
    assert told == [line] * 3  # this silence is a new one


def test_a_job_that_neither_squeue_nor_accounting_knows_is_looked_for_again_before_it_is_lost(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, jobs, out = Clock(monkeypatch, "watch"), JobWatch(1.0, 5.0), Out(segment(), "17")
    jobs.expect()

    assert looks(jobs, clock, out, [], LOST_LOOKS) == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


def test_a_job_that_is_seen_again_is_not_lost(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm queues it again, or the controller had forgotten it while it started anew."""
    clock, jobs, out = Clock(monkeypatch, "watch"), JobWatch(1.0, 5.0), Out(segment(), "17")
    jobs.expect()

    before = looks(jobs, clock, out, [], LOST_LOOKS - 1)
    shows(slurm, "17", "PENDING")
    seen = looks(jobs, clock, out, [], 1)
    (slurm.folder / "queue").write_text("")
    after = looks(jobs, clock, out, [], LOST_LOOKS, 200.0)

    assert before + seen == [""] * LOST_LOOKS
    assert after == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


def test_accounting_says_how_a_job_ended_that_squeue_has_forgotten(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, jobs, out = Clock(monkeypatch, "watch"), JobWatch(1.0, 5.0), Out(segment(), "17")
    jobs.expect()
    slurm.answer("sacct", "echo '17|CANCELLED by 1000'")

    assert looks(jobs, clock, out, [], 2) == ["", "CANCELLED"]


@pytest.mark.parametrize("least_minutes", [None, 0.5])
def test_a_record_may_be_seen_after_the_end_of_its_job(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, least_minutes: float | None
) -> None:
    """Also where the history cannot be read, which would say that no record comes."""
    clock, jobs = Clock(monkeypatch, "watch"), JobWatch(1.0, 5.0)
    out = Out(segment(least_minutes=least_minutes), "17")
    RunFolder("demo").history.mkdir(parents=True)
    jobs.expect()
    shows(slurm, "17", "COMPLETED")

    assert looks(jobs, clock, out, [], 4, seconds=4.5) == ["", "", "", "COMPLETED"]
