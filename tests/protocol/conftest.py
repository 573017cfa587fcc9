"""Small disks of one's own, for tests that fill them."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[[str], Path]


@pytest.fixture
def small_disk(tmp_path: Path, in_ci: bool) -> Iterator[Mount]:
    """Mounts a file system of its own over results/ in tmp_path; takes mount options, gives the working directory."""
    place = tmp_path / "results"

    def mount(options: str) -> Path:
        place.mkdir(exist_ok=True)
        done = as_root("mount", "-t", "tmpfs", "-o", f"{options},mode=777", "tmpfs", str(place))
        if done.returncode != 0:
            reason = f"missing: the right to mount a small disk (root, or sudo without a password): {done.stderr}"
            pytest.fail(reason, pytrace=False) if in_ci else pytest.skip(reason)
        return tmp_path

    yield mount
    while place.is_mount():
        assert as_root("umount", "--lazy", str(place)).returncode == 0


def as_root(*command: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command with root's rights, as far as this user has them."""
    prefix = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    try:
        return subprocess.run([*prefix, *command], capture_output=True, text=True)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
