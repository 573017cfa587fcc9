import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.errors import OutageError, StorageError
from unbroken.system import disk, fs


def fail_with(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_failed_replacement_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"3 bytes needed, [0-9,]+ free"):
        fs.write_atomic(path, "new")

    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("record", "old")]


def test_a_write_that_takes_only_a_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:3]))

    fs.write_new(tmp_path / "new", "a long text, piece by piece")

    assert (tmp_path / "new").read_text() == "a long text, piece by piece"


def test_only_one_can_create_a_file_exclusively(tmp_path: Path) -> None:
    answers = [fs.create_exclusive(tmp_path / "claim", text) for text in ("first", "second")]

    assert answers == [True, False]
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("claim", "first")]


def test_a_link_that_was_made_although_the_server_said_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def answer_lost(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "the answer to the first request was lost", str(target))

    monkeypatch.setattr(os, "link", answer_lost)

    assert fs.create_exclusive(tmp_path / "claim", "mine")


def test_an_exclusive_file_on_a_full_disk_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", fail_with(errno.ENOSPC))

    with pytest.raises(StorageError):
        fs.create_exclusive(tmp_path / "claim", "mine")

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_the_path_and_the_bytes_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda path: 1000)

    with pytest.raises(StorageError) as caught, fs.storage_errors(tmp_path, 5000):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert str(caught.value) == (
        f"{tmp_path}: No space left on device; 5,000 bytes needed, 1,000 free, 4,000 missing; "
        "earlier checkpoints are untouched; free room, then start again"
    )


def test_a_used_up_quota_is_not_called_missing_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda path: 1_000_000)

    with pytest.raises(StorageError, match="0 missing: a quota, or the number of files, is used up"):  # noqa: SIM117
        with fs.storage_errors(tmp_path, 5000):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EIO, OutageError, "; wait until that is over, then start again"),
        (errno.ESTALE, OutageError, "; wait until that is over, then start again"),
        (errno.ENOENT, StorageError, ""),
        (errno.EISDIR, StorageError, ""),
    ],
)
def test_only_what_may_pass_is_called_an_outage(
    tmp_path: Path, number: int, kind: type[StorageError], words: str
) -> None:
    with pytest.raises(StorageError) as caught, fs.os_errors(tmp_path):
        raise OSError(number, os.strerror(number))

    assert type(caught.value) is kind
    assert str(caught.value) == f"{tmp_path}: {os.strerror(number)}; earlier checkpoints are untouched{words}"


def test_what_is_not_the_disks_fault_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), fs.storage_errors(tmp_path):
        tmp_path.read_text()


def test_removing_a_folder_hides_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "000001_x"
    folder.mkdir()
    monkeypatch.setattr(fs, "_remove", lambda path: None)

    fs.remove_tree(folder)

    assert [item.name[:7] for item in tmp_path.iterdir()] == [".trash-"]


LIVES_THERE = """
import itertools, os
open("ready", "w").close()
for number in itertools.count():
    try:
        os.makedirs(f"{number % 50}", exist_ok=True)
        open(f"{number % 50}/file", "w").close()
    except OSError:  # removed below it
        pass
"""


@pytest.mark.process
def test_a_program_that_still_writes_into_a_folder_does_not_keep_it_in_sight(tmp_path: Path) -> None:
    folder = tmp_path / "000001"
    folder.mkdir()
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", LIVES_THERE], cwd=folder)
    until((folder / "ready").exists)

    fs.remove_tree(folder)  # whatever comes of it, nothing is raised

    assert not folder.exists()
    writer.kill()
    writer.wait()
    assert [fs.remove_tree(path) for path in tmp_path.iterdir()] in ([], [""])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def refilled(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A folder's last moment is somebody's first: so often a new file appears before the folder itself is removed."""

    def set_up(times: int) -> None:
        left, remove = iter(range(times)), fs._remove

        def removed(folder: Path) -> None:
            if next(left, None) is not None:
                os.rmdir(folder)  # fails as the last step of removing does: it has been filled again
            remove(folder)

        monkeypatch.setattr(fs, "_remove", removed)

    return set_up


def test_what_is_written_while_a_folder_is_removed_is_removed_too(
    tmp_path: Path, refilled: Callable[[int], None]
) -> None:
    folder = tmp_path / "000001"
    folder.mkdir()
    (folder / "file").touch()
    refilled(3)

    assert fs.remove_tree(folder) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_never_gets_empty_stays_hidden_and_is_told(
    tmp_path: Path, refilled: Callable[[int], None]
) -> None:
    folder = tmp_path / "000001"
    folder.mkdir()
    (folder / "file").touch()
    refilled(1000)

    why = fs.remove_tree(folder)

    (hidden,) = tmp_path.iterdir()
    assert hidden.name.startswith(".trash-")
    assert why == f"{hidden}: Directory not empty"


def test_a_folder_that_somebody_else_removes_meanwhile_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, remove = tmp_path / "000001", fs._remove
    folder.mkdir()

    def removed(path: Path) -> None:
        remove(path)
        remove(path)

    monkeypatch.setattr(fs, "_remove", removed)

    assert fs.remove_tree(folder) == ""


def test_hidden_files_of_the_user_are_no_rubbish(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    (tmp_path / ".nfs0000000012345678").touch()
    (tmp_path / fs.unique_name("record")).touch()

    removed = fs.remove_drafts(tmp_path)

    assert len(removed) == 1
    assert sorted(item.name for item in tmp_path.iterdir()) == [".gitignore", ".nfs0000000012345678"]


def test_a_fresh_draft_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / fs.unique_name("claim")).touch()

    assert fs.remove_drafts(tmp_path, silent_seconds=60) == []


def test_links_to_folders_are_listed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").touch()
    (tmp_path / "round").symlink_to(tmp_path)

    assert fs.tree_files(tmp_path) == [Path("data/a"), Path("round")]


def test_a_link_is_turned_in_one_step(tmp_path: Path) -> None:
    link = tmp_path / "latest"
    fs.point_link(link, "one")

    fs.point_link(link, "two")

    assert [(item.name, os.readlink(item)) for item in tmp_path.iterdir()] == [("latest", "two")]


@pytest.mark.parametrize(("free", "is_quota"), [(0, False), (4096, True)])
def test_a_disk_without_a_free_byte_is_not_called_a_quota(tmp_path, monkeypatch, free, is_quota):
    monkeypatch.setattr(disk, "free_bytes", lambda _: free)

    with pytest.raises(StorageError) as error, fs.storage_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "state"))

    assert (f"{free:,} free" in str(error.value), "a quota" in str(error.value)) == (True, is_quota)


def test_a_file_system_that_counts_no_blocks_is_not_called_full() -> None:
    """As FUSE without statfs(2) and a tmpfs without a limit; everybody has one such file system."""
    proc = Path("/proc")
    assert os.statvfs(proc).f_blocks == 0

    with pytest.raises(StorageError) as error, fs.storage_errors(proc):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/proc/state")

    assert (disk.first_full([proc]), disk.full_words(proc, 10**15)) == ("", "")
    assert str(error.value) == (
        "/proc/state: No space left on device; earlier checkpoints are untouched; free room, then start again"
    )
