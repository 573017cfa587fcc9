"""A run whose folder was there and is missing: no job begins it anew on a node that lacks its disk."""

import shutil
from pathlib import Path

import pytest
from support.toyrun import checkpoints, program, run_program, toy_job

from unbroken.errors import StorageError
from unbroken.job.end_note import end_before_work
from unbroken.store import attempts, driver_start
from unbroken.store.driver_start import START
from unbroken.store.history import EndKind, SegmentEnd
from unbroken.store.layout import NOTES
from unbroken.store.select import obstacle

pytestmark = pytest.mark.process


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has begun in this start of snakemake."""
    monkeypatch.setenv(START, "monday")
    run_program(tmp_path, program("one_step"), 1, goal=9)
    return tmp_path


def test_a_job_of_the_same_start_waits_for_the_folder_and_makes_none(started: Path) -> None:
    root = toy_job(started).places.root
    root.rename(started / "aside")

    with pytest.raises(StorageError, match=r"results/demo: not there on .* \(is its disk mounted\?\)") as raised:
        run_program(started, program("one_step"), 2, goal=9)

    assert end_before_work(raised.value).kind is EndKind.UNAVAILABLE
    refused = attempts.before_work(None, 2, SegmentEnd(kind=EndKind.REFUSED))
    assert not attempts.note(toy_job(started).places, refused)
    assert not root.exists()
    root.mkdir()  # Snakemake makes the folder of its output
    assert driver_start.is_missing(toy_job(started).places)
    assert obstacle(toy_job(started).places).startswith(f"{root} is missing on ")
    root.rmdir()

    (started / "aside").rename(root)
    run_program(started, program("one_step"), 2, goal=9)
    assert [each.passport.progress.done for each in checkpoints(toy_job(started))] == [1, 2]


def test_another_start_begins_anew_what_its_user_removed(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(toy_job(started).places.root)
    monkeypatch.setenv(START, "tuesday")
    driver_start.note_if_there(toy_job(started).places)  # as the driver does it

    run_program(started, program("one_step"), 1, goal=9)

    assert [each.passport.progress.done for each in checkpoints(toy_job(started))] == [1]


def test_a_start_that_found_the_folder_expects_it_on_every_node(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START, "tuesday")
    driver_start.note_if_there(toy_job(started).places)
    toy_job(started).places.root.rename(started / "aside")

    assert driver_start.is_missing(toy_job(started).places)


def test_without_a_start_nobody_knows(tmp_path: Path) -> None:
    driver_start.note_begun(toy_job(tmp_path).places)

    assert not driver_start.is_missing(toy_job(tmp_path).places)
    assert not (tmp_path / NOTES).exists()
