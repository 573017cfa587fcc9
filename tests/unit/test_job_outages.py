"""Jobs of a chain where Slurm, the disk or another job is in the way: nothing is lost, nothing is done twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain

from unbroken.job import after_work, next_attempt
from unbroken.job.next_attempt import wait_until_left
from unbroken.job.segment_process import PATIENCE, SegmentProcess
from unbroken.job.spec import ChainJob
from unbroken.job.work import SegmentWork
from unbroken.store import lease
from unbroken.store.claim import claim_path
from unbroken.store.history import EndKind, SegmentEnd
from unbroken.store.layout import RunFolder
from unbroken.system import log

pytestmark = pytest.mark.process


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    return slurm


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What this job says."""
    said: list[str] = []
    with log.lines_to(said.append):
        yield said


@pytest.fixture
def job(slurm: Slurm, said: list[str], tmp_path: Path) -> ChainJob:
    """This job of a chain."""
    return ChainJob(chain_spec(tmp_path), "17")


def owned_by(slurm_job: str) -> lease.Lease:
    return lease.take(RunFolder("demo").lease, 1, 0.0, environment={"SLURM_JOB_ID": slurm_job})


# --- a run that another job owns ---


def test_behind_the_job_that_works_on_the_run_the_waiting_tasks_wait_for_its_end(
    slurm: Slurm, job: ChainJob, said: list[str]
) -> None:
    slurm.shows("18_[2-3%1]", "PENDING")
    slurm.answer("scontrol", f'echo "$@" > {slurm.folder}/update')
    with owned_by("40"):
        after_work.leave_to_owner(job)

    assert (slurm.folder / "update").read_text() == "update JobId=18_[2-3] Dependency=afterany:40\n"
    assert said == ["the waiting tasks wait for the end of Slurm job 40, which works on this run"]


@pytest.mark.parametrize(("owner", "count"), [("40", 1), ("17", 0), ("", 0)])
def test_where_no_task_waits_that_is_said_if_another_job_has_the_run(
    job: ChainJob, said: list[str], owner: str, count: int
) -> None:
    with owned_by(owner):
        after_work.leave_to_owner(job)

    assert said == ["no task of this run waits behind this one; Slurm job 40 goes on with it"] * count


def test_a_lease_that_cannot_be_read_moves_no_job(slurm: Slurm, job: ChainJob, said: list[str]) -> None:
    slurm.shows(18, "PENDING")
    slurm.answer("scontrol", f"touch {slurm.folder}/update")
    path = claim_path(RunFolder("demo").lease, 1)
    path.parent.mkdir(parents=True)
    path.write_text("corrupt")

    after_work.leave_to_owner(job)

    assert said == [] and not (slurm.folder / "update").exists()


def test_a_job_that_ends_before_its_work_says_whether_a_task_waits(
    slurm: Slurm, job: ChainJob, said: list[str]
) -> None:
    line = "this job ends before its work and submits no other: the disk is away"
    after_work.leave_before_work(job, SegmentEnd(kind=EndKind.UNAVAILABLE, message="the disk is away"))

    assert said[-2:] == [line, "no task of this run waits; fix the cause, then start snakemake again"]

    slurm.shows("18_[2-3%1]", "PENDING")
    after_work.leave_before_work(job, SegmentEnd(kind=EndKind.UNAVAILABLE, message="the disk is away"))

    assert said[-1] == line
    assert slurm.told == []


def test_where_slurm_does_not_answer_no_job_says_that_no_task_waits(
    slurm: Slurm, job: ChainJob, said: list[str]
) -> None:
    slurm.answer("squeue", "exit 1")
    with owned_by("40"):
        after_work.leave_to_owner(job)

    after_work.leave_before_work(job, SegmentEnd(kind=EndKind.UNAVAILABLE, message="the disk is away"))

    assert said == ["this job ends before its work and submits no other: the disk is away"]


def test_how_slurm_ends_a_job_is_asked_of_accounting_where_the_queue_does_not_say(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_work, "ENDING_SECONDS", 0.0)
    slurm.answer("sacct", "echo '17|TIMEOUT|node1|0:0||1000'")
    slurm.answer("scontrol", "exit 1")

    assert after_work.how_slurm_ends("17") == "TIMEOUT"


def test_the_next_task_waits_until_the_one_before_has_left(
    slurm: Slurm, job: ChainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nobody can say how it ended; other runs, and this job itself, are not waited for."""
    monkeypatch.setattr(next_attempt, "LOOK_SECONDS", 0.01)
    look = f'case "$*" in *--me*) echo x >> {slurm.folder}/looks;; esac'
    gone = f"{look}; [ $(wc -l < {slurm.folder}/looks) -gt 3 ] || cat {slurm.folder}/queue"
    slurm.shows("16_1", "COMPLETING")
    slurm.answer("squeue", gone)

    wait_until_left(job)

    assert (slurm.folder / "looks").read_text().count("x") == 4


def test_a_task_asks_slurm_once_at_its_start_and_once_at_its_end(slurm: Slurm, job: ChainJob) -> None:
    """Each question is a part of every hand-off."""
    slurm.shows(17, "RUNNING")
    slurm.shows("18_[2-3%1]", "PENDING")
    slurm.answer("squeue", f"echo x >> {slurm.folder}/looks; cat {slurm.folder}/queue")

    assert SegmentWork(job, wait_until_left(job)).next_attempt(1) == 1
    after_work.look_after_the_rest(job, has_no_room=False)

    assert (slurm.folder / "looks").read_text() == "x\nx\n"


def test_a_task_waits_for_no_other_run_and_not_for_itself(slurm: Slurm, job: ChainJob) -> None:
    slurm.shows(17, "COMPLETING")
    slurm.shows(18, "COMPLETING", key="other")
    slurm.answer("squeue", f"echo x >> {slurm.folder}/looks; cat {slurm.folder}/queue")

    wait_until_left(job)

    assert (slurm.folder / "looks").read_text() == "x\n"


# --- the segment's own process ---


def test_a_process_that_ends_without_a_word_is_told_by_what_stands_in_its_way(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "0.01")
    folder = RunFolder("demo")
    folder.root.mkdir(parents=True)
    folder.history.mkdir()  # cannot be read
    words = ["sh", "-c", "exit 3"]

    code, end = SegmentProcess(folder, 2, "17", words).run()

    message = "the segment's process ended with exit code 3"
    assert (code, end) == (3, SegmentEnd(kind=EndKind.UNAVAILABLE, message=message))
