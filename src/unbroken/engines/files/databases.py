"""Copy SQLite databases among the state files: a program keeps them open for all its life, and commits.

A database is complete at any moment, with the journal next to it.  Without that, or with the journal of another moment,
it may be corrupt [SQLite, How To Corrupt An SQLite Database File, 1.4].  So a copy is one file that needs no journal.
The files next to a database are never state or output, and are moved away when a copy is restored.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

# The names of journals begin with the name of the database [SQLite, Temporary Files Used By SQLite].
JOURNAL, LOG, INDEX = "-journal", "-wal", "-shm"
_MAGIC = b"SQLite format 3\0"
# The program cannot commit while a step is copied; between two it can, and the copy begins again.
_STEP_PAGES, _REST_SECONDS, _GIVE_UP_SECONDS = 1024, 0.01, 60.0
# So long it waits for the end of a transaction.
_BUSY_SECONDS = 1.0
_OK, _FULL, _DONE, _NEEDS_ROLLBACK = 0, 13, 101, 776  # [SQLite, Result and Error Codes]


def is_database(path: Path) -> bool:
    """Return True for an SQLite database."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def database_of(name: str) -> str:
    """Return the name of the database to which a journal of this name would belong; "" for any other name."""
    return next((name.removesuffix(each) for each in (JOURNAL, LOG, INDEX) if name.endswith(each)), "")


def is_beside(name: str, is_state: Callable[[str], bool]) -> bool:
    """Return True for a journal or index of a database that is state."""
    database = database_of(name)
    return bool(database) and is_state(database)


def beside(name: str) -> list[str]:
    """Return the names of the files that may belong to a database."""
    return [f"{name}{each}" for each in (JOURNAL, LOG, INDEX)]


def has_journal(path: Path) -> bool:
    """Return True for a database that is not complete without the files next to it."""
    return any(path.with_name(each).exists() for each in beside(path.name)) and is_database(path)


def is_committed(path: Path) -> bool:
    """Return False while a transaction is being written to the write-ahead log, or if a kill has torn one there.

    The index next to the log counts the committed frames.  The frame after them has the salts of the log only
    if the program is at it [SQLite, WAL-mode File Format: 1 and 2.1].
    """
    try:
        with path.with_name(f"{path.name}{LOG}").open("rb", buffering=0) as log:
            head = log.read(32)
            if not head:
                return True
            index = path.with_name(f"{path.name}{INDEX}").read_bytes()[:48]
            salts, size = head[16:24], int.from_bytes(head[8:12])
            committed = int.from_bytes(index[16:20], sys.byteorder)
            log.seek(32 + committed * (24 + size))
            following = log.read(24)
    except FileNotFoundError:  # no log, or one without an index, which no other process can read
        return not path.with_name(f"{path.name}{LOG}").exists()
    # Of a log that was begun again nothing is committed yet.
    return len(index) == 48 and index[32:40] == salts and following[8:16] != salts


def copy_database(path: Path, target: Path, is_same: Callable[[], bool] = lambda: True) -> bool:
    """Copy what is committed, while the program runs or after it was killed; the database stays as it is.

    Return False, without a copy, if that is impossible, or if the database is not the same (`is_same`) after it.
    Raise OSError if the disk is full.  SQLite's own backup makes the copy [SQLite, Online Backup API].
    """
    target.unlink(missing_ok=True)
    is_copied = False
    try:
        is_copied = (_back_up(path, target) or _roll_back_a_copy(path, target)) and is_same()
    except (sqlite3.Error, TimeoutError, FileNotFoundError) as error:
        if getattr(error, "sqlite_errorcode", _OK) == _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
    finally:
        if not is_copied:
            target.unlink(missing_ok=True)
    return is_copied


def _back_up(path: Path, target: Path) -> bool:
    """Copy a database by reading alone; return False if a killed program's transaction is to be rolled back.

    A connection that may write would do so, and the last one that closes a database moves its log into it: both look
    like a commit of the program.
    """
    begun = time.monotonic()

    def look(status: int, _remaining: int, _total: int) -> None:
        most = _GIVE_UP_SECONDS if status == _OK else _BUSY_SECONDS
        if status != _DONE and time.monotonic() > begun + most:
            raise TimeoutError

    place = f"file:{quote(str(path))}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(place, uri=True, timeout=0)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            copy.execute("PRAGMA synchronous = OFF")  # the store flushes what it publishes
            source.backup(copy, pages=_STEP_PAGES, progress=look, sleep=_REST_SECONDS)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", _OK) != _NEEDS_ROLLBACK:
            raise
        return False
    return True


def _roll_back_a_copy(path: Path, target: Path) -> bool:
    """Copy a database with its journal, and roll back there; return False if it was changed meanwhile."""
    journals = [each.with_name(f"{each.name}{JOURNAL}") for each in (path, target)]

    def times() -> list[tuple[int, int, int]]:
        found = [each.stat() for each in (path, journals[0])]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]

    before = times()
    try:
        shutil.copyfile(path, target)
        shutil.copyfile(*journals)
        with closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA schema_version")  # the first reader rolls it back
    finally:
        journals[1].unlink(missing_ok=True)
    return before == times()
