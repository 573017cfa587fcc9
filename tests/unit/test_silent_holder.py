"""What is said of a run whose holder cannot be seen, or does nothing: nobody takes anything from it by one look."""

import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.making import publish

from unbroken.cli import decisions
from unbroken.errors import ConfigError
from unbroken.report.status import RunState, RunStatus, status_of
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.system import host


def held(base: Path, silent_seconds: float = 0.0, **changes: object) -> Path:
    """A run with a checkpoint, and a claim as a process of another machine leaves it that is killed."""
    places = RunFolder("demo", base)
    with lease.take(places.lease, 1, 1.0):
        publish(Store(places.checkpoints), 1)
    (last,) = places.lease.glob("*.json")
    claim = {**json.loads(last.read_text()), "token": 2, "segment": 2, "released_utc": "", "host": "elsewhere"}
    path = last.with_name("000002.json")
    path.write_text(json.dumps({**claim, **changes}))
    os.utime(path, (time.time() - silent_seconds,) * 2)
    return path


def shown(base: Path) -> RunStatus:
    return status_of("demo", base, None)


def test_a_holder_that_was_silent_for_long_is_shown_as_such_and_what_to_type(tmp_path: Path) -> None:
    path = held(tmp_path, silent_seconds=4 * 3600)

    row = shown(tmp_path)

    assert row.state is RunState.STOPPED
    assert row.advice.startswith("no sign of life for 4.0 h from segment 2 by process ")
    assert row.advice.endswith("; type snakemake: it resumes if that job is gone")
    assert path.exists()


@pytest.mark.parametrize("silent_seconds", [60, -86400])
def test_a_holder_that_was_heard_of_lately_or_in_the_future_is_at_work(tmp_path: Path, silent_seconds: float) -> None:
    held(tmp_path, silent_seconds)

    assert shown(tmp_path).state is RunState.WORKING


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.process
def test_a_holder_that_is_stopped_on_this_machine_is_named_with_what_to_type(tmp_path: Path, sleeper: int) -> None:
    held(tmp_path, 86400, host=platform.node(), pid=sleeper, pid_start=host.process_start(sleeper))
    todo = f"type kill -CONT {sleeper} and it goes on, or kill -KILL {sleeper} and the run is free"

    row = shown(tmp_path)
    with pytest.raises(ConfigError) as caught:
        decisions.restart("demo", tmp_path)

    assert row.state is RunState.WORKING
    assert row.advice.endswith(f"; process {sleeper} is stopped (SIGSTOP, or Ctrl-Z); {todo}")
    assert str(caught.value).endswith(f"{todo} and start again")


def test_restart_watches_a_silent_holder_before_it_moves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    held(tmp_path, silent_seconds=86400)

    decisions.restart("demo", tmp_path)

    waiting, taken, moved = capsys.readouterr().out.splitlines()
    assert waiting.startswith("demo: waiting: the run is held, segment 2 by process ")
    assert taken.startswith("demo: took the run over from segment 2 ") and ": no heartbeat in 12 looks" in taken
    assert moved.startswith("demo: everything so far is now in ")


def test_restart_is_refused_when_the_silent_holders_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    path = held(tmp_path, silent_seconds=86400)
    monkeypatch.setattr("builtins.print", lambda *_, **__: os.utime(path))

    with pytest.raises(ConfigError, match=r"demo: .*/demo: held, segment 2 by process .*, which is at work"):
        decisions.restart("demo", tmp_path)

    assert path.exists()
