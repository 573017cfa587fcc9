"""Data on the fast disk of the node: one copy for all, whole or not there, and never in the way of a training."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.disks import mount_small, unmount

from unbroken.errors import StorageError
from unbroken.training import staging
from unbroken.training.staging import staged

PROGRAM = """
import sys
from unbroken.training.staging import staged
print(staged(sys.argv[1], fast=sys.argv[2]), flush=True)
"""

# Stands still in the middle of a copy.
VICTIM = """
import os, shutil, signal, sys
from unbroken.training import staging

copy, left = shutil.copy2, [int(sys.argv[3])]

def copy_and_stop(*paths):
    copy(*paths)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGSTOP)

shutil.copy2 = copy_and_stop
staging.staged(sys.argv[1], fast=sys.argv[2])
"""


def data_set(folder: Path, files: int = 3) -> Path:
    for number in range(files):
        path = folder / f"part_{number % 7}" / f"{number:05d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"sample {number}".encode() * 10)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hidden(fast: Path) -> list[str]:
    """What lies beside the copies, locks aside."""
    return [path.name for path in (fast / "unbroken-staged").glob(".*") if not path.name.endswith(".lock")]


def start(source: Path, fast: Path, program: str = PROGRAM, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, str(source), str(fast), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    folder = tmp_path / "fast"
    folder.mkdir()
    return folder


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(staging, "say", lines.append)
    return lines


def test_a_folder_is_copied_once_and_anew_when_it_changed(tmp_path: Path, fast: Path, told: list[str]) -> None:
    source = data_set(tmp_path / "data")

    first = staged(source, fast)
    again = staged(source, fast)
    before = content(source)
    (source / "part_0" / "00000.bin").write_bytes(b"other")
    changed = staged(source, fast)

    assert first == again != changed
    assert (content(first), content(changed)) == (before, content(source))  # who reads the old copy goes on reading it
    assert [line.startswith(f"copying {source} to ") for line in told] == [True, True]
    assert "3 files, 240 bytes" in told[0]
    assert hidden(fast) == []


def test_times_and_links_are_as_in_the_source(tmp_path: Path, fast: Path) -> None:
    source, elsewhere = data_set(tmp_path / "data", 1), data_set(tmp_path / "elsewhere", 2)
    (source / "linked").symlink_to(elsewhere)
    (source / "part_0" / "loop").symlink_to(source)
    os.utime(source / "part_0" / "00000.bin", (1e9, 1e9))

    copy = staged(source, fast)

    assert (copy / "part_0" / "00000.bin").stat().st_mtime == 1e9
    assert sorted(content(copy)) == ["linked/part_0/00000.bin", "linked/part_1/00001.bin", "part_0/00000.bin"]


def test_a_single_file_keeps_its_name(tmp_path: Path, fast: Path) -> None:
    source = tmp_path / "digits.npz"
    source.write_bytes(b"12345")

    copy = staged(source, fast)

    assert (copy.name, copy.read_bytes(), copy.is_relative_to(fast)) == ("digits.npz", b"12345", True)


def test_a_copy_from_before_a_crash_of_the_node_is_not_trusted(
    tmp_path: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = data_set(tmp_path / "data")
    before = staged(source, fast)
    monkeypatch.setattr(staging, "boot_id", lambda: "another boot")

    after = staged(source, fast)

    assert (before != after, content(after)) == (True, content(source))


def test_a_copy_that_lost_a_file_to_a_cleaner_is_made_anew(tmp_path: Path, fast: Path) -> None:
    source = data_set(tmp_path / "data")
    copy = staged(source, fast)
    (copy / "part_1" / "00001.bin").unlink()

    again = staged(source, fast)

    assert (again, content(again)) == (copy, content(source))


# --- several processes ---------------------------------------------------------------------------------------------


@pytest.mark.process
def test_processes_of_one_node_share_one_copy(tmp_path: Path, fast: Path) -> None:
    source = data_set(tmp_path / "data", 400)

    said = [process.communicate(timeout=120)[0] for process in [start(source, fast) for _ in range(5)]]

    assert len({text.splitlines()[-1] for text in said}) == 1
    assert sum("unbroken: copying" in text for text in said) == 1
    assert content(Path(said[0].splitlines()[-1])) == content(source)


@pytest.mark.process
def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_a_copy(tmp_path: Path, fast: Path) -> None:
    source = data_set(tmp_path / "data", 3000)
    torn = 0

    for files in (1, 300, 1500):
        victim, waiting = start(source, fast, VICTIM, str(files)), None
        os.waitid(os.P_PID, victim.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if files == 1500:
            waiting = start(source, fast)
            told = waiting.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        torn += victim.returncode == -signal.SIGKILL
    text, _ = waiting.communicate(timeout=120)

    assert torn == 3
    assert told == "unbroken: another process of this node is copying the data; waiting for it\n"
    assert content(Path(text.splitlines()[-1])) == content(source)
    assert hidden(fast) == []


# --- no room, no disk ----------------------------------------------------------------------------------------------


def test_without_a_fast_disk_or_without_room_the_data_are_read_where_they_are(
    tmp_path: Path, fast: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = data_set(tmp_path / "data")
    for name in staging.FAST_FOLDERS:
        monkeypatch.delenv(name, raising=False)

    nowhere = staged(source)
    monkeypatch.setenv("SLURM_TMPDIR", str(fast))
    monkeypatch.setattr(staging, "RESERVE_BYTES", 1 << 60)
    full = staged(source)

    assert (nowhere, full) == (source, source)
    assert told[0] == (
        f"reading {source} where it is: no fast disk is known (UNBROKEN_FAST and SLURM_TMPDIR are not set)"
    )
    assert told[1].startswith(f"reading {source} where it is: no room in {fast} (")
    assert not list(fast.rglob("*.bin"))


@pytest.mark.process
def test_a_disk_that_fills_up_in_the_middle_is_left_as_it_was(tmp_path: Path, told: list[str]) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(3 << 20))
    small = tmp_path / "small"
    small.mkdir()
    mount_small(small, "size=2m")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staging, "RESERVE_BYTES", -(8 << 20))  # so that it is found out by writing
            found = staged(source, small)
        left = list(small.rglob("big"))
    finally:
        unmount(small)

    assert (found, left) == (source, [])
    assert told[-1].startswith(f"reading {source} where it is: no room in {small} (")


# --- archives ------------------------------------------------------------------------------------------------------


def packed(path: Path, names: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in names.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as tar:
        for name, data in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["data.tar", "data.tar.gz", "data.tgz", "data.zip"])
def test_an_archive_is_unpacked_once(tmp_path: Path, fast: Path, told: list[str], name: str) -> None:
    files = {"a/1.bin": b"one", "a/b/2.bin": b"two" * 1000}
    source = packed(tmp_path / name, files)

    folder = staged(source, fast)
    again = staged(source, fast)

    assert (folder, content(folder)) == (again, files)
    assert len([line for line in told if line.startswith("copying")]) == 1


@pytest.mark.parametrize("archive", ["data.tar", "data.zip"])
@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/tmp/unbroken-outside"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, fast: Path, archive: str, name: str) -> None:
    source = packed(tmp_path / archive, {"good": b"1", name: b"evil"})

    with pytest.raises(StorageError, match=r"leads out of the folder that it is unpacked into; nothing was kept$"):
        staged(source, fast)

    assert list(tmp_path.rglob("*outside*")) == []
    assert not Path("/tmp/unbroken-outside").exists()
    assert list(fast.rglob("good")) == []


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path, fast: Path) -> None:
    source = tmp_path / "data.tar"
    with tarfile.open(source, "w") as tar:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, "../../../etc"
        tar.addfile(member)

    with pytest.raises(StorageError, match="cannot be unpacked"):
        staged(source, fast)


@pytest.mark.parametrize("name", ["data.tar", "data.tar.gz", "data.zip"])
def test_a_torn_archive_is_one_line(tmp_path: Path, fast: Path, name: str) -> None:
    source = packed(tmp_path / name, {"1.bin": os.urandom(100_000)})
    os.truncate(source, 50_000)

    with pytest.raises(StorageError, match=rf"{name}: cannot be unpacked \("):
        staged(source, fast)

    assert list(fast.rglob("1.bin")) == []


def test_an_archive_without_room_names_what_to_do(tmp_path: Path, fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = packed(tmp_path / "data.zip", {"1.bin": b"1"})
    monkeypatch.setattr(staging, "RESERVE_BYTES", 1 << 60)

    with pytest.raises(
        StorageError, match=r"an archive cannot be read where it is; name a folder: staged\(..., fast=\)"
    ):
        staged(source, fast)


def test_mistakes_are_named(tmp_path: Path, fast: Path) -> None:
    with pytest.raises(StorageError, match="nothing-here: there is nothing; allowed: a file, a folder or an archive"):
        staged(tmp_path / "nothing-here", fast)
    with pytest.raises(StorageError, match="not-here: no folder; allowed: a folder on the fast disk of this node"):
        staged(data_set(tmp_path / "data"), tmp_path / "not-here")
