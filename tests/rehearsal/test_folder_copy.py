"""The copy of the user's folder: what a rehearsed program writes never reaches the original."""

import os
from pathlib import Path

import pytest
from support.disks import mount_small, unmount

from unbroken.errors import ConfigError, StorageError
from unbroken.rehearsal import stage
from unbroken.rehearsal.stage import copy_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with outputs, a link out of it, data, and what is ours."""
    folder = tmp_path / "mine"
    for name in (
        "old/run1/traj.xtc",
        "data/x.bin",
        "results/demo/history.jsonl",
        "old/results/kept.txt",
        ".venv/bin/x",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "out.txt").write_text("mine")
    (folder / "scratch").symlink_to(tmp_path / "scratch")
    (folder / "out.txt").symlink_to("scratch/out.txt")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    return folder


def spoil(root: Path) -> None:
    """Writes to each file that can be reached, through links too."""
    for base, _, names in os.walk(root, followlinks=True):
        for name in names:
            Path(base, name).write_text("the rehearsal's")


def test_a_program_that_writes_to_all_it_finds_changes_nothing_of_the_users(folder: Path, tmp_path: Path) -> None:
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    copy_folder(folder, tmp_path / "copy")
    (tmp_path / "copy" / ".venv").unlink()  # the one link that is there without being named
    assert (tmp_path / "copy" / "scratch" / "out.txt").read_text() == "mine"

    spoil(tmp_path / "copy")

    assert {path: path.read_text() for path in before} == before
    assert (tmp_path / "copy" / "old/results/kept.txt").exists()
    assert not (tmp_path / "copy" / "results").exists()


def test_what_is_named_as_only_read_is_a_link(folder: Path, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path / "copy", {"data", "old/run1"})

    assert (tmp_path / "copy" / "data").resolve() == folder / "data"
    assert (tmp_path / "copy" / "old" / "run1").resolve() == folder / "old" / "run1"


def test_too_much_to_copy_is_refused_with_what_to_type(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_BYTES", 1_000_000)
    (folder / "data" / "x.bin").write_bytes(bytes(2_000_000))

    with pytest.raises(ConfigError) as raised:
        copy_folder(folder, tmp_path / "large")
    copy_folder(folder, tmp_path / "copy", {"data"})

    assert str(raised.value).endswith("name what the program only reads, such as --read-only data")


@pytest.mark.process
def test_a_disk_that_is_too_small_for_the_copy_is_told_with_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.bin").write_bytes(bytes(400_000))
    small = tmp_path / "small"
    small.mkdir()
    mount_small(small, "size=128k")
    try:
        with pytest.raises(StorageError) as told:
            copy_folder(tmp_path / "mine", small / "copy")
    finally:
        unmount(small)

    said = f"{small / 'copy' / 'data.bin'}: No space left on device; 400,000 bytes needed, 0 free, 400,000 missing; "
    assert str(told.value).startswith(said)
