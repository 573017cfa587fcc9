"""SQLite databases among the state files: what is committed is copied, and nothing of a transaction that is not."""

import errno
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.disks import mount_small, unmount

from unbroken.engines.files.databases import copy_database, has_journal, is_beside, is_committed
from unbroken.engines.files.observed import ObservedFiles
from unbroken.engines.files.states import are_copied, linked, state_stamp_of, states_in
from unbroken.program.contract import AttemptFolder

MODES = ["delete", "persist", "truncate", "wal"]
ROWS = 500
# One row is committed, and the rows of a transaction are being written.
IN_TRANSACTION = """
import os, sqlite3
book = sqlite3.connect("book.db", isolation_level=None)
book.execute("PRAGMA journal_mode = {mode}")
book.execute("PRAGMA cache_size = 10")
book.execute("CREATE TABLE rows (number INTEGER, filling TEXT)")
book.execute("INSERT INTO rows VALUES (1, 'x')")
book.execute("BEGIN")
for number in range(500):
    book.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * 500))
"""


@pytest.fixture
def book(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "book.db", isolation_level=None, timeout=0)) as made:
        made.execute("PRAGMA cache_size = 10")  # pages: a transaction of more of them is written before its end
        made.execute("CREATE TABLE rows (number INTEGER, filling TEXT)")
        yield made


def fill(book: sqlite3.Connection, count: int = ROWS) -> None:
    for number in range(count):
        book.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * 500))


def rows_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as book:
        assert book.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (count,) = book.execute("SELECT count(*) FROM rows").fetchone()
        return int(count)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_committed_is_copied_while_the_program_has_the_database_open(tmp_path, book, mode):
    book.execute(f"PRAGMA journal_mode = {mode}")
    path = tmp_path / "book.db"
    for count in (1, 2, 3):
        fill(book, 1)

        assert is_committed(path)
        assert copy_database(path, tmp_path / "copy.db")
        assert rows_in(tmp_path / "copy.db") == count
        assert not has_journal(tmp_path / "copy.db")


@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_copied_of_a_transaction_that_is_being_written(tmp_path, book, mode):
    book.execute(f"PRAGMA journal_mode = {mode}")
    path = tmp_path / "book.db"
    book.execute("BEGIN")
    fill(book)

    assert has_journal(path)
    stamp = state_stamp_of(path)
    assert not are_copied(tmp_path, {"book.db": stamp}, {"book.db": tmp_path / "copy.db"})
    assert not (tmp_path / "copy.db").exists()
    book.execute("COMMIT")
    assert copy_database(path, tmp_path / "copy.db")
    assert rows_in(tmp_path / "copy.db") == ROWS


@pytest.mark.process
def test_a_program_that_left_without_closing_its_database_has_all_in_it_that_was_committed(tmp_path):
    program = IN_TRANSACTION.format(mode="wal") + 'book.execute("ROLLBACK")\nos._exit(0)\n'
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "book.db-wal").stat().st_size > 0

    linked(states_in(tmp_path, ["book.db"])[0], tmp_path / "draft")

    assert rows_in(tmp_path / "draft" / "book.db") == 1


@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_a_database_of_a_program_that_was_killed_stays_as_it_is_when_it_is_copied(tmp_path, mode):
    """What our copy changed in it would look like a commit of the program."""
    program = IN_TRANSACTION.format(mode=mode) + "os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path)
    path = tmp_path / "book.db"
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith("-shm")}
    stamp = state_stamp_of(path)

    assert copy_database(path, tmp_path / "copy.db")

    assert state_stamp_of(path) == stamp
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert has_journal(path)
    assert rows_in(tmp_path / "copy.db") == 1


@pytest.mark.process
def test_a_full_disk_is_told_and_no_torn_copy_is_left(tmp_path, book):
    book.execute("PRAGMA journal_mode = persist")
    book.execute("BEGIN")
    fill(book)
    book.execute("COMMIT")
    (tmp_path / "small").mkdir()
    mount_small(tmp_path / "small", "size=100k")
    try:
        with pytest.raises(OSError, match="No space left on device") as told:
            copy_database(tmp_path / "book.db", tmp_path / "small" / "copy.db")
        assert (told.value.errno, told.value.filename2) == (errno.ENOSPC, str(tmp_path / "small" / "copy.db"))
        assert not (tmp_path / "small" / "copy.db").exists()
    finally:
        unmount(tmp_path / "small")


def test_a_state_file_whose_name_is_like_that_of_a_journal_is_a_state_file(tmp_path):
    for name in ("run", "run-journal"):
        (tmp_path / name).write_text("SQLite, but no database")

    assert states_in(tmp_path, ["run*"])[0].files == ("run", "run-journal")
    assert not has_journal(tmp_path / "run")
    assert not copy_database(tmp_path / "run", tmp_path / "copy")
    assert not copy_database(tmp_path / "nothing", tmp_path / "copy")


def test_a_log_that_is_begun_again_is_followed(tmp_path, book):
    book.execute("PRAGMA journal_mode = wal")
    for way in ("restart", "truncate", "passive"):
        fill(book, 100)
        book.execute(f"PRAGMA wal_checkpoint({way})")

        assert is_committed(tmp_path / "book.db")

        fill(book, 1)
        assert is_committed(tmp_path / "book.db")


@pytest.mark.parametrize(
    ("name", "is_so"),
    [("a.db-wal", True), ("a.db-journal", True), ("a.db-shm", True), ("a.db", False), ("b-wal", False)],
)
def test_what_lies_beside_a_database_that_is_state(name, is_so):
    assert is_beside(name, lambda each: each == "a.db") is is_so


@pytest.mark.process
@pytest.mark.parametrize(("outputs", "found"), [({}, ({}, "")), ({"log.csv": Path("log.csv")}, (None, "book.db"))])
def test_the_time_of_a_database_matters_only_where_an_output_grows_beside_it(tmp_path, book, outputs, found):
    """Between two of its events a study is known to be complete, and not when: a program that is killed then."""
    book.execute("BEGIN")
    fill(book)
    observed = ObservedFiles(
        tmp_path,
        AttemptFolder(tmp_path / "attempt"),
        is_state=lambda name: name == "book.db",
        is_measured=lambda name: name == "log.csv",
    )

    assert observed.lengths_at({"book.db": state_stamp_of(tmp_path / "book.db")}, lambda: outputs) == found
