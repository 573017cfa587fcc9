"""Jobs without a driver where Slurm, the disk or another job is in the way: nothing is lost, nothing is done twice."""

from pathlib import Path

import pytest
from support.slurm_commands import Slurm, job_of_a_chain
from unbroken.detached import (
    after_work,
    ended_before_work,
    pending_jobs,
    resubmit,
    segment_command,
)
from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.pending_jobs import wait_until_left
from unbroken.detached.resubmit import Again

from unbroken.runs import lease
from unbroken.runs.claim import claim_path
from unbroken.runs.job_note import BeforeWork
from unbroken.runs.layout import RunFolder


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return job_of_a_chain(tmp_path, monkeypatch)


@pytest.fixture
def job(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> tuple[DetachedJob, list[str]]:
    """This job of a chain, and what it said."""
    told: list[str] = []
    monkeypatch.setattr(DetachedJob, "tell", lambda self, line: told.append(line))
    return DetachedJob("demo", 9, ("17",), "", 3, 2, 1.5, ("true",)), told


def held_by(slurm_job: str) -> lease.Lease:
    return lease.take(RunFolder("demo").lease, 1, 0.0, print, environment={"SLURM_JOB_ID": slurm_job})


def test_nothing_is_cancelled_where_slurm_does_not_answer(slurm: Slurm) -> None:
    slurm.answer("squeue", "exit 1")
    slurm.answer("scancel", f"touch {slurm.folder}/cancelled")

    assert pending_jobs.cancel_waiting("demo") is None

    assert not (slurm.folder / "cancelled").exists()


def test_whoever_cannot_be_started_is_told_by_the_reason(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resubmit, "PATIENCE_SECONDS", 0.2)
    again = Again(str(Path.cwd()), ("sleep", "600"))

    resubmit.keep("demo", again)
    assert "timed out after 0.2 seconds" in resubmit.submit("demo", "", "17")

    resubmit.keep("demo", Again(str(Path.cwd()), ("no-such-program",)))
    assert "No such file or directory: 'no-such-program'" in resubmit.submit("demo", "", "17")


# --- a run that another job holds ---


def test_behind_the_job_that_works_on_the_run_the_waiting_one_waits_for_its_end(
    slurm: Slurm, job: tuple[DetachedJob, list[str]]
) -> None:
    slurm.shows(18, "PENDING", segment=2)
    slurm.answer("scontrol", f'echo "$@" > {slurm.folder}/update')
    with held_by("40"):
        ended_before_work.leave_to_holder(job[0], "17")

    assert (slurm.folder / "update").read_text() == "update JobId=18 Dependency=afterany:40\n"
    assert job[1] == ["job 18 waits for the end of Slurm job 40, which works on this run"]


@pytest.mark.parametrize(("holder", "said"), [("40", 1), ("17", 0), ("", 0)])
def test_where_no_job_waits_that_is_said_if_another_job_has_the_run(
    slurm: Slurm, job: tuple[DetachedJob, list[str]], holder: str, said: int
) -> None:
    with held_by(holder):
        ended_before_work.leave_to_holder(job[0], "17")

    line = "no job of this run is pending behind this one; Slurm job 40 goes on with it"
    assert job[1] == [line] * said


def test_a_claim_that_cannot_be_read_moves_no_job(slurm: Slurm, job: tuple[DetachedJob, list[str]]) -> None:
    slurm.shows(18, "PENDING", segment=2)
    slurm.answer("scontrol", f"touch {slurm.folder}/update")
    path = claim_path(RunFolder("demo").lease, 1)
    path.parent.mkdir(parents=True)
    path.write_text("spoilt")

    ended_before_work.leave_to_holder(job[0], "17")

    assert job[1] == [] and not (slurm.folder / "update").exists()


def test_a_job_that_ends_before_its_work_says_whether_another_one_waits(
    slurm: Slurm, job: tuple[DetachedJob, list[str]]
) -> None:
    ended_before_work.leave_before_work(job[0], "17", BeforeWork.UNAVAILABLE, "the disk is away")

    assert job[1][-2:] == [
        "this job ends before its work and submits no other: the disk is away",
        "no job of this run is pending; fix the cause, then start snakemake again",
    ]

    slurm.shows(18, "PENDING", segment=2)
    ended_before_work.leave_before_work(job[0], "17", BeforeWork.UNAVAILABLE, "the disk is away")

    assert job[1][-1] == "this job ends before its work and submits no other: the disk is away"


def test_how_slurm_ends_a_job_is_asked_of_accounting_where_the_queue_does_not_say(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_work, "ENDING_SECONDS", 0.0)
    slurm.answer("sacct", "echo '17|TIMEOUT'")
    slurm.answer("scontrol", "exit 1")

    assert after_work.how_slurm_ends("17") == "TIMEOUT"


def test_an_array_s_next_task_waits_until_the_one_before_has_left(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_jobs, "LOOK_SECONDS", 0.01)
    gone = f"echo x >> {slurm.folder}/looks; [ $(wc -l < {slurm.folder}/looks) -gt 3 ] || cat {slurm.folder}/queue"
    slurm.shows("17_1", "COMPLETING")
    slurm.answer("squeue", gone)

    wait_until_left(["17_1"])

    assert (slurm.folder / "looks").read_text().count("x") == 4


# --- the segment's own process ---


def test_a_process_that_ends_without_a_word_is_told_by_what_stands_in_its_way(slurm: Slurm) -> None:
    places = RunFolder("demo")
    places.root.mkdir(parents=True)
    places.history.mkdir()  # cannot be read
    words = ["sh", "-c", "exit 3"]

    ended = segment_command.SegmentCommand(places, 2, "17", words, print)._once(lambda: None, 0, 0, None)

    assert (ended.code, ended.why) == (3, BeforeWork.UNAVAILABLE)
    assert ended.message == "the segment's process ended with exit code 3"
