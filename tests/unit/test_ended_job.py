"""What Slurm says of a job that is over, and what is in the way of a run that cannot write; answers of Slurm 22.05."""

import os
from pathlib import Path

import pytest
from support.toyrun import toy, toy_job
from unbroken.detached.unnoted import unnoted, why_no_job

from unbroken.runs.attempts import all_attempts
from unbroken.runs.job_note import BeforeWork, exit_code_for
from unbroken.runs.obstacles import obstacle
from unbroken.slurm import tables
from unbroken.slurm.ended_job import EndedJob, ended_job
from unbroken.slurm.jobs_out import OutJob, Queue
from unbroken.system import fs

FAILED = "JobId=17 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=75:0 NodeList=node[1-2] BatchHost=node1"
CANCELLED = "JobId=17 JobName=x JobState=CANCELLED Reason=Dependency ExitCode=0:0 ReqNodeList=(null) NodeList=(null)"
RUNNING = "JobId=17 JobName=x JobState=RUNNING Reason=None ExitCode=0:0 NodeList=node1 BatchHost=node1"


def answers(monkeypatch: pytest.MonkeyPatch, **said: str) -> None:
    monkeypatch.setattr(tables, "ask", lambda *words, **more: said.get(words[0]))


@pytest.mark.parametrize(
    ("said", "job"),
    [
        ({"scontrol": FAILED}, EndedJob("17", "FAILED", "node1", 75)),
        ({"scontrol": CANCELLED}, EndedJob("17", "CANCELLED", "", 0)),
        ({"scontrol": RUNNING}, None),
        ({"sacct": "FAILED|node3|1:0\n"}, EndedJob("17", "FAILED", "node3", 1)),
        ({"sacct": "CANCELLED by 1000|None assigned|0:0\n"}, EndedJob("17", "CANCELLED", "", 0)),
        ({"sacct": ""}, None),
        ({}, None),
    ],
)
def test_the_controller_says_it_or_else_accounting(
    said: dict[str, str], job: EndedJob | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, **said)

    assert ended_job("17") == job


def test_a_job_that_left_no_line_gets_one_by_what_slurm_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(tmp_path)
    answers(monkeypatch, scontrol=FAILED)
    places = toy_job(tmp_path).places

    lost = unnoted(places, ["17"], print)
    again = unnoted(places, ["17"], print)

    last = all_attempts(places)[-1]
    assert (lost, again, len(all_attempts(places))) == ([], [], 2)
    assert (last.slurm_job, last.slurm_node, last.before_work) == ("17", "node1", BeforeWork.UNAVAILABLE.value)
    assert last.message == "Slurm job 17 ended as FAILED on node1 before its work"


@pytest.mark.parametrize(
    "said",
    [
        CANCELLED,
        RUNNING,
        FAILED.replace("FAILED", "COMPLETED"),
        FAILED.replace("75:0", f"{exit_code_for(BeforeWork.HELD, 1)}:0"),
    ],
)
def test_one_that_waited_lives_ended_well_or_was_not_needed_gets_none(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy(tmp_path)
    answers(monkeypatch, scontrol=said)
    places = toy_job(tmp_path).places

    assert unnoted(places, ["17"], print) == []
    assert len(all_attempts(places)) == 1
    assert why_no_job(places, Queue(True, over=(OutJob("17", "demo", 2, "FAILED", "", None),))) == ""


def test_a_line_that_nobody_can_write_is_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(tmp_path)
    answers(monkeypatch, scontrol=FAILED)
    places = toy_job(tmp_path).places
    monkeypatch.setattr("unbroken.runs.attempts.note", lambda *_: False)

    (lost,) = unnoted(places, ["17"], print)

    assert lost.message == "Slurm job 17 ended as FAILED on node1 before its work"
    queue = Queue(True, over=(OutJob("17", "demo", 2, "FAILED", "", None),))
    assert why_no_job(places, queue) == lost.message
    assert why_no_job(places, Queue(True, out=queue.over, over=queue.over)) == ""
    assert why_no_job(places, Queue(is_known=False)) == ""


# --- what is in the way ---


def test_nothing_is_in_the_way_of_a_run_that_can_write(tmp_path: Path) -> None:
    toy(tmp_path)

    assert obstacle(toy_job(tmp_path).places) == ""


def test_a_full_disk_and_a_link_are_seen_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(tmp_path)
    places = toy_job(tmp_path).places
    with monkeypatch.context() as patch:
        patch.setattr("unbroken.runs.obstacles.fs.free_bytes", lambda path: 12)
        full = obstacle(places)
    os.rename(places.work, tmp_path / "moved")
    places.work.symlink_to(tmp_path / "moved")

    assert full == f"{places.root}: the disk is full, 12 bytes free, at least {fs.FULL_BYTES - 12:,} missing"
    assert "work: a link to" in obstacle(places)
