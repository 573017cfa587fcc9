"""When what happened in an attempt: as its line of history, or its successor's, tells it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.toyrun import start_segment, until
from typer.testing import CliRunner

from unbroken.cli.main import app
from unbroken.program.contract import AttemptFolder
from unbroken.report.account import account
from unbroken.report.spans import Kind
from unbroken.store.attempts import all_attempts
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.times import NO_TIMES, Times, parse_times, read_times

pytestmark = pytest.mark.process

ORDER = ("job_started", "program_started", "first_step", "program_ended", "ended")


def assert_in_order(times: Times, *names: str) -> None:
    found = [getattr(times, name) for name in names]
    assert None not in found, times
    assert found == sorted(found), times


def test_a_segment_that_pauses_and_one_that_is_killed_leave_their_times(tmp_path: Path) -> None:
    settings = {"goal": 100_000, "save_steps": 20, "step_seconds": 0.01}
    began = time.time()
    paused = start_segment(tmp_path, 1, segment_minutes=0.03, **settings).end()
    assert paused.record["kind"] == "paused"
    places = RunFolder("demo", tmp_path)

    killed = start_segment(tmp_path, 2, **settings)
    work = AttemptFolder(places.work / "000002")
    until(lambda: read_times(work.note).saved is not None and read_times(work.note).first_step is not None)
    live = read_times(work.note)
    killed.kill(signal.SIGKILL)
    killed.end()
    last_sign = (places.lease / "000002.json").stat().st_mtime
    third = start_segment(tmp_path, 3, segment_minutes=0.03, **settings).end()
    assert third.record["kind"] == "paused"

    first, died, last = History(places.history).attempts()
    assert died.kind is EndKind.DIED
    assert_in_order(first.times, *ORDER)
    assert_in_order(last.times, *ORDER)
    assert began - 1 < (first.times.job_started or 0) < (first.times.program_started or 0)
    assert first.times.saved == pytest.approx(first.times.program_ended, abs=2.0)
    assert_in_order(died.times, "job_started", "program_started", "first_step", "saved", "ended")
    assert died.times.first_step == live.first_step
    assert (died.times.ended or 0) >= last_sign

    found = account([first, died, last], time.time())
    assert sum(found.seconds.values()) == pytest.approx(found.end - found.begin)
    assert found.kills == 1
    assert found.seconds[Kind.USEFUL] > 0 and found.seconds[Kind.STARTING] > 0


def test_an_attempt_that_was_killed_before_its_program_started_has_what_its_claim_says(tmp_path: Path) -> None:
    held = start_segment(tmp_path, 1, goal=100_000, step_seconds=0.01)
    places = RunFolder("demo", tmp_path)
    until(lambda: (places.lease / "000001.json").exists())
    held.kill(signal.SIGKILL)
    held.end()
    (tmp_path / "results/demo/work/000001/attempt.json").unlink(missing_ok=True)

    (died,) = all_attempts(places)
    assert died.kind is EndKind.DIED
    assert_in_order(died.times, "job_started", "ended")


def stop_for(seconds: float, *pids: int) -> tuple[float, float]:
    """As `scontrol suspend` and `resume` do with a job; when they began to be stopped, and when they went on."""
    began = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return began, time.time()


def test_a_job_that_is_suspended_is_told_apart_and_its_program_has_not_stalled(tmp_path: Path) -> None:
    patch = {"store.times.SUSPENDED_SECONDS": 3.0}
    settings = {"goal": 1_000_000, "save_steps": 1_000_000, "step_seconds": 1.0}
    process = start_segment(tmp_path, 1, patch=patch, segment_minutes=10, stall_minutes=0.15, **settings)
    places = RunFolder("demo", tmp_path)
    noted = places.work / "000001" / "attempt.json"
    until(lambda: read_times(noted).first_step is not None)

    began, ended = stop_for(11.0, process.pid, process.child_pid())
    until(lambda: read_times(noted).suspensions)
    time.sleep(1.0)
    process.kill(signal.SIGTERM)
    process.end()

    (line,) = History(places.history).attempts()
    assert line.kind is EndKind.INTERRUPTED  # not stalled
    found = max(line.times.suspensions, key=lambda pair: pair[1] - pair[0])
    assert found == pytest.approx((began, ended), abs=1.5)
    # What is planned and foretold by the time at work counts without it.
    lived = (line.times.ended or 0) - (line.times.program_started or 0)
    assert line.work_seconds <= lived - 8.0
    assert account([line], time.time()).seconds[Kind.SUSPENDED] >= ended - began - 1.5


# Says that it saves, saves for two seconds by its own clock, and works on.
SAVING = """\
import json, os, pathlib, time
save = pathlib.Path(os.environ["UNBROKEN_SAVE"])
(save / "draft").mkdir()
began = time.monotonic()
pathlib.Path("saving").touch()
for _ in range(20):
    time.sleep(0.1)
