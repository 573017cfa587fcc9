"""What Slurm says of a job that is over, and what is in the way of a run that cannot write; answers of Slurm 22.05."""

import os
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, job_of_a_chain
from support.toy_spec import toy_spec
from support.toyrun import toy, toy_job

from unbroken.job import submissions
from unbroken.job.end_note import exit_code_for
from unbroken.job.next_attempt import MOST_ASKED, unrecorded, why_no_job
from unbroken.slurm import client
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import Queue, ended_job
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt, EndKind
from unbroken.store.layout import RunFolder
from unbroken.store.select import obstacle
from unbroken.system import disk
from unbroken.system.clock import unix_seconds

pytestmark = pytest.mark.process

FAILED = "JobId=17 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=75:0 NodeList=node[1-2] BatchHost=node1"
CANCELLED = "JobId=17 JobName=x JobState=CANCELLED Reason=Dependency ExitCode=0:0 ReqNodeList=(null) NodeList=(null)"
RUNNING = "JobId=17 JobName=x JobState=RUNNING Reason=None ExitCode=0:0 NodeList=node1 BatchHost=node1"


def answers(monkeypatch: pytest.MonkeyPatch, **said: str) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: said.get(words[0]))


@pytest.mark.parametrize(
    ("said", "job"),
    [
        ({"scontrol": FAILED}, ListedJob("17", "FAILED", node="node1", exit_code=75)),
        ({"scontrol": CANCELLED}, ListedJob("17", "CANCELLED")),
        ({"scontrol": FAILED + " EndTime=840"}, ListedJob("17", "FAILED", node="node1", exit_code=75, end_unix=840.0)),
        ({"scontrol": RUNNING}, None),
        (
            {"sacct": "17|FAILED|node3|1:0||840\n"},
            ListedJob("17", "FAILED", node="node3", exit_code=1, end_unix=840.0),
        ),
        ({"sacct": "17|CANCELLED by 1000|None assigned|0:0||Unknown\n"}, ListedJob("17", "CANCELLED")),
        ({"sacct": ""}, None),
        ({}, None),
    ],
)
def test_the_controller_says_it_or_else_accounting(
    said: dict[str, str], job: ListedJob | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, **said)

    assert ended_job("17") == job


# --- the lines of jobs that could not write them ---

BEGAN = unix_seconds("2026-11-20T10:00:00Z")
START = "20261120T100000Z-1a2b3c4d"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is job 17 of a run, whose line is in the history; accounting is off."""
    slurm = job_of_a_chain(tmp_path, monkeypatch)
    slurm.answer("sacct", "exit 1")
    slurm.answer("scontrol", f"echo '{FAILED}'")
    toy(Path())
    return slurm


def lost(start: str = "", segment: int = 0) -> list[Attempt]:
    """What cannot be written of the ends of the run's jobs."""
    return unrecorded(toy_spec(start=start), segment)


def written() -> list[Attempt]:
    """The lines after the first one."""
    return all_attempts(RunFolder("demo"))[1:]


def over(number: int | str = 18, run: str = "demo") -> Queue:
    return Queue(True, over=(ListedJob(str(number), "FAILED", comment=f"rule_toy_segment_wildcards_{run}_002"),))


def test_a_job_that_left_no_line_gets_one_by_what_slurm_says(slurm: Slurm) -> None:
    slurm.shows(18, "FAILED")

    assert (lost(), lost()) == ([], [])

    (line,) = written()
    assert (line.slurm_job, line.slurm_node, line.kind) == ("18", "node1", EndKind.UNAVAILABLE)
    assert (line.message, line.segment) == ("Slurm job 18 ended as FAILED on node1 before its work", 1)


def test_a_task_of_an_array_gets_its_own(slurm: Slurm) -> None:
    slurm.shows("18_2", "FAILED")
    slurm.shows("18_3", "FAILED")
    slurm.shows("18_[4-6%1]", "PENDING")

    assert lost(segment=4) == []

    assert [(line.slurm_job, line.segment) for line in written()] == [("18_2", 4), ("18_3", 4)]


