"""Tidying up is best effort: what cannot be removed now ends no work, and nothing that is in use is removed."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kept_folder import KeptFolder
from support.making import publish
from support.toyrun import ProgramEngine, checkpoints, final_files, hidden, history, program, run_program, toy, toy_job

from unbroken.engines.base import Task, When
from unbroken.engines.files import stored
from unbroken.errors import SegmentError
from unbroken.exec import stores
from unbroken.job.lifecycle import run_segment
from unbroken.program.contract import HandedOver
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.system import fs
from unbroken.system.clock import utc_text

# As NFS says it of a folder with files that are open, and what else a removal can meet.
MISHAPS = [errno.ENOTEMPTY, errno.EIO, errno.EACCES]


def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, hits: Callable[[str], bool], which: int = 0
) -> None:
    """Makes a call of `os` fail where its path says so."""
    really = getattr(os, name)

    def call(*args: object, **more: object) -> object:
        if hits(str(args[which])):
            raise OSError(number, os.strerror(number), str(args[which]))
        return really(*args, **more)

    monkeypatch.setattr(os, name, call)


@pytest.mark.process
@pytest.mark.parametrize("number", MISHAPS)
@pytest.mark.parametrize("call", ["rename", "rmdir"])
def test_a_checkpoint_that_cannot_be_pruned_ends_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    monkeypatch.setattr(fs, "_REMOVAL_RESTS_SECONDS", ())
    for segment in (1, 2):
        run_program(tmp_path, program("one_step"), segment, goal=100, keep=1)
    trash = "/checkpoints/.trash-" if call == "rename" else ".trash-"
    with monkeypatch.context() as patch:
        failing(patch, call, number, lambda path: trash in path, which=1 if call == "rename" else 0)
        record = run_program(tmp_path, program("one_step"), 3, goal=100, keep=1)
    job = toy_job(tmp_path, 3)
    left = [path for path in job.places.checkpoints.iterdir() if not path.is_symlink()]
    run_program(tmp_path, program("one_step"), 4, goal=100, keep=1)

    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 3)
    assert f"{os.strerror(number)}); a later save tries again" in job.places.log(3).read_text()
    assert len(left) == 2
    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(job)] == [4]
    assert hidden(job.places.checkpoints) == []


@pytest.mark.process
def test_the_checkpoint_that_an_attempt_goes_on_from_stays_while_it_works(tmp_path: Path) -> None:
    """A program may read it piece by piece."""
    run_program(tmp_path, program("one_step"), goal=100, keep=1)
    origin = checkpoints(toy_job(tmp_path))[0].folder
    script = (
        'for n in 2 3 4; do mkdir "$UNBROKEN_SAVE/draft"; echo $n > "$UNBROKEN_SAVE/draft/state"; '
        'echo "{\\"done\\": $n}" > "$UNBROKEN_SAVE/draft/progress.json"; '
        'mv "$UNBROKEN_SAVE/draft" "$UNBROKEN_SAVE/$n.ready"; '
        'while [ -e "$UNBROKEN_SAVE/$n.ready" ]; do sleep 0.02; done; done; '
        'sleep 0.3; cat "$UNBROKEN_RESUME/state" && exit 85'
    )

    record = run_program(tmp_path, ["sh", "-c", script], 2, goal=100, keep=1)

    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 4)
    assert not origin.exists()
    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(tmp_path))] == [4]


def test_a_checkpoint_that_was_put_back_beside_its_archived_parts_is_pruned_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "checkpoints")
    for sequence in (1, 2):
        publish(store, sequence, {"state": "one\n", "parts/piece": f"{sequence}\n"})
    first = store.root / store.names()[0]
    shutil.copytree(first, tmp_path / "backup")
    store.prune(keep=1, milestone_every=0)
    shutil.copytree(tmp_path / "backup", first)

    assert store.prune(keep=1, milestone_every=0) == []

    assert [name[:6] for name in store.names()] == ["000002"]
    assert (store.archive / first.name / "parts" / "piece").read_text() == "1\n"


@pytest.mark.process
def test_final_results_are_there_although_the_old_ones_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs, "_REMOVAL_RESTS_SECONDS", ())
    toy(tmp_path, 1)
    before = final_files(toy_job(tmp_path))
    with monkeypatch.context() as patch:
        failing(patch, "unlink", errno.EBUSY, lambda name: name == "trace.csv")
        toy(tmp_path, 2, goal=25)
    after = final_files(toy_job(tmp_path))
    toy(tmp_path, 3, goal=25)

    assert after != before
    assert final_files(toy_job(tmp_path)) == after
    assert hidden(toy_job(tmp_path).places.root) == []


@pytest.mark.process
@pytest.mark.parametrize("call", ["unlink", "listdir", "scandir"])
def test_leftovers_that_cannot_be_removed_end_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(fs, "_REMOVAL_RESTS_SECONDS", ())
    run_program(tmp_path, program("one_step"), goal=100)
    places = toy_job(tmp_path).places
    (places.checkpoints / fs.unique_name("draft")).mkdir()
    (places.checkpoints / fs.unique_name("latest")).symlink_to("gone")
    (places.work / "000000" / "sub").mkdir(parents=True)
    with monkeypatch.context() as patch:
        failing(
            patch, call, errno.EIO, lambda path: "/work/000000" in path or "/.latest-" in path or "/.trash-" in path
        )
        record = run_program(tmp_path, program("one_step"), 2, goal=100)
    run_program(tmp_path, program("one_step"), 3, goal=100)

    assert record.progress.done == 2
    assert hidden(places.root) == []
    assert list(places.work.iterdir()) == []


class HalfMade(ProgramEngine):
    """Finds something in the folder of a killed attempt that it cannot read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(program("one_step"))
        self.error = error

    def states(self, task: Task, when: When) -> list[HandedOver]:
        if when is When.KILLED:
            raise self.error
        return super().states(task, when)


