"""`unbroken logs`, and the name by which the log of an attempt is found."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.toyrun import toy_job

from unbroken.cli.logs import POLL_SECONDS, segment_logs, show_log
from unbroken.errors import ConfigError, SegmentError
from unbroken.job import attempt as module
from unbroken.job.attempt import Assignment, Job, SegmentLog
from unbroken.store import lease
from unbroken.store.layout import RunFolder


@pytest.fixture
def places(tmp_path: Path) -> RunFolder:
    """A run with the logs of two segments, the second of which was tried twice."""
    places = RunFolder("demo", tmp_path)
    places.log(1).parent.mkdir(parents=True)
    for name, text in {"001": "first\n", "001.1": "first\n", "002": "last\n", "002.1": "x", "002.2": "last\n"}.items():
        places.log(1).with_name(f"{name}.log").write_text(text)
    return places


def test_the_newest_log_is_shown_or_that_of_a_segment(places: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    show_log(places, None, follow=False)
    show_log(places, 1, follow=False)

    out, err = capfd.readouterr()
    assert out == "last\nfirst\n"
    assert err == f"==> {places.log(2)} <==\n==> {places.log(1)} <==\n"
    assert segment_logs(places) == {1: places.log(1), 2: places.log(2)}


def test_the_log_of_the_segment_at_work_is_shown_and_not_the_empty_one_of_a_job_that_waits(
    places: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    places.log(3).touch()
    show_log(places, None, follow=False)
    with lease.take(places.lease, 1, 0.0):
        places.log(3).write_text("waiting: the run is held\n")
        show_log(places, None, follow=False)
    show_log(places, None, follow=False)

    assert [line for line in capfd.readouterr().out.splitlines() if line in {"first", "last"} or "held" in line] == [
        "last",
        "first",
        "waiting: the run is held",
    ]


@pytest.mark.process
def test_a_follower_stays_with_the_log_that_is_written_while_a_later_one_is_empty(
    places: RunFolder, follower: subprocess.Popen[bytes]
) -> None:
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"last\n"
    places.log(3).touch()
    time.sleep(3 * POLL_SECONDS)
    with places.log(2).open("a") as log:
        log.write("more\n")

    assert follower.stdout.readline() == b"more\n"


def test_a_log_that_is_not_there_is_one_line(places: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"demo: --segment: found 3, allowed: 1, 2"):
        show_log(places, 3, follow=False)
    with pytest.raises(ConfigError, match=r"none: no log in .*logs/none, so nothing has started yet"):
        show_log(RunFolder("none", tmp_path), None, follow=False)


@pytest.fixture
def follower(places: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    command = [Path(sys.executable).with_name("unbroken"), "logs", "demo", "-f", "-d", places.base]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.mark.process
def test_a_log_is_followed_into_the_next_attempt_and_the_next_segment(
    places: RunFolder, follower: subprocess.Popen[bytes]
) -> None:
    assert follower.stdout is not None

    def line() -> bytes:
        return follower.stdout.readline()  # type: ignore[union-attr]

    assert line() == b"last\n"
    with places.log(2).open("a") as log:
        log.write("more\n")
    assert line() == b"more\n"
    before = places.log(2).rename(places.log(2).with_name("002.7.log"))  # as Snakemake and the next attempt do it
    places.log(2).write_text("refused\n")
    assert line() == b"refused\n"
    with before.open("a") as log:
        log.write("no further attempt\n")
    os.replace(before, places.log(2))  # the name goes back to the attempt that ran, which was shown already
    assert line() == b"no further attempt\n"
    places.log(3).write_text("third\n")
    assert line() == b"third\n"

    follower.send_signal(signal.SIGINT)
    assert follower.wait(60) == 0


@pytest.mark.process
def test_a_reader_who_has_seen_enough_is_no_error(places: RunFolder) -> None:
    places.log(2).write_text("line\n" * 100_000)
    command = f"{Path(sys.executable).with_name('unbroken')} logs demo -d {places.base} | head -1"

    done = subprocess.run(command, shell=True, capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("line\n", f"==> {places.log(2)} <==\n")


@dataclass
class Script:
    """What Snakemake hands to a segment's script."""

    params: Any
    resources: Any
    wildcards: Any


def attempt(base: Path, monkeypatch: pytest.MonkeyPatch, starts: bool) -> Path:
    """A failing attempt at segment 1, as Snakemake begins one; the log that it named last."""
    monkeypatch.chdir(base)
    job = toy_job(base)
    RunFolder("demo").log(1).unlink(missing_ok=True)
    logs = []

    def segment(given: Job) -> None:
        log = SegmentLog(given)
        log.write("begins")
        if starts:
            log.begin_work()
            log.write("starting: sh program.sh")
        logs.append(log.job.log)
        raise SegmentError("no luck" if starts else "no further attempt is made")

    script = Script(SimpleNamespace(assignment=Assignment(job.run, job.keys)), {}, SimpleNamespace(segment="001"))
    with pytest.raises(SystemExit):
        module.main(script, segment)
    return logs[0]


def test_the_segments_log_is_that_of_the_last_attempt_that_started_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = RunFolder("demo").log(1)
    refused_at_once = attempt(tmp_path, monkeypatch, starts=False)
    assert log.samefile(refused_at_once)
    first = attempt(tmp_path, monkeypatch, starts=True)
    second = attempt(tmp_path, monkeypatch, starts=True)
    assert log.samefile(second)
    capsys.readouterr()

    refused = attempt(tmp_path, monkeypatch, starts=False)

    assert log.samefile(second)
    assert refused == log
    assert "starting: sh program.sh" in log.read_text()
    assert "stopped: no further attempt is made" in log.read_text()
    assert f"log: {second}; state of all runs" in capsys.readouterr().err
    assert "no further attempt" not in first.read_text()
    assert sorted(path.name for path in log.parent.iterdir()) == ["001.1.log", "001.2.log", "001.log"]
