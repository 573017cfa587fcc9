"""Folders of many files: what is asked of the file system, and that each file's own failure is told."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import skip_or_fail

from unbroken.system import flush
from unbroken.system.flush import MANY, flush_tree

pytestmark = pytest.mark.process

FLUSH = (
    "import sys; from pathlib import Path; from unbroken.system import flush; {}; flush.flush_tree(Path(sys.argv[1]))"
)
ANYWHERE_ELSE = "flush._WHOLE_AT_ONCE = set()"
needs_strace = pytest.mark.needs("strace")


def many_files(base: Path) -> Path:
    folder = base / "draft"
    for number in range(MANY):
        path = folder / f"part_{number % 3}" / f"file_{number:03d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    return folder


def below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")} | {str(folder)}


def flushes(folder: Path, before: str = "pass") -> list[tuple[str, str]]:
    """Each call by which a process flushed something, and what."""
    output = folder.parent / "calls"
    command = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-e",
        "trace=fsync,syncfs,sync_file_range",
        "-e",
        "signal=none",
        "-o",
        output,
    ]
    subprocess.run([*command, sys.executable, "-c", FLUSH.format(before), folder], check=True)
    found = re.findall(r"^\d+ +(\w+)\(\d+<([^>]*)>", output.read_text(), re.MULTILINE)
    return [(call, path) for call, path in found]


def is_flushed_whole(folder: Path) -> bool:
    """False where temporary folders are on another file system than ext4 and XFS."""
    return flush._type_of(os.stat(folder).st_dev) in flush._WHOLE_AT_ONCE


@needs_strace
def test_many_files_are_flushed_by_one_call_then_each_is_asked_whether_its_data_arrived(tmp_path: Path) -> None:
    folder = many_files(tmp_path)

    calls = flushes(folder)

    if not is_flushed_whole(tmp_path):
        assert {call for call, _ in calls} == {"fsync"}
        return
    asked = calls[1:-2]
    assert calls[0] == ("syncfs", str(folder))
    assert {call for call, _ in asked} == {"sync_file_range"}
    assert {path for _, path in asked} == below(folder)
    assert calls[-2:] == [("fsync", f"{folder}/part_0/file_000"), ("fsync", str(folder))]


@needs_strace
def test_elsewhere_each_file_is_flushed_by_itself_and_the_folder_last(tmp_path: Path) -> None:
    folder = many_files(tmp_path)

    calls = flushes(folder, ANYWHERE_ELSE)

    assert {call for call, _ in calls} == {"fsync"}
    assert {path for _, path in calls} == below(folder)
    assert calls[-1] == ("fsync", str(folder))


@needs_strace
def test_a_file_on_another_file_system_is_flushed_there(tmp_path: Path) -> None:
    folder = many_files(tmp_path)
    other = Path("/dev/shm") / f"unbroken-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        skip_or_fail("missing: another file system (/dev/shm)")
    other.write_text("elsewhere")
    try:
        (folder / "link").symlink_to(other)

        calls = flushes(folder)
    finally:
        other.unlink()

    assert calls.count(("fsync", str(other))) == 1


def test_an_error_of_one_of_many_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = many_files(tmp_path)
    bad = folder / "part_1" / "file_100"
    really = os.fsync

    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(bad):
            raise OSError(5, "Input/output error")
        really(descriptor)

    monkeypatch.setattr(flush, "_WHOLE_AT_ONCE", set())
    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(OSError, match="Input/output error") as caught:
        flush_tree(folder)

    assert caught.value.filename == str(bad)


# A disk that is smaller than it says, in a mount namespace of its own: with the process all of it is gone.
ON_A_DISK_THAT_LIES = """
import ctypes, os, subprocess, sys
from pathlib import Path
from unbroken.system import flush

base = Path(sys.argv[1])
store, disk = base / "store", base / "disk"
store.mkdir(), disk.mkdir()
run = lambda *command: subprocess.run(command, check=True, capture_output=True)
run("mount", "-t", "tmpfs", "-o", "size=24m", "none", store)
with open(store / "image", "wb") as image:
    image.truncate(200_000_000)
run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", store / "image")
run("mount", "-o", "loop", store / "image", disk)
draft = disk / "draft"
draft.mkdir()
for number in range(flush.MANY + 44):
    (draft / f"file_{number:03d}").write_bytes(os.urandom(131072))
if sys.argv[2] == "told":
    assert subprocess.run(["sync", "-f", disk], capture_output=True).returncode == 1
    descriptor = os.open(disk, os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(descriptor) == 0  # it would be told to nobody else
try:
    flush.flush_tree(draft)
except OSError as error:
    print(Path(error.filename).parent.name, error.strerror)
"""


@pytest.mark.parametrize("who", ["told", "untold"])
def test_data_that_did_not_arrive_is_told_also_when_another_program_was_told_of_it_first(
    tmp_path: Path, who: str
) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "mkfs.ext4", "losetup"))):
        skip_or_fail("missing: root's rights and mkfs.ext4, to make a disk that lies about its size")
    can_mount = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True)
    if can_mount.returncode or not Path("/dev/loop-control").exists():
        skip_or_fail("missing: the right to mount, to make a disk that lies about its size")

    command = ["unshare", "-m", sys.executable, "-c", ON_A_DISK_THAT_LIES, tmp_path, who]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert said.stdout in ("draft No space left on device\n", "draft Input/output error\n"), said.stderr
