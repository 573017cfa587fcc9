"""Unpack an archive whose content is not trusted; standard library alone."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from unbroken.errors import StorageError

# zlib.error and lzma.LZMAError, without importing what a Python may lack.
_DECODERS = {"error", "LZMAError", "BadGzipFile"}
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ZIP = ".zip"


def is_archive(path: Path) -> bool:
    """Return True for a file whose name is that of an archive."""
    return path.name.lower().endswith((*_TAR, ZIP)) and path.is_file()


def unpacked_bytes(path: Path) -> int:
    """Return the least size of the unpacked files, in bytes; a compressed tar file does not tell before it is read."""
    if path.name.lower().endswith(ZIP):
        with _reading(path), zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    return path.stat().st_size


def unpack(path: Path, target: Path, seen: Callable[[int], None]) -> None:
    """Unpack into the folder `target`; `seen` receives the bytes of each file.

    Raise StorageError if a name leads out of the folder or the archive is damaged.  Other things than files, folders
    and links inside are refused as well (tarfile's filter "data").
    """
    if path.name.lower().endswith(ZIP):
        with _reading(path), zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                _refuse_outside(path, entry.filename)
                archive.extract(entry, target)
                seen(entry.file_size)
        return
    if not hasattr(tarfile, "data_filter"):
        raise StorageError(f"{path}: this Python unpacks tar files without looking; allowed: Python 3.11.4 or later")
    with _reading(path), tarfile.open(path) as tar:
        for member in tar:
            _refuse_outside(path, member.name)
            tar.extract(member, target, filter="data")
            seen(member.size)


def _refuse_outside(path: Path, name: str) -> None:
    """Raise StorageError for a name that leads out of the folder; zipfile would silently change it."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or os.path.isabs(name):
        raise StorageError(f"{path}: {name!r} in it leads out of the folder that it is unpacked into; nothing was kept")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what the two modules raise over a bad archive into one line; a full disk stays what it is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (tarfile.TarError, zipfile.BadZipFile, EOFError)) or type(error).__name__ in _DECODERS:
            raise StorageError(f"{path}: cannot be unpacked ({error})") from error
        raise