@pytest.mark.parametrize(
    "said",
    [
        CANCELLED,
        RUNNING,
        FAILED.replace("FAILED", "COMPLETED"),
        *(FAILED.replace("75:0", f"{exit_code_for(kind, 1)}:0") for kind in (EndKind.HELD, EndKind.STOPPED)),
    ],
)
def test_one_that_waited_lives_ended_well_was_not_needed_or_found_its_run_stopped_gets_none(
    said: str, slurm: Slurm
) -> None:
    slurm.shows(18, "FAILED")
    slurm.answer("scontrol", f"echo '{said}'")

    assert (lost(), written()) == ([], [])
    assert why_no_job(RunFolder("demo"), over()) == ""


@pytest.mark.parametrize(
    ("start", "end", "counts"),
    [
        (START, BEGAN - 1, False),
        (START, BEGAN, False),
        (START, BEGAN + 1, True),
        (START, None, True),  # Slurm does not say when
        ("", BEGAN - 1, True),  # nobody has named the start
    ],
)
def test_only_jobs_that_ended_after_this_start_began_count(
    start: str, end: float | None, counts: bool, slurm: Slurm
) -> None:
    """Something may have been fixed since."""
    slurm.shows(18, "FAILED")
    slurm.answer("scontrol", f"echo '{FAILED} EndTime={'Unknown' if end is None else int(end)}'")

    assert lost(start) == []

    assert len(written()) == counts


def test_jobs_of_other_runs_and_folders_get_none(slurm: Slurm) -> None:
    slurm.shows(18, "FAILED", key="other")
    slurm.shows(19, "FAILED", folder="/elsewhere")

    assert (lost(), written()) == ([], [])


def test_what_the_controller_has_forgotten_accounting_tells_of_the_newest_array(slurm: Slurm) -> None:
    for number in ("12", "18"):
        submission = submissions.take("demo", submissions.newest("demo"))
        assert submission is not None
        submission.fill(number)
    rows = "18_1|COMPLETED|node1|0:0||%d\n18_2|FAILED|node2|75:0||%d\n18_3|RUNNING|node1|0:0||Unknown\n"
    slurm.answer("sacct", f'case "$*" in *"--jobs 18 "*) printf \'{rows % (BEGAN, BEGAN + 9)}\';; *) exit 1;; esac')

    assert (lost(START), lost(START)) == ([], [])

    assert [(line.slurm_job, line.slurm_node) for line in written()] == [("18_2", "node2")]


def test_of_very_many_the_last_few_are_asked_for(slurm: Slurm) -> None:
    for number in range(20, 40):
        slurm.shows(number, "FAILED")

    assert lost() == []

    assert [line.slurm_job for line in written()] == [str(number) for number in range(40 - MOST_ASKED, 40)]


def test_a_line_that_nobody_can_write_is_told_all_the_same(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.shows(18, "FAILED")
    monkeypatch.setattr("unbroken.store.attempts.note", lambda *_: False)

    (line,) = lost()

    assert line.message == "Slurm job 18 ended as FAILED on node1 before its work"
    queue, folder = over(), RunFolder("demo")
    assert why_no_job(folder, queue) == line.message
    assert why_no_job(folder, Queue(True, out=queue.over, over=queue.over)) == ""
    assert why_no_job(folder, Queue(is_known=False)) == ""


# --- what is in the way ---


def test_nothing_is_in_the_way_of_a_run_that_can_write(tmp_path: Path) -> None:
    toy(tmp_path)

    assert obstacle(toy_job(tmp_path).places) == ""


def test_a_full_disk_and_a_link_are_seen_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(tmp_path)
    places = toy_job(tmp_path).places
    with monkeypatch.context() as patch:
        patch.setattr("unbroken.store.select.disk.free_bytes", lambda path: 12)
        full = obstacle(places)
    os.rename(places.work, tmp_path / "moved")
    places.work.symlink_to(tmp_path / "moved")

    assert full == f"{places.root}: the disk is full, 12 bytes free, at least {disk.FULL_BYTES - 12:,} missing"
    assert "work: a link to" in obstacle(places)
