"""Tidying up never ends work, and removes nothing that is not the run's."""

import errno
import os
from pathlib import Path

import pytest

from unbroken.runs.layout import RunFolder
from unbroken.runs.store import Store
from unbroken.segment.tidy import Tidy


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def tidy(tmp_path: Path, told: list[str]) -> Tidy:
    places = RunFolder("demo", tmp_path)
    found = Tidy(places, Store(places.checkpoints), 2, told.append)
    found.make_folders()
    return found


def test_a_link_in_the_place_of_the_work_folder_is_not_followed(tidy: Tidy, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere/000002").mkdir(parents=True)
    (tmp_path / "elsewhere/000002/theirs").write_text("theirs")
    tidy.places.work.rmdir()
    tidy.places.work.symlink_to(tmp_path / "elsewhere")

    tidy.remove_attempt_folder(tidy.places.work / "000002")

    assert (tmp_path / "elsewhere/000002/theirs").read_text() == "theirs"
    (line,) = told
    assert line.startswith(f"{tidy.places.work / '000002'}: not removed yet (")


def test_a_folder_that_cannot_be_listed_is_left_to_a_later_segment(
    tidy: Tidy, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tidy.places.work / "000001").mkdir()

    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "iterdir", broken)
        tidy.remove_attempt_folders()
    (line,) = told
    assert "Input/output error" in line

    tidy.remove_attempt_folders()

    assert not list(tidy.places.work.iterdir())
    assert told[1:] == ["removed the unfinished files of a killed attempt: work/000001"]


def test_the_folders_of_this_attempt_and_of_its_successors_stay(tidy: Tidy) -> None:
    for token in range(1, 5):
        (tidy.places.work / f"{token:06d}").mkdir()

    tidy.remove_attempt_folders()

    assert sorted(each.name for each in tidy.places.work.iterdir()) == ["000002", "000003", "000004"]
