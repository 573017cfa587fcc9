"""Copy SQLite databases among the state files: a program keeps them open for all its life, and commits.

A database is complete at any moment, with the journal next to it.  Without that, or with the journal of another moment,
it may be corrupt [SQLite, How To Corrupt An SQLite Database File, 1.4].  So a copy is one file that needs no journal.
The files next to a database are never state or output, and are moved away when a copy is restored.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from unbroken.system import copying

# The names of journals begin with the name of the database [SQLite, Temporary Files Used By SQLite].
JOURNAL, LOG, INDEX = "-journal", "-wal", "-shm"
_MAGIC = b"SQLite format 3\0"
# So long the clock of files may rest: what is written meanwhile has the same time.
_TICK_SECONDS = 0.03
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"  # [SQLite, Database File Format, 3]


def is_database(path: Path) -> bool:
    """Return True for an SQLite database."""
    return _begin(path, len(_MAGIC)) == _MAGIC


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
    """Return False while a transaction is being written, or if a kill has torn one.

    A journal counts the pages that can be rolled back; none, as long as the database was not touched.  The index of a
    write-ahead log counts its committed frames.  The frame after them has the salts of the log only if the program is
    at it [SQLite, WAL-mode File Format: 1 and 2.1].
    """
    journal = _begin(_next_to(path, JOURNAL), 12)
    if journal.startswith(_JOURNAL_MAGIC) and any(journal[8:]):
        return False
    log, index = _next_to(path, LOG), _begin(_next_to(path, INDEX), 48)
    head = _begin(log, 32)
    if not head or len(index) < 48:  # no log, or one without an index, which no other process can read
        return not head
    salts, size, committed = head[16:24], int.from_bytes(head[8:12]), int.from_bytes(index[16:20], sys.byteorder)
    following = _begin(log, 24, 32 + committed * (24 + size))
    # Of a log that was begun again nothing is committed yet.
    return index[32:40] == salts and following[8:16] != salts


def _begin(path: Path, count: int, at: int = 0) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), count, at)
    except OSError:
        return b""


def _next_to(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def copy_database(path: Path, target: Path) -> bool:
    """Copy what is committed, also after the program was killed; the database is only read, and not locked.

    Return False, without a copy, if it changes meanwhile, or is none; raise OSError if the disk is full.
    """
    before, is_copied = _times(path), False
    await_tick(max((time_ns for _, _, time_ns in before), default=0))
    try:
        for ending in ("", JOURNAL, LOG):
            _next_to(target, ending).unlink(missing_ok=True)
            if not ending or _next_to(path, ending).exists():
                copying.copy_file(_next_to(path, ending), _next_to(target, ending))
        is_copied = before == _times(path) and _is_made_one(target)
    except (sqlite3.Error, FileNotFoundError) as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
    finally:
        for each in [*beside(target.name), *([] if is_copied else [target.name])]:
            target.with_name(each).unlink(missing_ok=True)
    return is_copied


def _is_made_one(path: Path) -> bool:
    """Roll back the journal of a copy, or take over its log; return False if that is impossible."""
    with closing(sqlite3.connect(path)) as book:
        book.execute("PRAGMA synchronous = OFF")  # the store flushes what it publishes
        book.execute("PRAGMA schema_version").fetchone()  # the first reader rolls back
        return bool(book.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)


def await_tick(time_ns: int) -> None:
    """Wait until a write gets another time than this one, of a file."""
    if time_ns / 1e9 > time.time() - _TICK_SECONDS:
        time.sleep(_TICK_SECONDS)


def _times(path: Path) -> list[tuple[int, int, int]]:
    """Return inode, size and time of a database and its journals."""
    found = [each.stat() for ending in ("", JOURNAL, LOG) if (each := _next_to(path, ending)).exists()]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]
