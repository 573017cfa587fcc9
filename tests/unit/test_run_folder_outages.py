"""What stands in a run's folder is spoilt, gone, or cannot be read now: said in one line, and nothing is guessed."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.toyrun import toy

from unbroken.errors import OutageError, StorageError
from unbroken.job import background, submissions
from unbroken.job.submissions import UNANSWERED_SECONDS
from unbroken.store import lease
from unbroken.store.attempts import attempt_at_work
from unbroken.store.checkpoints import Store
from unbroken.store.claim import claim_path
from unbroken.store.layout import RunFolder
from unbroken.store.select import obstacle
from unbroken.system import disk


def failing(number: int) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "checkpoints")


@pytest.fixture
def places(tmp_path: Path) -> RunFolder:
    return RunFolder("demo", tmp_path)


# --- the lease ---


@pytest.mark.parametrize("instead", [None, "a file"])
def test_a_holder_whose_folder_was_moved_away_writes_nothing_more(places: RunFolder, instead: str | None) -> None:
    with lease.take(places.lease, 1, 0.0) as held:
        places.lease.rename(places.lease.with_name("moved"))
        if instead:
            places.lease.write_text(instead)
        with pytest.raises(StorageError, match=r"/lease: gone; somebody moved, removed or linked the run's folder"):
            held.confirm()
        assert not held.is_lost


def test_a_holder_that_the_disk_does_not_answer_is_not_lost(places: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease.take(places.lease, 1, 0.0) as held:
        with monkeypatch.context() as patch:
            patch.setattr(lease.os, "listdir", failing(errno.EIO))
            with pytest.raises(OutageError, match="Input/output error; wait until that is over, then start again"):
                held.confirm()
        held.confirm()
        assert not held.is_lost


def test_where_the_lease_does_not_say_who_works_nobody_is_shown_at_work(places: RunFolder) -> None:
    path = claim_path(places.lease, 1)
    path.parent.mkdir(parents=True)
    path.write_text("spoilt")

    assert attempt_at_work(places, []) is None


# --- checkpoints and records ---


@pytest.mark.process
def test_a_record_that_is_newer_than_the_next_one_is_made_as_old(tmp_path: Path) -> None:
    """Snakemake takes a file whose input is newer for undone."""
    toy(tmp_path, 1, goal=10**6, segment_minutes=0.01)
    first, second = (RunFolder("demo", tmp_path).record(number) for number in (1, 2))
    ahead = time.time() + 3600
    os.utime(first, (ahead, ahead))

    toy(tmp_path, 2, goal=10**6, segment_minutes=0.01)

    assert first.stat().st_mtime_ns == second.stat().st_mtime_ns


# --- around them ---


def test_what_stands_in_the_way_is_said_by_the_disk_s_own_words(
    places: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.root.mkdir(parents=True)
    monkeypatch.setattr(disk, "free_bytes", failing(errno.ESTALE))

    assert obstacle(places) == f"{places.root}: {os.strerror(errno.ESTALE)}"


@pytest.mark.process
def test_a_command_beside_the_work_that_cannot_be_started_harms_nobody(tmp_path: Path) -> None:
    assert background.start(["/no/such/program"], tmp_path, tmp_path / "log") is None


def test_a_submission_that_cannot_be_read_is_taken_for_one_that_nobody_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert submissions.take("demo", None)
    found = submissions.newest("demo")
    assert found is not None
    found.path.write_text("spoilt")

    again = submissions.newest("demo")

    assert again is not None and (again.job_id, again.age_seconds) == ("", UNANSWERED_SECONDS)
