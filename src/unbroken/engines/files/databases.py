"""SQLite databases among the state files: a program keeps them open for all its life, and commits.

A database is complete at any moment, with the journal beside it.  Without that, or with the journal of another moment,
it may be corrupt [SQLite, How To Corrupt An SQLite Database File, 1.4].  So a copy is one file that needs no journal,
and what lies beside a database is never state or output, and is moved away when a copy is put back.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

# The names of journals begin with the name of the database [SQLite, Temporary Files Used By SQLite].
JOURNAL, LOG = "-journal", "-wal"
BESIDE = (JOURNAL, LOG, "-shm")
_MAGIC = b"SQLite format 3\0"
# The program cannot commit while a step is copied; between two it can, and the copy begins again.
_STEP_PAGES, _REST_SECONDS, _GIVE_UP_SECONDS = 1024, 0.01, 60.0


def is_database(path: Path) -> bool:
    """Return True for an SQLite database."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def database_of(name: str) -> str:
    """Return the name of the database beside which a file of this name would lie; empty for any other name."""
    return next((name.removesuffix(each) for each in BESIDE if name.endswith(each)), "")


def is_beside(name: str, is_state: Callable[[str], bool]) -> bool:
    """Return True for what lies beside a database that is state."""
    database = database_of(name)
    return bool(database) and is_state(database)


def beside(name: str) -> list[str]:
    """Return the names of what may lie beside a database."""
    return [f"{name}{each}" for each in BESIDE]


def has_journal(path: Path) -> bool:
    """Return True for a database that is not whole without what lies beside it."""
    return any(path.with_name(each).exists() for each in beside(path.name)) and is_database(path)


def copy_database(path: Path, target: Path, is_same: Callable[[], bool] = lambda: True) -> bool:
    """Copy what is committed, while the program works or after it was killed.

    False, and nothing there, if that cannot be, or if the database is not the same (`is_same`) after it.  SQLite's own
    backup does it [SQLite, Online Backup API].
    """
    give_up = time.monotonic() + _GIVE_UP_SECONDS

    def look(_status: int, remaining: int, _total: int) -> None:
        if remaining and time.monotonic() > give_up:
            raise TimeoutError

    target.unlink(missing_ok=True)
    database = f"file:{quote(str(path))}?mode=rw"
    try:
        with closing(sqlite3.connect(database, uri=True)) as source, closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA synchronous = OFF")  # the store flushes what it publishes
            source.backup(copy, pages=_STEP_PAGES, progress=look, sleep=_REST_SECONDS)
            is_copied = is_same()  # before the last one who closes it moves the log into it
    except (sqlite3.Error, TimeoutError):
        is_copied = False
    if not is_copied:
        target.unlink(missing_ok=True)
    return is_copied
