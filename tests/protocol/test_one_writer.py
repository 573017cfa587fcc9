"""The promise: one writer per run, ever.  Real processes that race, die, sleep and wake up."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import (
    PYTHONPATH,
    SegmentProcess,
    checkpoints,
    final_files,
    history,
    program,
    start_segment,
    toy_job,
    until,
    whole_toy,
)

from unbroken.engines.testing.chain import is_alive
from unbroken.job.attempt import Job

pytestmark = pytest.mark.process

# A heart that beats fast and is missed soon.
QUICK = {"store.lease.HEARTBEAT_SECONDS": 0.1}


def races(kind: str, folder: Path, rounds: int) -> list[list[str]]:
    script = Path(__file__).with_name("lease_races.py")
    command = [sys.executable, str(script), kind, str(folder / "races"), str(rounds)]
    done = subprocess.run(command, env={"PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("often", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_of_eight_that_race_for_the_run_of_a_dead_process_exactly_one_gets_it(tmp_path: Path, often: int) -> None:
    rounds = races("stale", tmp_path, often)

    assert len(rounds) == often
    assert [said for said in rounds if sorted(said) != ["held"] * 7 + ["won 2"]] == []


@pytest.mark.parametrize("often", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_however_often_a_run_changes_hands_no_two_hold_it_at_once(tmp_path: Path, often: int) -> None:
    (said,) = races("churn", tmp_path, often)

    assert said == ["done"] * 6


def test_of_two_jobs_for_one_segment_one_works_and_the_other_finds_the_work_done(tmp_path: Path) -> None:
    rounds = races("twins", tmp_path, 20)

    assert len(rounds) == 20
    assert [said for said in rounds if said != ["paused 2", "paused 2", "paused in the history"]] == []


def test_two_drivers_at_once_never_work_at_the_same_time(tmp_path: Path) -> None:
    settings = {"goal": 40, "step_seconds": 0.01, "save_steps": 0, "segment_minutes": 0.01, "first_margin_seconds": 0.3}
    for segment in range(1, 41):  # on a busy machine one step each
        both = [start_segment(tmp_path, segment, **settings) for _ in range(2)]
        ended = [one.end() for one in both]
        assert [one.code for one in ended] == [0, 0], [one.screen for one in ended]
        if ended[0].record["kind"] == "finished":
            break

    job = toy_job(tmp_path, **settings)
    attempts = history(job)
    assert len(attempts) >= 2
    assert all(one.ended_utc <= two.started_utc for one, two in itertools.pairwise(attempts))
    assert all(one.progress_to == two.progress_from for one, two in itertools.pairwise(attempts))
    assert final_files(job) == whole_toy(tmp_path / "whole", goal=40)


def test_the_second_job_says_whom_it_waits_for(tmp_path: Path) -> None:
    first = start_segment(tmp_path, 1, command=program("obedient"))
    pid = first.child_pid()
    second = start_segment(tmp_path, 1, command=program("obedient"))
    log = tmp_path / "logs/demo/001.log"
    until(lambda: f"waiting: the run is held, segment 1 by process {first.pid} on " in log.read_text())
    first.kill(signal.SIGUSR1)
    ended = [first.end(), second.end()]

    assert [one.record.get("done") for one in ended] == [1, 1]
    assert len(history(toy_job(tmp_path))) == 1
    assert not is_alive(pid)


def test_a_job_that_is_told_to_leave_while_it_waits_leaves(tmp_path: Path) -> None:
    first = start_segment(tmp_path, 1, command=program("obedient"))
    first.child_pid()
    second = start_segment(tmp_path, 1, command=program("obedient"))
    log = tmp_path / "logs/demo/001.log"
    until(lambda: "waiting: the run is held" in log.read_text())
    second.kill(signal.SIGTERM)
    ended = second.end()
    first.kill(signal.SIGUSR1)

    assert ended.error == "InterruptedSegment: runs.demo: stopped by a signal (SIGTERM) while waiting"
    assert first.end().record["kind"] == "paused"


def test_a_job_that_waited_its_whole_time_names_the_holder(tmp_path: Path) -> None:
    first = start_segment(tmp_path, 1, command=program("obedient"))
    first.child_pid()
    second = start_segment(
        tmp_path, 1, command=program("obedient"), segment_minutes=0.001, patch={"job.deadline.WAITING_SECONDS": 0}
    ).end()
    first.kill(signal.SIGUSR1)
    first.end()

    assert second.code == 1
    assert second.error.startswith(f"LeaseError: results/demo: held, segment 1 by process {first.pid} on ")


def test_the_run_of_a_killed_job_is_taken_over_at_once_and_its_line_is_written(tmp_path: Path) -> None:
    first = start_segment(tmp_path, 1, command=program("deaf_to_the_stop_file"))
    child = first.child_pid()
    job = toy_job(tmp_path)
    until(lambda: checkpoints(job))
    first.kill()
    first.end()
    until(lambda: not is_alive(child))

    ended = start_segment(tmp_path, 1, command=program("one_step")).end()

    assert ended.record["done"] == 2
    assert "its process is gone" in ended.screen
    assert [(one.kind.value, one.progress_from, one.progress_to) for one in history(job)] == [
        ("died", 0, 1),
        ("paused", 1, 2),
    ]


def sleep_elsewhere(job: Job, sleeper: SegmentProcess) -> None:
    """Stops a job whose claim then says that it works on another machine, where nobody sees its process."""
    (claim,) = job.places.lease.glob("[0-9]*.json")
    sleeper.kill(signal.SIGSTOP)
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "host": "elsewhere"}))


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_job_on_this_machine_that_was_stopped_is_never_robbed_and_named_with_what_to_type(tmp_path: Path) -> None:
    first = start_segment(tmp_path, 1, command=program("one_step"), patch={"store.lease.HEARTBEAT_SECONDS": 1000})
    until(lambda: (tmp_path / "results/demo/lease/000001.json").exists())
    first.kill(signal.SIGSTOP)
    second = start_segment(tmp_path, 2, command=program("one_step"), patch={"store.lease.HEARTBEAT_SECONDS": 0.01})
    log = tmp_path / "logs/demo/002.log"
    hint = f"type kill -CONT {first.pid} and it goes on, or kill -KILL {first.pid} and the run is free"
    line = f"process {first.pid} is stopped (SIGSTOP, or Ctrl-Z); {hint}"
    until(lambda: log.exists() and line in log.read_text())
    first.kill(signal.SIGCONT)
    ended = [first.end(), second.end()]

    assert [one.record.get("done") for one in ended] == [1, 2], [one.screen for one in ended]
    assert [one.kind.value for one in history(toy_job(tmp_path))] == ["paused", "paused"]


def test_a_job_that_slept_while_another_took_over_publishes_nothing_and_ends_its_program(tmp_path: Path) -> None:
    job = toy_job(tmp_path)
    sleeper = start_segment(tmp_path, 1, command=program("obedient"), patch=QUICK)
    child = sleeper.child_pid()
    until(lambda: (job.places.lease / "000001.json").exists())
    sleep_elsewhere(job, sleeper)
    second = start_segment(tmp_path, 1, command=program("one_step"), patch=QUICK).end()
    before = sorted(str(path) for path in job.places.root.rglob("*"))
    was_alive = is_alive(child)
    sleeper.kill(signal.SIGCONT)
    ended = sleeper.end()

    assert was_alive
    assert second.record["done"] == 1
    assert (
        "took the run over from segment 1 by process" in second.screen and "no heartbeat in 12 looks" in second.screen
    )
    assert ended.code == 1
    assert ended.error.startswith(
        "FencedError: results/demo/lease: this job (claim 1) was taken for dead and the run w"
    )
    assert "taken over by claim 2; nothing was written; the other job goes on" in ended.error
    assert not is_alive(child)
    assert sorted(str(path) for path in job.places.root.rglob("*")) == before
    assert [one.kind.value for one in history(job)] == ["died", "paused"]


def test_a_sleeper_whose_program_went_on_alone_keeps_nothing_of_it(tmp_path: Path) -> None:
    """The program of a sleeping job still saves; when both wake up the run is already further."""
    job = toy_job(tmp_path)
    sleeper = start_segment(tmp_path, 1, command=program("silent_but_saving", 30), patch=QUICK)
    until(lambda: checkpoints(job))
    sleep_elsewhere(job, sleeper)
    second = start_segment(tmp_path, 2, command=program("one_step"), patch=QUICK).end()
    names = [checkpoint.name for checkpoint in checkpoints(job)]
    sleeper.kill(signal.SIGCONT)
    ended = sleeper.end()

    assert second.code == 0
    assert ended.error.startswith("FencedError: ")
    assert [checkpoint.name for checkpoint in checkpoints(job)] == names


@pytest.mark.parametrize("moment", ["Store.prune", "Store._remove"])
def test_a_sleeper_that_wakes_up_while_it_prunes_leaves_what_its_successor_resumed_from(
    tmp_path: Path, moment: str
) -> None:
    """It sleeps between its last look at the fence and its first removal, or between that and the removal itself."""
    job, more = toy_job(tmp_path), {"patch": QUICK, "keep": 1, "goal": 100_000}
    saving = program("silent_but_saving", 30)
    sleeper = start_segment(tmp_path, 1, command=saving, asleep_at=f"store.checkpoints.{moment}", **more)
    until(lambda: (job.places.lease / "000001.json").exists() and is_stopped(sleeper.pid))
    sleep_elsewhere(job, sleeper)
    second = start_segment(tmp_path, 2, command=program("silent_but_saving", 3000), **more)
    found = until(lambda: (there := checkpoints(job)) and there[-1].passport.token == 2 and there)
    origin = [one.name for one in found if one.passport.token == 1][-1]  # what it resumed from stays while it works
    sleeper.kill(signal.SIGCONT)
    ended = sleeper.end()
    names = [checkpoint.name for checkpoint in checkpoints(job)]
    second.kill()
    second.end()

    assert ended.error.startswith("FencedError: ")
    assert origin in names


def test_a_job_whose_driver_is_gone_works_on_without_a_screen(tmp_path: Path) -> None:
    nobody, screen = os.pipe()
    segment = start_segment(tmp_path, 1, command=program("silent_but_saving", 3), screen=screen)
    os.close(nobody)
    os.close(screen)
    segment.end()

    assert [one.kind.value for one in history(toy_job(tmp_path))] == ["paused"]
    assert (tmp_path / "results/demo/segments/001.json").exists()