ERRORS = [
    OSError(errno.EIO, os.strerror(errno.EIO), "x"), ValueError("no number"), KeyError("offsets"), IndexError("part"),
    TypeError("None"), AttributeError("step"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), SegmentError("torn"),
]  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_killed_attempt_left_half_made_the_run_goes_on_without_it(tmp_path: Path, error: Exception) -> None:
    run_program(tmp_path, program("one_step"), goal=100)
    job = toy_job(tmp_path, 2, goal=100)
    # A claim that nobody released, and its folder, as a kill leaves them.
    (job.places.lease / "000002.json").write_text(
        next(job.places.lease.glob("*.json")).read_text().replace('"token": 1', '"token": 2')
    )
    attempt_folder = job.places.work / "000002"
    (attempt_folder / "save").mkdir(parents=True)
    origin = checkpoints(job)[-1]
    (attempt_folder / "attempt.json").write_text(
        f'{{"origin": "{origin.name}", "identity": "{origin.passport.identity}", "parts": {{}}, '
        f'"save_inode": {(attempt_folder / "save").stat().st_ino}}}'
    )

    record = run_segment(job, HalfMade(error))

    assert record.progress.done == 2
    assert job.places.log(2).read_text().count("nothing of the killed attempt 2 could be saved: ") == 1
    assert [attempt.kind for attempt in history(job)][-1] is EndKind.PAUSED


def test_of_old_states_those_set_aside_last_stay_though_their_node_is_a_day_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = RunFolder("count", tmp_path, store=tmp_path / "store")

    def set_aside(content: str, days: int) -> Path:
        places.checkpoints.mkdir(parents=True)
        (places.checkpoints / content).touch()
        monkeypatch.setattr(stores, "utc_now", lambda: utc_text(time.time() + days * 86400))
        return stores.begin_from_zero(places)

    set_aside("first", 0)
    second = set_aside("second", 0)
    third = set_aside("third", -1)

    assert {path.parent.parent for path in (places.root / "old").glob("*/checkpoints/*")} == {second, third}
    assert (third / "checkpoints/third").exists()


def test_of_replaced_outputs_those_moved_last_stay_though_their_node_is_a_day_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, days in enumerate((0, 0, -1, -2), 1):
        monkeypatch.setattr(stored, "utc_now", lambda days=days: utc_text(time.time() + days * 86400))
        kept = KeptFolder(tmp_path / "run")
        kept.token = number - 1
        kept.take()
        kept.write("table", f"{number}")
        kept.leave()

    assert sorted(path.read_text() for path in tmp_path.rglob("replaced/*/table")) == ["2", "3"]
