"""Small disks of one's own, for tests that fill them."""

import os
import subprocess
from pathlib import Path

from support.needs import skip_or_fail


def mount_small(place: Path, options: str) -> None:
    """Mounts a small file system of its own over an empty folder, `options` as in size=2m."""
    done = as_root("mount", "-t", "tmpfs", "-o", f"{options},mode=777", "tmpfs", str(place))
    if done.returncode != 0:
        skip_or_fail(f"missing: the right to mount a small disk (root, or sudo without a password): {done.stderr}")


def unmount(place: Path) -> None:
    """Takes away all that was mounted there."""
    while place.is_mount():
        assert as_root("umount", "--lazy", str(place)).returncode == 0


def as_root(*command: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command with root's rights, as far as this user has them."""
    prefix = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    try:
        return subprocess.run([*prefix, *command], capture_output=True, text=True)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
