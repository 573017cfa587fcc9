"""Signals to a segment's process, and programs that do not leave when told."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from support.toyrun import (
    SegmentProcess,
    checkpoints,
    final_files,
    guards_of,
    history,
    program,
    run_program,
    start_segment,
    toy,
    toy_job,
    until,
    whole_toy,
)

from unbroken.engines.testing.chain import is_alive
from unbroken.job import supervisor
from unbroken.store.checkpoints import Store
from unbroken.store.record import read_record

pytestmark = pytest.mark.process

IMPATIENT = {"job.supervisor.SOFT_PATIENCE_SECONDS": 0.2, "job.supervisor.TERM_PATIENCE_SECONDS": 0.2}
SLOW = {"goal": 2000, "step_seconds": 0.01, "save_steps": 0}


def at_work(base: Path, segment: SegmentProcess) -> SegmentProcess:
    """The same, once its program counts."""
    until(lambda: any(base.glob("results/demo/work/*/progress.json")))
    return segment


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (signal.SIGTERM, "preempted or canceled"),
        (signal.SIGINT, "stopped by Ctrl-C"),
        (signal.SIGHUP, "its terminal was closed"),
    ],
    ids=["TERM", "INT", "HUP"],
)
def test_a_machine_taken_away_early_interrupts_the_segment_and_keeps_what_was_done(
    tmp_path: Path, number: signal.Signals, why: str
) -> None:
    segment = at_work(tmp_path, start_segment(tmp_path, **SLOW))
    segment.kill(number)
    ended = segment.end()

    job = toy_job(tmp_path)
    (attempt,) = history(job)
    assert ended.code == 1
    assert ended.error.startswith(f"InterruptedSegment: runs.demo: {why}; saved at ")
    assert f"stopping the program: {why} ({number.name})" in ended.screen
    assert (attempt.kind.value, attempt.exit_code) == ("interrupted", 85)
    assert attempt.progress_to == checkpoints(job)[-1].passport.progress.done > 0
    assert not job.places.record(1).exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGURG])
def test_a_warning_that_time_is_nearly_up_pauses_the_segment(tmp_path: Path, number: signal.Signals) -> None:
    segment = at_work(tmp_path, start_segment(tmp_path, **SLOW))
    segment.kill(number)
    ended = segment.end()

    job = toy_job(tmp_path)
    record = read_record(job.places.record(1))
    assert ended.code == 0
    assert f"a signal warned that the time limit is near ({number.name})" in ended.screen
    assert [attempt.kind.value for attempt in history(job)] == ["paused"]
    assert record is not None and record.progress.done == checkpoints(job)[-1].passport.progress.done > 0


def test_an_interrupted_segment_goes_on_to_the_same_result(tmp_path: Path) -> None:
    segment = at_work(tmp_path, start_segment(tmp_path, **SLOW))
    segment.kill(signal.SIGTERM)
    segment.end()
    (interrupted,) = history(toy_job(tmp_path))

    goal = int(interrupted.progress_to) + 40
    toy(tmp_path, 1, goal=goal)

    attempts = history(toy_job(tmp_path))
    assert [one.kind.value for one in attempts] == ["interrupted", "finished"]
    assert attempts[1].progress_from == attempts[0].progress_to > 0
    assert final_files(toy_job(tmp_path)) == whole_toy(tmp_path / "whole", goal=goal)


def test_a_second_term_changes_nothing(tmp_path: Path) -> None:
    segment = at_work(tmp_path, start_segment(tmp_path, **SLOW))
    child = segment.child_pid()
    os.kill(child, signal.SIGSTOP)  # so that the segment still waits for it when the second one comes
    segment.kill(signal.SIGTERM)
    until(lambda: "stopping the program" in (tmp_path / "logs/demo/001.log").read_text())
    segment.kill(signal.SIGTERM)
    os.kill(child, signal.SIGCONT)
    ended = segment.end()

    assert ended.error.startswith("InterruptedSegment: ")
    assert ended.screen.count("stopping the program") == 1
    assert [attempt.kind.value for attempt in history(toy_job(tmp_path))] == ["interrupted"]


def test_a_term_before_anything_was_saved_says_so(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, command=program("deaf_and_idle"), patch=IMPATIENT, first_margin_seconds=0.05)
    segment.child_pid()
    segment.kill(signal.SIGTERM)
    ended = segment.end()

    assert "preempted or canceled; nothing to save yet; " in ended.error
    assert ended.error.endswith("; start again and it goes on")
    assert [attempt.to_checkpoint for attempt in history(toy_job(tmp_path))] == [None]


def test_a_signal_to_the_segment_does_not_reach_the_program(tmp_path: Path) -> None:
    """Ctrl-C at a terminal goes to the whole foreground group; only we may hear it."""
    segment = at_work(tmp_path, start_segment(tmp_path, prefix=["setsid"], **SLOW))
    os.killpg(segment.pid, signal.SIGINT)
    segment.end()

    (attempt,) = history(toy_job(tmp_path))
    assert (attempt.kind.value, attempt.exit_code) == ("interrupted", 85)


def test_a_program_that_ignores_the_stop_file_gets_term_and_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    patch = {"job.supervisor.SOFT_PATIENCE_SECONDS": 0.2}  # once it is told by TERM, it has time to leave
    segment = start_segment(tmp_path, command=program("deaf_to_the_stop_file"), patch=patch, first_margin_seconds=0.05)
    until(lambda: checkpoints(toy_job(tmp_path)))
    segment.kill(signal.SIGUSR1)
    ended = segment.end()

    (attempt,) = history(toy_job(tmp_path))
    assert "the program does not exit by itself: sending TERM" in ended.screen
    assert (attempt.kind.value, attempt.exit_code, attempt.progress_to) == ("paused", -signal.SIGTERM, 1)
    assert ended.record["done"] == 1


def test_a_program_whose_last_save_took_long_to_publish_still_gets_term_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Store.publish

    def slow_publish(*args: object) -> object:
        time.sleep(2)  # longer than both patiences
        return publish(*args)

    monkeypatch.setattr(Store, "publish", slow_publish)
    monkeypatch.setattr(supervisor, "SOFT_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "TERM_PATIENCE_SECONDS", 0.2)

    run_program(tmp_path, program("saves_and_stays"), segment_minutes=0.01, first_margin_seconds=0.05)

    assert "the program does not exit by itself: sending TERM" in toy_job(tmp_path).places.log(1).read_text()


def test_a_program_that_ignores_term_too_is_killed_and_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, command=program("deaf_to_term"), patch=IMPATIENT, first_margin_seconds=0.05)
    child = segment.child_pid()
    until(lambda: checkpoints(toy_job(tmp_path)))
    segment.kill(signal.SIGUSR1)
    ended = segment.end()

    (attempt,) = history(toy_job(tmp_path))
    assert ended.screen.index("by itself: sending TERM") < ended.screen.index("does not exit: sending KILL")
    assert (attempt.kind.value, attempt.exit_code) == ("paused", -signal.SIGKILL)
    assert not is_alive(child)


def test_a_deaf_program_that_never_saved_is_a_failure(tmp_path: Path) -> None:
    more = {"first_margin_seconds": 0.05, "segment_minutes": 0.05}  # it is deaf long before its time is up
    segment = start_segment(tmp_path, command=program("deaf_and_idle"), patch=IMPATIENT, **more)
    ended = segment.end()

    assert "stopping the program: its time is up" in ended.screen
    assert "the program was ended by SIGKILL and left no newer checkpoint" in ended.error
    assert [attempt.kind.value for attempt in history(toy_job(tmp_path))] == ["failed"]


def test_the_workers_of_a_program_leave_with_it(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, command=program("worker"))
    path = until(lambda: next(tmp_path.glob("results/demo/work/*/worker.pid"), None))
    worker = int(until(lambda: path.read_text()))  # type: ignore[attr-defined,call-overload]
    was_alive = is_alive(worker)
    segment.kill(signal.SIGUSR1)
    ended = segment.end()

    assert was_alive
    assert ended.record["done"] == 1
    until(lambda: not is_alive(worker))


def test_a_program_dies_with_its_segment_and_the_next_attempt_takes_over_at_once(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, **{**SLOW, "save_steps": 5})
    child = segment.child_pid()
    job = toy_job(tmp_path)
    until(lambda: checkpoints(job))
    segment.kill(signal.SIGKILL)
    segment.end()
    until(lambda: not is_alive(child))
    published = checkpoints(job)[-1].passport.progress.done
    (told,) = tmp_path.glob("results/demo/work/*/progress.json")
    reached = json.loads(told.read_text())["done"]

    goal = int(reached) + 20
    record = toy(tmp_path, 1, goal=goal)

    died, finished = history(job)
    assert [died.kind.value, finished.kind.value] == ["died", "finished"]
    assert published <= died.progress_to <= reached  # what was handed over and not published is saved
    assert (finished.progress_from, finished.progress_to) == (died.progress_to, goal)
    assert record.progress.done == goal
    assert final_files(job) == whole_toy(tmp_path / "whole", goal=goal)


def test_what_outlives_its_segment_and_both_guards_is_named_by_the_next_attempt(tmp_path: Path) -> None:
    noted = tmp_path / "worker"
    words = ["sh", "-c", 'sleep 1000 & echo $! > "$0.new"; mv "$0.new" "$0"; wait', str(noted)]
    segment = start_segment(tmp_path, command=words)
    until(noted.exists)
    worker = int(noted.read_text())
    processes = [segment.pid, *guards_of(segment.child_pid())]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none of them sees another one die
        for pid in processes:
            os.kill(pid, number)
    segment.end()
    outlived = is_alive(worker)

    run_program(tmp_path, program("obedient"), 1, 2, segment_minutes=0.001)
    said = toy_job(tmp_path).places.log(1).read_text()
    os.kill(worker, signal.SIGKILL)

    assert outlived
    assert f"are still there; if they shall not be, type kill -KILL {worker}\n" in said


# --- Slurm's clock ---------------------------------------------------------------------------------------------------


def in_slurm(seconds: float) -> dict[str, str]:
    return {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": f"{time.time() + seconds:.0f}", "SLURM_JOB_PARTITION": "gpu"}


def test_the_end_of_the_slurm_job_stops_a_segment_that_would_be_longer(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, environment=in_slurm(30), first_margin_seconds=28, segment_minutes=60, **SLOW)
    ended = segment.end()

    job = toy_job(tmp_path)
    (attempt,) = history(job)
    assert ended.record["kind"] == "paused"
    assert "stopping the program: its time is up" in ended.screen or attempt.exit_code == 85
    assert (attempt.slurm_job, checkpoints(job)[-1].passport.slurm_job["partition"]) == ("4711", "gpu")  # type: ignore[index]


def test_a_slurm_job_without_a_near_end_leaves_the_segment_its_length(tmp_path: Path) -> None:
    segment = start_segment(tmp_path, environment=in_slurm(365 * 86400), segment_minutes=0.02, **SLOW)
    ended = segment.end()

    assert "time: 1 s, told to stop" in ended.screen
    assert ended.record["kind"] == "paused"


def test_a_deaf_program_is_ended_before_slurm_ends_the_job(tmp_path: Path) -> None:
    segment = start_segment(
        tmp_path, command=program("deaf_to_term"), environment=in_slurm(25), first_margin_seconds=12, segment_minutes=60
    )
    ended = segment.end()

    assert "the program does not exit: sending KILL" in ended.screen
    assert ended.record == {**ended.record, "kind": "paused", "done": 1}
