"""What lies below a folder, to be compared with what lies there later."""

from __future__ import annotations

from pathlib import Path

from unbroken.system import fs

Snapshot = dict[str, tuple[int, bytes]]


def snapshot(folder: Path) -> Snapshot:
    """Every file below by its inode and content; links are not followed."""
    return {str(name): _of(folder / name) for name in fs.tree_files(folder)}


def _of(path: Path) -> tuple[int, bytes]:
    return path.lstat().st_ino, b"" if path.is_symlink() else path.read_bytes()
