"""A job that starts while the one before is at work: it asks, the one at work saves and leaves, and then it begins."""

import errno
import os
import shlex
import signal
from pathlib import Path

import pytest
from support.toyrun import program, start_segment, toy_job, toy_run, until

from snakemake_executor_plugin_unbroken.detached import Detached, template_of
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.detached import chain_job, early_start, segment_command
from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.early_start import ask_to_leave, dependency, early_minutes
from unbroken.runs import lease
from unbroken.runs.claim import request_path
from unbroken.runs.outcome import Outcome
from unbroken.runs.record import read_record
from unbroken.system import fs

SLOW = {"goal": 10**6, "step_seconds": 0.02, "save_steps": 0, "segment_minutes": 60.0}
QUICK = {"runs.lease.HEARTBEAT_SECONDS": 0.1}


@pytest.mark.parametrize(
    ("length", "wait", "minutes"), [(60, 0, None), (60, 20, 40), (60, 20.5, 39), (60, 59.5, 1), (1, 1, 1)]
)
def test_the_next_job_may_start_as_much_earlier_as_it_waits(length: float, wait: float, minutes: int | None) -> None:
    assert early_minutes(toy_run(segment_minutes=length, queue_wait_minutes=wait)) == minutes


def test_it_waits_for_the_end_of_the_last_or_a_time_after_its_start() -> None:
    assert dependency([], 40) == dependency([], None) == []
    assert dependency(["17", "18"], None) == ["--dependency=afterany:17:18"]
    assert dependency(["17", "18"], 40) == ["--dependency=afterany:18?after:18+40"]


def test_two_jobs_of_such_a_run_are_out_and_the_shell_leaves_their_words_alone() -> None:
    run = toy_run(segment_minutes=60.0, queue_wait_minutes=20.0)
    detached, first = Detached(5), Segment(run, 1, "toy_segment", ("demo", "001"))
    detached.now = first

    assert detached.dependency().strip() == ""
    detached.add(first, "17")
    assert shlex.split(detached.dependency()) == ["--dependency=afterany:17?after:17+40"]
    assert "?" in shlex.quote(dependency(["17"], 40)[0]) and "'" in detached.dependency()
    assert detached.has_room(first)
    detached.add(first, "18")
    assert not detached.has_room(first)
    assert detached.ahead_of(first) == 2
    assert template_of(first, 2, Path("logs"), [], "").early_minutes == 40
    assert detached.ahead_of(Segment(toy_run(), 1, "toy_segment", ("demo", "001"))) == 5


def test_jobs_of_a_driver_submit_none_so_they_take_no_room_in_a_chain() -> None:
    segment = Segment(toy_run(segment_minutes=60.0, queue_wait_minutes=20.0), 1, "toy_segment", ("demo", "001"))
    chain = Detached(5)
    for job in ("17", "18"):
        chain.found_driven(job)
        chain.add(segment, job)

    assert chain.has_room(segment)
    chain.add(segment, "19")
    chain.add(segment, "20")
    assert not chain.has_room(segment)


def test_the_one_at_work_saves_and_leaves_when_it_is_asked(tmp_path: Path) -> None:
    at_work = start_segment(tmp_path, environment={"SLURM_JOB_ID": "17"}, patch=QUICK, **SLOW)
    places = toy_job(tmp_path).places
    until(lambda: any(places.work.glob("*/progress.json")))
    told: list[str] = []

    ask_to_leave(places, ("16", "17"), "18", told.append)

    held, why_free = lease.current_claim(places.lease)
    assert held is not None and why_free
    assert told == ["Slurm job 17 is at work: it is asked to save and leave (queue_wait_minutes)"]
    ended = at_work.end()
    record = read_record(places.record(1))
    assert (ended.code, record and record.outcome) == (0, Outcome.PAUSED)
    assert "stopping the program: the next job of the run has started and takes over" in ended.screen
    assert '"slurm_job": "18"' in request_path(places.lease, held.token).read_text()


def test_one_that_has_nothing_to_save_yet_has_not_failed(tmp_path: Path) -> None:
    """A slow start is no fault of a program's."""
    command, job = program("not_begun_yet"), {"SLURM_JOB_ID": "17"}
    at_work = start_segment(tmp_path, command=command, environment=job, patch=QUICK, segment_minutes=60.0)
    places = toy_job(tmp_path).places
    until(lambda: any(places.work.glob("*/save")))

    ask_to_leave(places, ("17",), "18", print)

    ended = at_work.end()
    assert "there was nothing newer to save" in ended.error
    assert not places.record(1).exists()


def test_who_is_asked_is_a_job_before_this_one_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = toy_job(tmp_path).places
    ask_to_leave(places, ("17",), "18", pytest.fail)
    with lease.take(places.lease, 1, 0.0, print, environment={"SLURM_JOB_ID": "17"}) as held:
        ask_to_leave(places, ("16",), "18", pytest.fail)
        monkeypatch.setattr(segment_command, "_heard", {signal.SIGTERM})
        ask_to_leave(places, ("17",), "18", pytest.fail)
        monkeypatch.setattr(segment_command, "_heard", set())
        assert not request_path(places.lease, held.claim.token).exists()

        monkeypatch.setattr(early_start, "PATIENCE_SECONDS", 0.3)
        ask_to_leave(places, ("17",), "18", print)  # it does not answer
        assert request_path(places.lease, held.claim.token).exists()
    with lease.take(places.lease, 1, 0.0, print) as following:
        following.forget_earlier()
        assert not request_path(places.lease, held.claim.token).exists()
        assert not following.is_asked_for


def test_a_full_disk_ends_no_job_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the run held, and leaves its node as it would without."""
    places, told = toy_job(tmp_path).places, list[str]()

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with lease.take(places.lease, 1, 0.0, print, environment={"SLURM_JOB_ID": "17"}):
        monkeypatch.setattr(fs, "write_new", full)
        ask_to_leave(places, ("17",), "18", told.append)

    assert "it cannot be asked: " in told[-1] and "No space left on device" in told[-1]


def test_a_job_asks_before_it_looks_what_is_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(chain_job, "ask_to_leave", lambda *words: asked.append(words[1:3]))
    words = ["--run", "demo", "--segments", "0", "--after=16,17", "--", "python", "--attempt", "1"]

    for more in ([], ["--early"]):
        job = DetachedJob.parse([*more, *words], None)
        chain_job._Chain(job, "18", None).work()  # type: ignore[arg-type]

    assert asked == [(("16", "17"), "18")]
