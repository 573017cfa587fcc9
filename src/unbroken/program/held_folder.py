"""Hold a folder of a run open, so that nothing in the place of it is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from unbroken.store.own_folder import OPEN_FOLDER, confirm_own, foreign_folders


class HeldFolder:
    """Hold a folder open: what is done through it is done in there, whatever its path leads to by now.

    ForeignFolderError if the path leads to a link, to no folder, or to another file system than its parent's.
    """

    def __init__(self, path: Path, parent: HeldFolder | None = None) -> None:
        self.path, self._descriptor = path, -1
        name, descriptor = (path, None) if parent is None else (path.name, parent._descriptor)
        with foreign_folders(path):
            self._descriptor = os.open(name, os.O_RDONLY | OPEN_FOLDER, dir_fd=descriptor)
        self.confirm()

    @property
    def inode(self) -> int:
        """Return the number of the folder in its file system; no other one gets it while this is open."""
        return os.fstat(self._descriptor).st_ino

    def confirm(self) -> None:
        """Raise ForeignFolderError if something else has replaced it."""
        confirm_own(self.path, self.inode)

    def names(self) -> list[str]:
        """Return what is in it, in no order."""
        return os.listdir(self._descriptor)

    def is_folder(self, name: str) -> bool:
        """Return True for a folder in it, False for a link to one."""
        return stat.S_ISDIR(self._mode(name))

    def is_link(self, name: str) -> bool:
        """Return True for a link in it."""
        return stat.S_ISLNK(self._mode(name))

    def below(self, name: str) -> HeldFolder:
        """Open a folder in it."""
        return HeldFolder(self.path / name, self)

    def move_out(self, name: str, target: Path) -> None:
        """Rename what is in it, a link as the link that it is; an error names the whole path."""
        try:
            os.rename(name, target, src_dir_fd=self._descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path / name)) from error

    def close(self) -> None:
        """Give the descriptor back; twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _mode(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:  # its owner has just taken it away
            return 0
