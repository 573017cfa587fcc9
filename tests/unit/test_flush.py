"""Folders of many files: each is flushed, and its own failure is told."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import skip_or_fail

from unbroken.system.fs import MANY, flush_tree

pytestmark = pytest.mark.process

FLUSH = "import sys; from pathlib import Path; from unbroken.system import fs; fs.flush_tree(Path(sys.argv[1]))"


def many_files(base: Path) -> Path:
    folder = base / "draft"
    for number in range(MANY):
        path = folder / f"part_{number % 3}" / f"file_{number:03d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    return folder


@pytest.mark.needs("strace")
def test_each_file_is_flushed_and_the_folder_last(tmp_path: Path) -> None:
    folder, output = many_files(tmp_path), tmp_path / "calls"
    strace = ["strace", "-f", "-qq", "-y", "-e", "trace=fsync,syncfs", "-e", "signal=none", "-o", output]

    subprocess.run([*strace, sys.executable, "-c", FLUSH, folder], check=True)

    found = re.findall(r"^\d+ +(\w+)\(\d+<([^>]*)>", output.read_text(), re.MULTILINE)
    assert {call for call, _ in found} == {"fsync"}
    assert {path for _, path in found} == {str(path) for path in folder.rglob("*")} | {str(folder)}
    assert found[-1] == ("fsync", str(folder))


def test_an_error_of_one_of_many_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = many_files(tmp_path)
    bad = folder / "part_1" / "file_100"
    really = os.fsync

    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(bad):
            raise OSError(5, "Input/output error")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(OSError, match="Input/output error") as caught:
        flush_tree(folder)

    assert caught.value.filename == str(bad)


# A disk that is smaller than it says, in a mount namespace of its own: with the process all of it is gone.
ON_A_DISK_THAT_LIES = """
import ctypes, os, subprocess, sys
from pathlib import Path
from unbroken.system import fs

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
for number in range(fs.MANY + 44):
    (draft / f"file_{number:03d}").write_bytes(os.urandom(131072))
if sys.argv[2] == "told":
    assert subprocess.run(["sync", "-f", disk], capture_output=True).returncode == 1
    descriptor = os.open(disk, os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(descriptor) == 0  # it would be told to nobody else
try:
    fs.flush_tree(draft)
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
