"""Whatever a program writes, and however it saves, is there after kills and time limits under `unbroken exec`."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing

import pytest
from support.file_programs import (
    APPENDED,
    BEST,
    CHANGED_INSIDE,
    DATABASE,
    FOLDERS,
    KILLS,
    NEWEST,
    NUMBERED,
    OPEN_LOG,
    RENAMED,
    TOLD_AFTER_STATE,
    kill_all,
    kill_program,
    killed_at,
    made,
    tear,
    wait_for,
    wait_for_kept,
    wait_for_moment,
    whole,
)

pytestmark = pytest.mark.process

kills = pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)


# --- how a program saves ---


@kills
def test_a_state_that_is_renamed_ten_times_a_second_is_resumed_from_where_it_is(called, tmp_path_factory, kill):
    more = made(called, RENAMED, goal=14)
    state = called.folder / "state/s.json"
    options = ("--outputs", "result.txt", "--keep", "state/s.json")
    process = called.start(*options, **more)
    called.wait_until(lambda: state.exists() and json.loads(state.read_text())["n"] >= 8)
    kill(called, process)
    reached = json.loads(state.read_text())["n"]

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, reached]), done.stderr
    assert called.replaced() == []
    same = whole(tmp_path_factory.mktemp("whole") / "run", RENAMED, goal=14)
    assert (called.folder / "result.txt").read_text() == (same.folder / "result.txt").read_text()


@pytest.mark.parametrize("keep", [("state.chk",), ("state.chk", "log.csv", "traj.bin")], ids=["state", "all three"])
def test_what_a_program_appends_to_is_that_of_one_run_after_kills_and_a_time_limit(called, tmp_path_factory, keep):
    more = made(called, APPENDED, goal=85)
    options = ("--outputs", "log.csv", "traj.bin", "--done-if", "done", "--save-minutes", "0", "--keep", *keep)
    for number, kill in ((33, kill_all), (54, kill_program)):
        killed_at(called, number, kill, options, more)
    called.rest_at(78)
    assert called.call(*options, "--minutes", "0.08", **more).returncode == 85
    called.go_on()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 30, 50, 70]), done.stderr
    same = whole(tmp_path_factory.mktemp("whole") / "run", APPENDED, goal=85)
    for name in ("log.csv", "traj.bin"):
        assert (called.folder / name).read_bytes() == (same.folder / name).read_bytes(), name


@kills
@pytest.mark.parametrize("keep", ["out/**", "out/state"])
def test_a_log_that_stays_open_beside_the_state_holds_up_no_checkpoint(called, keep, kill):
    more = made(called, OPEN_LOG, goal=25)
    options = ("--outputs", "result.txt", "--save-minutes", "0", "--keep", keep)
    killed_at(called, 18, kill, options, more)

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 15]), done.stderr
    assert "state" not in called.replaced()


@kills
def test_an_output_that_is_written_again_and_again_is_no_doubt(called, tmp_path_factory, kill):
    more = made(called, BEST, goal=43)
    options = ("--outputs", "best.txt", "--save-minutes", "0", "--keep", "state")
    for number in (15, 30):
        called.rest_at(number)
        called.rest_at(number + 3)
        process = called.start(*options, **more)
        wait_for_kept(called, "state", f"{number} ")
        (called.folder / f"rest-at-{number}").unlink()
        wait_for(called, f"rests-at-{number + 3}")
        kill(called, process)
        called.go_on()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 15, 30]), done.stderr
    same = whole(tmp_path_factory.mktemp("whole") / "run", BEST, goal=43)
    assert (called.folder / "best.txt").read_text() == (same.folder / "best.txt").read_text()
    assert "doubt" not in done.stderr


def test_an_output_that_somebody_wrote_over_is_a_doubt(called):
    more = made(called, OPEN_LOG, goal=25)
    options = ("--outputs", "out/events.log", "--save-minutes", "0", "--keep", "out/state")
    killed_at(called, 18, kill_program, options, more)
    (called.folder / "out/events.log").write_text("something else, and more of it than there was before\n" * 9)

    done = called.call(*options, **more)

    assert done.returncode == 0
    assert "doubt: out/events.log does not begin with what it held at the checkpoint" in done.stderr


def test_a_state_of_a_killed_process_whose_log_is_unknown_is_left_for_the_checkpoint_before(called, tmp_path_factory):
    more = made(called, TOLD_AFTER_STATE, goal=30)
    options = ("--outputs", "log.txt", "--save-minutes", "0", "--keep", "state")
    called.rest_at(9)
    process = called.start(*options, **more)
    wait_for_kept(called, "state", "9")
    process.send_signal(signal.SIGSTOP)
    (called.folder / "rest-at-16").touch()
    (called.folder / "rest-at-9").unlink()
    wait_for(called, "rests-at-16")
    kill_all(called, process)
    called.go_on()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 9]), done.stderr
    same = whole(tmp_path_factory.mktemp("whole") / "run", TOLD_AFTER_STATE, goal=30)
    assert (called.folder / "log.txt").read_text() == (same.folder / "log.txt").read_text()
    assert "doubt" not in done.stderr


def test_a_file_that_is_changed_inside_is_not_cut_and_is_a_doubt(called, tmp_path_factory):
    more = made(called, CHANGED_INSIDE, goal=30)
    options = ("--outputs", "out.h5", "--save-minutes", "0", "--keep", "state")
    killed_at(called, 18, kill_program, options, more)

    done = called.call(*options, **more)

    same = whole(tmp_path_factory.mktemp("whole") / "run", CHANGED_INSIDE, goal=30)
    assert done.returncode == 0
    assert (called.folder / "out.h5").read_bytes() == (same.folder / "out.h5").read_bytes()
    assert "doubt: out.h5 is changed inside while it grows" in done.stderr


# --- databases ---


def wait_for_saved_steps(called, number: int) -> None:
    """Until a checkpoint has so many steps."""

    def is_saved() -> bool:
        return any(len(steps_in(path)) == number for path in called.store().glob("checkpoints/0*/kept/study.db"))

    called.wait_until(is_saved, 60)


def steps_in(path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(path)) as book:
        assert book.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return book.execute("SELECT n, x FROM steps ORDER BY n").fetchall()


@kills
@pytest.mark.parametrize("keep", ["study.db", "study.db*"])
@pytest.mark.parametrize("mode", ["delete", "persist", "wal"])
def test_a_database_that_stays_open_is_saved_and_resumed_from(called, tmp_path_factory, mode, keep, kill):
    more = made(called, DATABASE, mode, goal=40)
    options = ("--outputs", "log.txt", "--save-minutes", "0", "--keep", keep)
    for number, what in ((16, "rest"), (31, "tear")):
        (called.folder / f"{what}-at-{number}").touch()
        process = called.start(*options, **more)
        wait_for(called, f"{what}s-at-{number}")
        if what == "rest":
            wait_for_moment(called, "study.db-wal" if mode == "wal" else "study.db")
        kill(called, process)
        (called.folder / f"{what}-at-{number}").unlink()

    done = called.call(*options, **more)

    starts = called.starts()
    assert done.returncode == 0, done.stderr
    assert starts[0] == 0 and starts[1:] == sorted(starts[1:])
    assert starts[1] == 16 and starts[2] in range(16, 31)
    same = whole(tmp_path_factory.mktemp("whole") / "run", DATABASE, mode, goal=40)
    assert steps_in(called.folder / "study.db") == steps_in(same.folder / "study.db")
    assert (called.folder / "log.txt").read_text() == (same.folder / "log.txt").read_text()
    assert "doubt" not in done.stderr


def test_without_a_checkpoint_a_journal_is_moved_away_with_its_database_and_nothing_of_the_user(called):
    more = made(called, DATABASE, "delete", goal=12)
    (called.folder / "notes-wal").write_text("of the user")
    (called.folder / "tear-at-5").touch()
    process = called.start("--save-minutes", "99", "--keep", "study.db", **more)
    wait_for(called, "tears-at-5")
    journal = called.folder / "study.db-journal"
    called.wait_until(journal.exists)
    kill_all(called, process)
    (called.folder / "tear-at-5").unlink()

    done = called.call("--save-minutes", "99", "--keep", "study.db", **more)

    assert done.returncode == 0, done.stderr
    assert len(steps_in(called.folder / "study.db")) == 12
    assert not journal.exists()
    assert called.starts() in ([0, 4], [0, 0])  # of a hot journal nobody knows which lines belong to it
    assert called.starts() == [0, 4] or {"study.db", "study.db-journal"} <= set(called.replaced())
    assert (called.folder / "notes-wal").read_text() == "of the user"


def test_a_journal_is_moved_away_with_the_database_that_makes_room_for_an_older_one(called):
    more = made(called, DATABASE, "delete", goal=30)
    options = ("--save-minutes", "0", "--keep", "study.db")
    called.rest_at(9)
    process = called.start(*options, **more)
    wait_for(called, "rests-at-9")
    wait_for_saved_steps(called, 9)
    kill_program(called, process)
    called.go_on()
    (called.folder / "study.db-journal").write_bytes(b"of another database")

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 9]), done.stderr
    assert {"study.db", "study.db-journal"} <= set(called.replaced())
    assert len(steps_in(called.folder / "study.db")) == 30


@kills
def test_a_time_folder_whose_files_were_torn_leaves_no_empty_folder(called, kill):
    more = made(called, FOLDERS, goal=8)
    (called.folder / "0").mkdir()
    (called.folder / "0/U").write_text("value 0 end")
    options = ("--outputs", "result.txt", "--save-minutes", "0", "--keep", "[0-9]*/**")
    kill(called, tear(called, 3, "3/U", "3 end", options, more))
    (called.folder / "tear-at-4").unlink()

    done = called.call(*options, **more)

    assert (done.returncode, "FATAL" in done.stderr) == (0, False), done.stderr
    assert called.starts() == [0, 3]
    below = [base for base, folders, names in os.walk(called.folder) if not (folders or names)]
    assert [base for base in below if ".unbroken" not in base] == []
    assert (called.folder / "8/U").read_text() == "value 8 end"


@kills
def test_files_that_are_put_back_have_their_times_so_that_the_newest_is_found(called, kill):
    more = made(called, NEWEST, goal=12)
    options = ("--outputs", "result.txt", "--save-minutes", "0", "--keep", "*.chk")
    kill(called, tear(called, 4, "a.chk", "4", options, more))
    (called.folder / "tear-at-5").unlink()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 4]), done.stderr


@kills
@pytest.mark.parametrize("how", ["tear", "part"])
def test_of_numbered_files_the_highest_that_is_complete_is_the_newest_state(called, tmp_path_factory, kill, how):
    more = made(called, NUMBERED, goal=9)
    keep = ("restart.{progress}.json", "more.{progress}.txt")
    options = ("--outputs", "result.txt", "--save-minutes", "99", "--keep", *keep)
    (called.folder / f"{how}-at-5").touch()
    process = called.start(*options, **more)
    wait_for(called, f"{how}s-at-5")
    wait_for_moment(called, "more.4.txt")
    kill(called, process)
    (called.folder / f"{how}-at-5").unlink()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 4]), done.stderr
    same = whole(tmp_path_factory.mktemp("whole") / "run", NUMBERED, goal=9)
    assert (called.folder / "result.txt").read_text() == (same.folder / "result.txt").read_text()
    assert called.replaced() == ["restart.5.json"]
    assert {f"restart.{n}.json" for n in range(1, 10)} <= set(os.listdir(called.folder))
    kept = sorted(path.name for path in called.store().glob("checkpoints/000001*/kept/*"))
    assert kept == ["more.4.txt", "restart.4.json"]


def test_files_that_somebody_removed_come_back_with_their_times(called):
    more = made(called, NEWEST, goal=12)
    options = ("--outputs", "result.txt", "--save-minutes", "0", "--keep", "*.chk")
    kill_all(called, tear(called, 4, "a.chk", "4", options, more))
    (called.folder / "tear-at-5").unlink()
    for name in ("a.chk", "b.chk"):
        (called.folder / name).unlink()

    done = called.call(*options, **more)

    assert done.returncode == 0, done.stderr
    assert called.starts() == [0, 4]


def test_a_renamed_state_of_which_exec_has_noted_nothing_yet_is_resumed_from(called):
    more = made(called, RENAMED, goal=20)
    state = called.folder / "state/s.json"
    options = ("--outputs", "result.txt", "--keep", "state/s.json")

    def reached() -> int:
        return json.loads(state.read_text())["n"] if state.exists() else 0

    process = called.start(*options, **more)
    called.wait_until(lambda: reached() >= 6)
    process.send_signal(signal.SIGSTOP)
    called.wait_until(lambda: reached() >= 11)
    kill_all(called, process)
    last = reached()

    assert called.call(*options, **more).returncode == 0
    assert (called.starts(), called.replaced()) == ([0, last], [])


def test_a_file_that_is_open_all_the_time_is_named_once(called):
    program = (sys.executable, "-c", "import time; f = open('state', 'w'); f.write('x'); f.flush(); time.sleep(600)")
    process = called.start("--keep", "state", "--save-minutes", "0", program=program)
    log = called.store() / "logs" / "001.1.log"

    called.wait_until(lambda: log.exists() and "open for writing at each look: state" in log.read_text())

    process.kill()
    process.wait()
    assert log.read_text().count("open for writing") == 1
