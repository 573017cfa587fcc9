"""The jobs and tasks of a run as `unbroken status` shows them: what works or is next, and how many wait behind it."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from unbroken.report.account import account_of
from unbroken.report.status import RunState, status_of
from unbroken.slurm.job import ListedJob, chain_comment, in_short, tasks_of
from unbroken.slurm.queue import Queue, described, queue_of

RUNNING = ListedJob("17_3", "RUNNING", "None", chain_comment("demo"))
LIMITED = ListedJob("17_4", "PENDING", "JobArrayTaskLimit", chain_comment("demo"))


def tasks(first: int, last: int, reason: str = "JobArrayTaskLimit", array: int = 17) -> list[ListedJob]:
    return [replace(LIMITED, job_id=f"{array}_{task}", reason=reason) for task in range(first, last + 1)]


def answer(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, text: str) -> None:
    """Let one of Slurm's commands say this."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / command
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{os.environ['PATH']}")


def test_tasks_that_wait_behind_the_one_at_work_are_counted_once_and_need_nothing() -> None:
    assert described([RUNNING, *tasks(4, 7)]) == [
        "Slurm job 17_3 is RUNNING",
        "4 tasks of job 17 wait behind it",
    ]
    assert described([RUNNING, LIMITED]) == ["Slurm job 17_3 is RUNNING", "1 task of job 17 waits behind it"]


def test_a_second_array_behind_the_last_task_of_the_first_needs_nothing_either() -> None:
    assert described([RUNNING, *tasks(1, 5, "Dependency", array=18)]) == [
        "Slurm job 17_3 is RUNNING",
        "5 tasks of job 18 wait behind it",
    ]


def test_where_none_works_the_next_task_says_what_it_waits_for() -> None:
    assert described(tasks(1, 7, "Priority")) == [
        "Slurm job 17_1 is PENDING (Priority): others come first",
        "6 tasks of job 17 wait behind it",
    ]


def test_a_requeued_task_is_the_next_one() -> None:
    requeued = replace(LIMITED, job_id="17_2", reason="BeginTime")
    assert described([requeued, *tasks(5, 6)]) == [
        "Slurm job 17_2 is PENDING (BeginTime): Slurm starts it again shortly",
        "2 tasks of job 17 wait behind it",
    ]


def test_waiting_tasks_that_are_held_say_so_while_another_works() -> None:
    assert described([RUNNING, *tasks(4, 7, "JobHeldUser")]) == [
        "Slurm job 17_3 is RUNNING",
        "Slurm job 17_4 is PENDING (JobHeldUser): it is held; type: scontrol release 17",
        "3 tasks of job 17 wait behind it",
    ]


def test_single_jobs_are_shown_each() -> None:
    first = ListedJob("17", "PENDING", "Resources", chain_comment("demo"))
    assert described([first, replace(first, job_id="18", reason="Priority")]) == [
        "Slurm job 17 is PENDING (Resources): it is next as soon as there is room",
        "Slurm job 18 is PENDING (Priority): others come first",
    ]


def test_status_of_a_run_whose_tasks_wait_and_none_works_is_queued(tmp_path: Path) -> None:
    row = status_of("demo", tmp_path, None, Queue(True, tuple(tasks(1, 5, "Resources"))))

    assert row.state is RunState.QUEUED
    assert row.advice == (
        "Slurm job 17_1 is PENDING (Resources): it is next as soon as there is room; 4 tasks of job 17 wait behind it"
    )


def test_status_shows_the_task_that_starts_and_how_many_wait(tmp_path: Path) -> None:
    row = status_of("demo", tmp_path, None, Queue(True, (RUNNING, *tasks(4, 7))))

    assert row.advice == "Slurm job 17_3 is RUNNING; 4 tasks of job 17 wait behind it"


@pytest.mark.process
def test_the_tasks_that_squeue_shows_as_one_row_are_all_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f"me|node1|17_3|RUNNING|None|0|1|2|unbroken chain demo|{tmp_path}",
        f"me||17_[4-6%1]|PENDING|JobArrayTaskLimit|N/A|N/A|N/A|unbroken chain demo|{tmp_path}",
        f"me|node1|17_2|COMPLETED|None|0|1|2|unbroken chain demo|{tmp_path}",
        f"me||21_[1-9%1]|PENDING|Priority|N/A|N/A|N/A|somebody's|{tmp_path}",
        "me||22_[1-9%1]|PENDING|Priority|N/A|N/A|N/A|unbroken chain demo|/elsewhere",
    ]
    answer(tmp_path, monkeypatch, "squeue", "cat <<'END'\n" + "\n".join(rows) + "\nEND")

    queue = queue_of(tmp_path)

    assert [job.job_id for job in queue.out] == ["17_3", "17_4", "17_5", "17_6"]
    assert [job.job_id for job in queue.over] == ["17_2"]


def test_the_account_counts_the_wait_of_an_array_once(tmp_path: Path) -> None:
    waiting = [replace(task, submit_unix=time.time() - 102) for task in tasks(1, 5, "Priority")]

    found = account_of("demo", tmp_path, Queue(True, tuple(waiting)))

    assert found.end - found.begin == pytest.approx(102, abs=10)
    assert {kind.value for kind, seconds in found.seconds.items() if seconds > 5} == {"queued"}


def test_tasks_that_are_held_back_by_their_array_wait_in_the_queue(tmp_path: Path) -> None:
    waiting = [replace(task, submit_unix=time.time() - 100) for task in tasks(4, 7)]
    behind = account_of("demo", tmp_path, Queue(True, tuple(waiting)))
    held = account_of("demo", tmp_path, Queue(True, tuple(replace(task, reason="JobHeldUser") for task in waiting)))

    assert {kind.value for kind, seconds in behind.seconds.items() if seconds > 5} == {"queued"}
    assert {kind.value for kind, seconds in held.seconds.items() if seconds > 5} == {"idle"}


@pytest.mark.parametrize(
    ("numbers", "short"),
    [
        (["17"], ["17"]),
        (["17_3"], ["17_[3]"]),
        (["17_5", "17_3", "17_2"], ["17_[2-3,5]"]),
        (["18", "17_1", "17_2"], ["17_[1-2]", "18"]),
        ([], []),
    ],
)
def test_numbers_of_tasks_are_shown_as_squeue_shows_them(numbers: list[str], short: list[str]) -> None:
    assert in_short(numbers) == short
    assert sorted(number for each in short for number in tasks_of(each)) == sorted(numbers)
