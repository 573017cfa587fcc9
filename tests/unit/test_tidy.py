"""Tidying up never ends work, and removes nothing that is not the run's."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.toyrun import toy_job

from unbroken.engines.toy.engine import ToyEngine
from unbroken.job.recovery import Recovery
from unbroken.store import lease
from unbroken.store.checkpoints import Store


@pytest.fixture
def tidy(tmp_path: Path) -> Iterator[Recovery]:
    """What the second attempt at a run sees of the first one."""
    job = toy_job(tmp_path)
    with lease.take(job.places.lease, 1, 0.0):
        pass
    with lease.take(job.places.lease, 1, 0.0) as held:
        found = Recovery(job, ToyEngine(tmp_path), held, Store(job.places.checkpoints))
        found.prepare_folders()
        yield found


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def test_a_link_in_the_place_of_the_work_folder_is_not_followed(
    tidy: Recovery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere/000002").mkdir(parents=True)
    (tmp_path / "elsewhere/000002/theirs").write_text("theirs")
    tidy.job.places.work.rmdir()
    tidy.job.places.work.symlink_to(tmp_path / "elsewhere")

    tidy.remove(tidy.job.places.work / "000002")

    assert (tmp_path / "elsewhere/000002/theirs").read_text() == "theirs"
    (line,) = caplog.messages
    assert line.startswith(f"{tidy.job.places.work / '000002'}: not removed yet (")


def test_a_folder_that_cannot_be_listed_is_left_to_a_later_segment(
    tidy: Recovery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tidy.job.places.work / "000001").mkdir()

    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "iterdir", broken)
        tidy.remove_attempt_folders()
    (line,) = caplog.messages
    assert "Input/output error" in line

    tidy.remove_attempt_folders()

    assert not list(tidy.job.places.work.iterdir())
    assert caplog.messages[1:] == ["removed the unfinished files of a killed attempt: work/000001"]


def test_the_folders_of_this_attempt_and_of_its_successors_stay(tidy: Recovery) -> None:
    for token in range(1, 5):
        (tidy.job.places.work / f"{token:06d}").mkdir()

    tidy.remove_attempt_folders()

    assert sorted(each.name for each in tidy.job.places.work.iterdir()) == ["000002", "000003", "000004"]
