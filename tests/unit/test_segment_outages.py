"""Logs and records of a segment where the disk is in the way: its work does not suffer, and what it needs is named."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.making import publish
from support.toy_spec import toy_spec
from support.toyrun import KEYS, toy, toy_job, toy_run

from unbroken.job import segment_script
from unbroken.job.attempt import Job, SegmentLog, newest_work
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder


def failing(number: int) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of that of a run whose files are seen at once."""
    monkeypatch.chdir(tmp_path)
    return toy_spec(script="no-script.py").write()


def worked(base: Path) -> Job:
    """An attempt whose work has begun, in the folder of a run whose log Snakemake has removed."""
    attempt = Job(toy_run(), KEYS, 1, 1, base)
    attempt.log.unlink(missing_ok=True)
    log = SegmentLog(attempt)
    log.write("worked")
    return log.begin_work()


def test_each_attempt_that_works_has_a_second_name_for_the_log_where_there_are_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "logs" / "demo" / "001.log"

    assert worked(tmp_path).log == log.with_suffix(".1.log")
    second = worked(tmp_path)
    assert SegmentLog(second).begin_work().log == second.log == log.with_suffix(".2.log")
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    assert worked(tmp_path).log == log


def test_what_an_attempt_before_its_work_said_goes_to_the_end_of_the_log_that_people_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = worked(tmp_path).log
    log = toy_job(tmp_path).log
    assert newest_work(log) == first
    log.unlink()
    log.write_text("held by another\n")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", failing(errno.EPERM))
        assert newest_work(log) == log
    assert log.read_text() == "held by another\n"

    assert newest_work(log) == first
    assert log.samefile(first)
    assert log.read_text().endswith(": worked\nheld by another\nheld by another\n")


def test_a_record_that_is_not_to_be_seen_is_waited_for_and_then_named(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert segment_script.do_segment(spec, 2) == 1

    assert f"{RunFolder('demo').record(1)}: not there after 0 s; type: snakemake" in capsys.readouterr().err


def test_a_disk_that_takes_no_record_is_named(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder("demo").root.mkdir(parents=True)
    RunFolder("demo").segments.write_text("a file where the records go")

    assert segment_script.do_segment(spec, 1) == 1

    assert "/segments: " in capsys.readouterr().err


@pytest.mark.process
def test_a_checkpoint_that_was_set_aside_since_its_record_is_not_waited_for(tmp_path: Path) -> None:
    toy(tmp_path, 1, goal=10**6, segment_minutes=0.01)
    places = RunFolder("demo", tmp_path)
    store = Store(places.checkpoints)
    shows = segment_script._shows_checkpoint_of

    assert shows(places.record(1), places)
    hidden = store.root.rename(store.root.with_name("hidden"))
    assert not shows(places.record(1), places)
    hidden.rename(store.root)
    store.quarantine(store.names()[-1], "it is torn")
    assert shows(places.record(1), places)
    places.record(1).write_text("spoilt")
    assert shows(places.record(1), places)


@pytest.mark.process
def test_a_newer_checkpoint_than_that_of_the_record_is_as_good(tmp_path: Path) -> None:
    toy(tmp_path, 1, goal=10**6, segment_minutes=0.01)
    places = RunFolder("demo", tmp_path)
    store = Store(places.checkpoints)
    publish(store, 1000)
    for name in store.names()[:-1]:
        (store.root / name).rename(tmp_path / name)

    assert segment_script._shows_checkpoint_of(places.record(1), places)