told = {"done": 1, "goal": 9, "unit": "steps", "save_seconds": time.monotonic() - began}
(save / "draft" / "state").write_text("1")
(save / "draft" / "progress.json").write_text(json.dumps(told))
(save / "draft").rename(save / "000001.ready")
time.sleep(600)
"""


def test_a_save_during_which_the_job_is_suspended_counts_without_that(tmp_path: Path) -> None:
    """Else the next segments would be told to stop so much earlier."""
    patch = {"store.times.SUSPENDED_SECONDS": 3.0}
    process = start_segment(tmp_path, 1, patch=patch, command=[sys.executable, "-c", SAVING], segment_minutes=10)
    places = RunFolder("demo", tmp_path)
    until(lambda: (tmp_path / "saving").exists())

    stop_for(9.0, process.pid, process.child_pid())
    until(lambda: Store(places.checkpoints).readable())
    passport = Store(places.checkpoints).readable()[-1].passport
    process.kill(signal.SIGKILL)
    process.end()
    died = all_attempts(places)[-1]

    assert passport.save_seconds is not None and passport.save_seconds < 9.0
    assert (died.times.stall_seconds or 0.0) < 9.0
    assert max(end - begin for begin, end in died.times.suspensions) > 6.0


def test_times_are_read_as_they_were_written_and_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    times = Times(submitted=1.0, ended=2.5, stall_seconds=0.25, suspensions=((1.5, 2.0), (2.25, 2.5)))
    told = times.to_json()
    told["suspensions"] += [[1.0], "soon", [2.0, None]]
    assert parse_times({**told, "dreamt": 3.0, "saved": float("nan"), "eligible": "soon"}) == times
    (tmp_path / "attempt.json").write_text('{"times": {"submitted": ')
    assert read_times(tmp_path / "attempt.json") == read_times(tmp_path / "none.json") == NO_TIMES


def test_the_account_of_a_run_that_was_killed_once_and_is_at_work_again(tmp_path: Path) -> None:
    settings = {"goal": 100_000, "save_steps": 20, "step_seconds": 0.01}
    places = RunFolder("demo", tmp_path)
    for token in (1, 2):
        at_work = start_segment(tmp_path, token, **settings)
        times = places.work / f"{token:06d}" / "attempt.json"
        until(lambda times=times: read_times(times).saved is not None and read_times(times).first_step is not None)
        if token == 1:
            at_work.kill(signal.SIGKILL)
            at_work.end()
    text = CliRunner().invoke(app, ["account", "--directory", str(tmp_path)]).output
    (found,) = json.loads(CliRunner().invoke(app, ["account", "demo", "--json", "-d", str(tmp_path)]).output)
    at_work.kill(signal.SIGKILL)
    at_work.end()

    assert "1 kill cost" in text and "without checkpoints" in text
    assert found["kills"] == 1
    assert found["spans"][-1][0] == "useful"
    assert found["spans"][-1][3] == 2
    assert sum(found["seconds"].values()) == pytest.approx(found["end"] - found["begin"])


def test_the_account_of_a_folder_without_runs_is_empty(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["account", "--directory", str(tmp_path), "--json"])
    assert (done.exit_code, json.loads(done.output)) == (0, [])


@pytest.mark.parametrize("spoilt", ["5", "null", '"soon"', "[1]", '{"ended": 1e999}'])
def test_an_attempt_whose_times_are_spoilt_stays_in_the_history(tmp_path: Path, spoilt: str) -> None:
    history = History(tmp_path / "history.jsonl")
    history.append(ATTEMPT)
    text = history.path.read_text()
    assert '"times": {}' in text
    history.path.write_text(text.replace('"times": {}', f'"times": {spoilt}'))

    assert history.attempts() == [ATTEMPT]
