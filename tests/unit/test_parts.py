"""Parts: pieces of a result that outlive the checkpoint they came with, and the ancestry that puts them in order."""

import errno
import os
from pathlib import Path

import pytest
from support.making import publish
from support.toyrun import flip_byte, rewrite_passport

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import verified_parts
from unbroken.store.checkpoints import Store
from unbroken.store.select import ancestors
from unbroken.system import copying, fs


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "run" / "checkpoints")


def chain(store: Store, length: int) -> None:
    for number in range(1, length + 1):
        publish(store, number, {"state": f"{number}\n", f"parts/piece_{number}": f"piece {number}\n"})


def test_pruning_keeps_passport_and_parts_and_nothing_else(store: Store) -> None:
    chain(store, 3)
    before = {path.name: (path / "manifest.json").read_bytes() for path in store.root.glob("0*")}

    assert store.prune(keep=1, milestone_every=0) == []

    assert store.archived() == sorted(before)[:2]
    for number, name in enumerate(store.archived(), 1):
        folder = store.archive / name
        assert fs.tree_files(folder) == [Path("manifest.json"), Path(f"parts/piece_{number}")]
        assert (folder / "manifest.json").read_bytes() == before[name]
        assert (folder / "parts" / f"piece_{number}").read_text() == f"piece {number}\n"


def test_a_checkpoint_without_parts_leaves_nothing_behind(store: Store) -> None:
    for number in (1, 2):
        publish(store, number)

    store.prune(keep=1, milestone_every=0)

    assert not store.archive.exists()


def test_parts_are_kept_of_one_prune_after_another_and_a_refusal_names_the_folder(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(store, 4)
    assert store.prune(keep=3, milestone_every=0) == []
    assert store.prune(keep=2, milestone_every=0) == []
    assert len(store.archived()) == 2
    name = store.names()[0]

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rename", refuse)

    assert store.prune(keep=1, milestone_every=0) == [f"{store.archive / name}: {os.strerror(errno.EACCES)}"]


def test_a_prune_that_was_killed_is_finished_by_the_next_attempt(store: Store) -> None:
    chain(store, 2)
    name = store.names()[0]
    store.archive.mkdir()
    (store.root / name).rename(store.archive / name)

    # Their order is that of the file system: each kind more than once.
    for number in range(4):
        (store.archive / name / f"folder{number}" / "deep").mkdir(parents=True)
        (store.archive / name / f"link{number}").symlink_to(store.root)
        (store.archive / name / f"file{number}").touch()

    store.remove_leftovers()

    assert sorted(os.listdir(store.archive / name)) == ["manifest.json", "parts"]
    assert fs.tree_files(store.archive / name) == [Path("manifest.json"), Path("parts/piece_1")]
    assert len(store.names()) == 1  # where the links led


def test_the_ancestry_gives_the_parts_in_order_wherever_they_are(store: Store) -> None:
    chain(store, 4)
    store.prune(keep=2, milestone_every=0)

    line = ancestors(store, store.readable()[-1])

    pieces = [path for each in line for path in verified_parts(each)]
    assert [path.name for path in pieces] == [f"piece_{number}" for number in range(1, 5)]
    assert [path.is_relative_to(store.archive) for path in pieces] == [True, True, False, False]


def test_a_changed_piece_is_named(store: Store) -> None:
    chain(store, 2)
    store.prune(keep=1, milestone_every=0)
    line = ancestors(store, store.readable()[-1])
    flip_byte(line[0].folder / "parts" / "piece_1")

    with pytest.raises(CheckpointError, match=r"parts/piece_1: the content changed since it was published"):
        verified_parts(line[0])


def test_an_ancestor_that_is_gone_is_named(store: Store) -> None:
    chain(store, 2)
    store.prune(keep=1, milestone_every=0)
    gone = store.archive / store.archived()[0]
    fs.remove_tree(gone)

    with pytest.raises(
        CheckpointError, match=rf"{gone.name}: gone, and with it the part of the result .* from a backup"
    ):
        ancestors(store, store.readable()[-1])


def test_an_ancestor_that_is_not_the_one_is_refused(store: Store) -> None:
    chain(store, 2)
    store.prune(keep=1, milestone_every=0)
    name = store.archived()[0]
    rewrite_passport(store.archive / name, note="another")

    with pytest.raises(CheckpointError, match=rf"{name}: not the checkpoint that 000002_\S+ was made from"):
        ancestors(store, store.readable()[-1])


@pytest.mark.parametrize("number", [None, errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_bytes_are_copied_by_the_kernel_or_by_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(number, "not here")

    if number is not None:
        monkeypatch.setattr(os, "copy_file_range", cannot)
    data = os.urandom(3 * 1024 * 1024)
    (tmp_path / "old").write_bytes(data)
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("wb") as new:
        done = [copying.copy_range(old.fileno(), new.fileno(), 2_000_000)]
        while done[-1]:
            done.append(copying.copy_range(old.fileno(), new.fileno(), 2_000_000))

    assert sum(done) == len(data)
    assert (tmp_path / "new").read_bytes() == data


def test_a_full_disk_is_no_reason_to_copy_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "copy_file_range", full)
    (tmp_path / "old").write_bytes(b"x")

    with (
        (tmp_path / "old").open("rb") as old,
        (tmp_path / "new").open("wb") as new,
        pytest.raises(OSError, match="full"),
    ):
        copying.copy_range(old.fileno(), new.fileno(), 1)
