"""What is known of a state file when it is complete: real files, and the kernel's own events."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.engines.files import batch, moments, writers
from unbroken.engines.files.databases import copy_database
from unbroken.engines.files.moments import Moment, MomentJournal, read_moments
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.states import stamp_of, state_stamp_of
from unbroken.engines.files.writers import ProgramLife
from unbroken.errors import StorageError
from unbroken.system.file_events import FileEvents, is_nobodys


class Watched:
    """A folder in which names that begin with `state` are states."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Moment] = []
        self.observer = FileObserver(
            folder, lambda name: Path(name).name.startswith("state"), on_moment=self.found.append
        )

    def start(self) -> None:
        self.observer.start([path.name for path in self.folder.iterdir()])

    def moment(self, name: str = "state") -> Moment | None:
        self.observer.settle()
        stamp = stamp_of(self.folder / name)
        return None if stamp is None else self.observer.moment_of({name: stamp})

    def sleep_through(self) -> "Asleep":
        return Asleep(self.observer)


class Asleep:
    """For as long, the observer reads no events: as if the machine were busy."""

    def __init__(self, watched: FileObserver) -> None:
        self._observer = watched
        self._goes_on, self._sleeps = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        gather = self._observer._gather

        def late(first, events):
            self._sleeps.set()
            self._goes_on.wait()
            self._observer._gather = gather
            return gather([*first, *events.next(0)], events)

        self._observer._gather = late
        (self._observer._root / "wakes").touch()
        self._sleeps.wait()

    def __exit__(self, *_: object) -> None:
        self._goes_on.set()


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path)
    yield made
    made.observer.close()


def append(path: Path, count: int) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b"x" * count)


def save(folder: Path, name: str = "state", text: str = "saved\n") -> None:
    (folder / name).write_text(text)


def save_renamed(folder: Path, name: str = "state") -> None:
    (folder / "new").write_text("saved\n")
    os.replace(folder / "new", folder / name)


# --- lengths ---


@pytest.mark.parametrize("way", [save, save_renamed])
def test_what_was_written_before_a_save_belongs_to_it(watched, tmp_path, way):
    watched.start()
    with watched.sleep_through():
        append(tmp_path / "table", 100)
        way(tmp_path)

    found = watched.moment()

    assert (found.blurred, found.lengths["table"]) == ("", 100)


@pytest.mark.parametrize("way", [save, save_renamed])
def test_what_is_written_after_a_save_does_not(watched, tmp_path, way):
    append(tmp_path / "table", 100)
    watched.start()
    watched.observer.settle()
    with watched.sleep_through():
        way(tmp_path)
        append(tmp_path / "table", 50)

    found = watched.moment()

    # It was written on one side alone, but its length was not read in between: nothing is guessed.
    assert found.blurred == "table" or found.lengths["table"] == 100


@pytest.mark.parametrize("way", [save, save_renamed])
def test_a_file_that_is_written_on_both_sides_of_a_save_is_blurred(watched, tmp_path, way):
    watched.start()
    with watched.sleep_through():
        append(tmp_path / "table", 100)
        way(tmp_path)
        append(tmp_path / "table", 50)

    assert watched.moment().blurred == "table"


def test_a_blurred_save_does_not_blur_the_next_one(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        append(tmp_path / "table", 100)
        save(tmp_path)
        append(tmp_path / "table", 50)
    watched.observer.settle()
    save(tmp_path)

    found = watched.moment()

    assert (found.blurred, found.lengths["table"]) == ("", 150)


# Says in each state how long its table is; writes rows right before and right after.
SAVER = """
import os, time
length = 0
with open("table", "ab", buffering=0) as table:
    for number in range(3000):
        for _ in range(3):
            length += table.write(b"row\\n" * (1 + number % 7))
        with open("new", "w") as file:
            file.write(f"{number} {length}\\n")
        os.replace("new", f"state-{number % 5}")
        if number % 3:
            length += table.write(b"late\\n")
        time.sleep(0.0005 * (number % 4))
"""


@pytest.mark.process
def test_no_length_is_wrong_however_fast_a_program_saves(tmp_path):
    """Each moment is blurred, or has the length that the state itself says."""
    watched, said = Watched(tmp_path), {}

    texts: dict[tuple[int, int, int], str] = {}

    def read(moment: Moment) -> None:
        if moment.is_late_doubt:  # the write of a process that was kept waiting in it was reported late
            said[texts.get(moment.stamp, "")] = moment
            return
        with (tmp_path / moment.name).open() as file:
            text, found = file.read(), os.fstat(file.fileno())
            if (found.st_ino, found.st_size, found.st_mtime_ns) == moment.stamp:
                said[text], texts[moment.stamp] = moment, text

    watched.observer._on_moment = read
    watched.start()
    subprocess.run([sys.executable, "-I", "-S", "-c", SAVER], cwd=tmp_path, check=True)
    watched.observer.close()

    exact = {text: moment for text, moment in said.items() if not moment.blurred}
    wrong = {
        text: moment.lengths["table"]
        for text, moment in exact.items()
        if moment.lengths["table"] != int(text.split()[1])
    }
    print(len(said), "read,", len(exact), "exact")
    assert wrong == {}
    assert len(exact) > 30


# --- which states are complete ---


def test_a_state_that_is_opened_again_after_its_close_has_no_moment(watched, tmp_path):
    watched.start()
    save(tmp_path)
    assert watched.moment() is not None

    with (tmp_path / "state").open("r+") as file:
        file.write("again")
        file.flush()
        is_known = watched.moment() is not None
        is_open = watched.observer.is_open("state")

    assert (is_known, is_open) == (False, True)
    assert watched.moment() is not None


def test_a_state_that_is_gone_has_no_moment(watched, tmp_path):
    watched.start()
    save(tmp_path)
    watched.observer.settle()

    (tmp_path / "state").unlink()

    watched.observer.settle()
    assert watched.observer.moments == {}


def test_a_state_whose_folder_is_new_is_found_although_its_writing_was_not_seen(watched, tmp_path):
    """The folder is watched only when everything in it is there already."""
    watched.start()
    with watched.sleep_through():
        (tmp_path / "100").mkdir()
        save(tmp_path / "100", "state.U")
        append(tmp_path / "table", 40)

    found = watched.moment("100/state.U")

    assert found is not None
    assert found.blurred == "table"


def test_a_state_in_a_new_folder_that_is_still_being_written_has_no_moment(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        (tmp_path / "100").mkdir()
        file = (tmp_path / "100" / "state.U").open("w")
        file.write("half")
        file.flush()

    assert watched.moment("100/state.U") is None

    file.close()
    assert watched.moment("100/state.U") is not None


def test_a_state_that_is_made_by_a_link_is_complete(watched, tmp_path):
    watched.start()
    (tmp_path / "new").write_text("saved\n")
    os.link(tmp_path / "new", tmp_path / "state")

    assert watched.moment() is not None


def test_states_that_come_with_a_renamed_folder_are_complete_with_the_lengths_of_then(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        append(tmp_path / "table", 70)
        (tmp_path / "tmp").mkdir()
        save(tmp_path / "tmp", "state.U")
        (tmp_path / "tmp").rename(tmp_path / "200")

    found = watched.moment("200/state.U")

    assert (found.blurred, found.lengths["table"]) == ("", 70)
    assert watched.observer.is_renamed("200/state.U")


def test_the_outputs_of_a_folder_that_is_moved_have_their_new_names_alone(watched, tmp_path):
    watched.start()
    (tmp_path / "old").mkdir()
    append(tmp_path / "old" / "table", 30)
    watched.observer.settle()
    (tmp_path / "old").rename(tmp_path / "new")
    append(tmp_path / "new" / "table", 3)
    watched.observer.settle()
    save(tmp_path)

    lengths = watched.moment().lengths

    assert (lengths.get("old/table"), lengths["new/table"]) == (None, 33)


def test_the_output_that_is_renamed_or_removed_is_not_listed(watched, tmp_path):
    watched.start()
    append(tmp_path / "a", 1)
    append(tmp_path / "b", 2)
    os.replace(tmp_path / "a", tmp_path / "c")
    (tmp_path / "b").unlink()
    watched.observer.settle()
    save(tmp_path)

    assert watched.moment().lengths == {"c": 1}


def test_a_state_whose_writing_and_closing_are_told_apart_is_no_output_of_its_own(watched, tmp_path):
    watched.start()
    append(tmp_path / "c", 1)
    with (tmp_path / "state").open("w") as file:
        for _ in range(3):  # its length is read with the next events
            file.write("x")
            file.flush()
            watched.observer.settle()
            append(tmp_path / "c", 1)
            watched.observer.settle()

    assert watched.moment().lengths == {"c": 4}


# --- what is written again ---


@pytest.mark.parametrize("way", ["in place", "renamed"])
def test_an_output_that_is_written_again_and_again_is_known(watched, tmp_path, way):
    watched.start()
    for _ in range(4):
        (tmp_path / "out.tmp").write_text("12\n")
        if way == "renamed":
            os.replace(tmp_path / "out.tmp", tmp_path / "out")
        else:
            (tmp_path / "out").write_text("12\n")
        watched.observer.settle()

    assert watched.observer.is_rewritten("out")


def test_an_output_that_is_opened_for_each_row_is_not_taken_for_one(watched, tmp_path):
    watched.start()
    for _ in range(200):
        append(tmp_path / "table", 3)
        if os.urandom(1)[0] < 30:
            watched.observer.settle()

    watched.observer.settle()
    assert not watched.observer.is_rewritten("table")


def test_a_file_that_is_open_is_known_before_anything_is_written(watched, tmp_path):
    watched.start()
    with (tmp_path / "table").open("w"):
        watched.observer.settle()
        is_open = watched.observer.is_open("table")
        save(tmp_path)
        opened = watched.moment().opened

    watched.observer.settle()
    assert (is_open, opened) == (True, {"table"})
    assert not watched.observer.is_open("table")


# --- what goes wrong ---


@pytest.mark.process
def test_after_an_overflow_nothing_is_known_that_was_not_seen(watched, tmp_path):
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    watched.start()
    save(tmp_path)
    watched.observer.settle()
    with watched.sleep_through():
        append(tmp_path / "table", 10)
        for number in range(most // 4 + 10):  # created, written, closed, removed: no two alike in a row
            append(tmp_path / f"t{number % 2}", 1)
            (tmp_path / f"t{number % 2}").unlink()
        (tmp_path / "late").mkdir()
        save(tmp_path)
    is_seen = until(lambda: watched.observer.overflows)
    first = watched.moment()

    save(tmp_path)
    save(tmp_path / "late")

    assert (is_seen, first) == (1, None)
    assert watched.moment().lengths["table"] == 10
    assert watched.moment("late/state") is not None  # the folder was made while events were lost


def test_without_a_watch_left_it_says_so_and_knows_nothing(watched, tmp_path, monkeypatch):
    watched.start()
    save(tmp_path)
    watched.observer.settle()

    def full(self, name):
        raise StorageError("no watch left")

    monkeypatch.setattr(FileEvents, "_watch", full)
    (tmp_path / "folder").mkdir()
    deadline = time.monotonic() + 5
    while not watched.observer.is_blind and time.monotonic() < deadline:
        time.sleep(0.01)

    assert watched.observer.why_blind == "no watch left"
    assert watched.moment() is None


@pytest.mark.process
def test_ten_thousand_states_at_once_take_no_minute(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        for number in range(5000):
            (tmp_path / f"state.{number}").touch()
    began = time.monotonic()

    watched.observer.settle(60)

    assert time.monotonic() - began < 20
    assert len(watched.observer.moments) == 5000
    assert len({id(moment.lengths) for moment in watched.observer.moments.values()}) < 5


def test_whether_somebody_writes_is_known_of_every_way_to_open(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")

    assert is_nobodys(path)
    with path.open():
        assert is_nobodys(path)
    for mode in ("a", "r+", "w"):
        with path.open(mode):
            assert not is_nobodys(path)
    assert not is_nobodys(tmp_path)
    assert not is_nobodys(tmp_path / "none")


# --- the journal ---


@pytest.fixture
def journal(tmp_path):
    made = MomentJournal(tmp_path / "moments.jsonl", lambda line: told.append(line))
    told: list[str] = []
    made.told = told
    made.begin({"table": 5})
    return made


def moment(name: str, is_renamed: bool = False, **lengths: int) -> Moment:
    return Moment(name, (1, 2, 3), lengths, time.monotonic(), is_renamed=is_renamed)


def test_every_file_of_a_save_is_noted_however_fast_they_come(journal, tmp_path):
    for name in ("coordinates", "velocities", "box"):
        journal.note(moment(name, table=9))

    found = read_moments(tmp_path / "moments.jsonl")

    assert {name: dict(each.lengths) for name, each in found.items()} == {
        name: {"table": 9} for name in ("coordinates", "velocities", "box")
    }


def test_the_last_of_many_fast_saves_is_noted(journal, tmp_path):
    for length in range(50):
        journal.note(moment("state", table=length))

    assert read_moments(tmp_path / "moments.jsonl")["state"].lengths == {"table": 49}


def test_a_torn_last_line_costs_that_line_alone(journal, tmp_path):
    journal.note(moment("a", is_renamed=True, table=7))
    journal.note(moment("b", table=8))
    path = tmp_path / "moments.jsonl"
    path.write_bytes(path.read_bytes()[:-7])

    found = read_moments(path)

    assert list(found) == ["a"]
    assert found["a"].is_renamed


def test_a_journal_that_is_written_again_keeps_the_last_moments(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(moments, "MOST_BYTES", 2000)
    journal._limit = 2000
    journal.note(moment("old", is_renamed=True, table=6, log=1))
    for number in range(100):
        journal.note(moment("new", table=number))

    found = read_moments(tmp_path / "moments.jsonl")

    assert (tmp_path / "moments.jsonl").stat().st_size < 4000
    assert (found["old"].lengths, found["old"].is_renamed) == ({"table": 6, "log": 1}, True)
    assert found["new"].lengths == {"table": 99}


def test_a_full_disk_ends_no_observing_and_is_told_once(watched, tmp_path, journal):
    path = tmp_path / "moments.jsonl"
    path.unlink()
    os.symlink("/dev/full", path)
    for name in ("a", "b", "c"):
        journal.note(moment(name, table=9))

    assert len(journal.told) == 1
    assert "No space left on device" in journal.told[0] and str(path) in journal.told[0]
    assert sorted(read_moments(path)) == ["a", "b", "c"]


def test_without_a_journal_nothing_is_known(tmp_path):
    assert read_moments(tmp_path / "none.jsonl") == {}


# --- databases ---


def test_whoever_only_reads_a_database_makes_no_commit_of_it(watched, tmp_path):
    """A reader opens the write-ahead log for writing too, and closes it: then the outputs are longer."""
    with closing(sqlite3.connect(tmp_path / "state", isolation_level=None)) as book:
        book.execute("PRAGMA journal_mode = wal")
        book.execute("CREATE TABLE steps (number INTEGER)")
        watched.start()
        log = tmp_path / "log"
        log.write_text("one\n")
        book.execute("INSERT INTO steps VALUES (1)")
        watched.observer.settle()
        time.sleep(0.05)  # ticks of the clock of files
        log.write_text("one\ntwo\n")
        assert copy_database(tmp_path / "state", tmp_path.with_suffix(".copy"))
        watched.observer.settle()
        moment = watched.observer.moment_of({"state": state_stamp_of(tmp_path / "state")})

    assert moment is not None
    assert (moment.blurred, moment.lengths["log"]) == ("", 4)


def test_a_look_at_the_program_does_not_end_the_wait_for_a_quiet_moment(tmp_path):
    """Only after some milliseconds without reports a log that was written in the same tick is as long as it was."""
    stop = threading.Event()
    with FileEvents(tmp_path) as events:

        def look() -> None:
            while not stop.wait(0.0005):
                events.wake()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            found, is_quiet = batch.listen(events, time.monotonic() + 10)
        finally:
            stop.set()
            looking.join()

    assert (found, is_quiet) == ([], True)


# --- a program that is killed closes its files as it dies ---

TORN = """
import os, sys, time
def save(text, pause):
    with open("state", "w") as file:
        file.write(text[:5]); file.flush(); time.sleep(pause); file.write(text[5:])
save("first state", 0)
time.sleep(0.3)
open("ready", "w").close()
save("second state", 60)
"""


STARTER = """
import subprocess, sys, time
open("first", "w").write("1")
time.sleep(0.3)
subprocess.call([sys.executable, "-c", sys.argv[1]])
time.sleep(60)
"""
TORN_FIRST = """
import os, time
time.sleep(1.05)
file = open("state", "w")
file.write("first"); file.flush()
time.sleep(0.05)
open("pid", "w").write(str(os.getpid()) + ".")
time.sleep(60)
"""


@pytest.mark.process
def test_a_state_that_the_death_of_its_program_closed_is_not_complete(tmp_path):
    mark = f"UNBROKEN_SAVE={tmp_path}"
    found: list[Moment] = []
    made = FileObserver(tmp_path, lambda name: name == "state", on_moment=found.append, life=ProgramLife(mark))
    made.start()
    program = subprocess.Popen([sys.executable, "-c", TORN], cwd=tmp_path, env={"UNBROKEN_SAVE": str(tmp_path)})
    until((tmp_path / "ready").exists)
    until(lambda: (tmp_path / "state").stat().st_size == 5)
    first = len(found)

    program.kill()
    program.wait()
    made.close()

    assert (first, len(found)) == (1, 1)
    assert made.moments == {}


@pytest.mark.process
def test_a_first_state_that_the_death_of_a_program_below_a_script_closed_is_not_complete(tmp_path):
    """The script lives on, and it worked alone when its processes were last looked for."""
    life = ProgramLife(f"UNBROKEN_SAVE={tmp_path}")
    made = FileObserver(tmp_path, lambda name: name in ("state", "first"), on_rest=life.look, life=life)
    made.start()
    script = subprocess.Popen(
        [sys.executable, "-c", STARTER, TORN_FIRST], cwd=tmp_path, env={"UNBROKEN_SAVE": str(tmp_path)}
    )
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("."))
        until(lambda: "first" in made.moments)
        os.kill(int((tmp_path / "pid").read_text().rstrip(".")), signal.SIGKILL)
        time.sleep(0.5)
    finally:
        script.kill()
        script.wait()
    made.close()

    assert set(made.moments) == {"first"}


@pytest.mark.process
def test_a_script_that_starts_many_short_programs_is_known_by_those_that_are_there(tmp_path):
    life = ProgramLife(f"UNBROKEN_SAVE={tmp_path}")
    script = subprocess.Popen(["sh", "-c", "while :; do sleep 0.02; done"], env={"UNBROKEN_SAVE": str(tmp_path)})
    try:
        until(life.is_alive)
        for _ in range(60):
            life.look()
            time.sleep(0.02)
        known = len(life._working)
    finally:
        script.kill()
        script.wait()

    assert 1 <= known <= 3


@contextmanager
def one_of_two_ends(folder: Path, *before: str) -> Iterator[ProgramLife]:
    """Of two old processes of a program one was killed, after the words `before` in a shell; the other works on."""
    words = ["sh", "-c", f"{' '.join(before)} exec sleep 60"]
    ranks = [subprocess.Popen(words, env={"UNBROKEN_SAVE": str(folder)}, cwd=folder) for _ in range(2)]
    life = ProgramLife(f"UNBROKEN_SAVE={folder}")
    try:
        assert life.is_alive()
        time.sleep(writers.LONG_SECONDS)
        assert not life.doubt_seconds(5, is_first=True)
        life.look()
        ranks[0].kill()
        ranks[0].wait()
        assert life.is_alive()
        yield life
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert not life.is_alive()


@pytest.mark.process
def test_the_end_of_an_old_process_may_have_closed_what_was_read_until_the_queue_was_empty(tmp_path):
    """A rank that died has closed its part of a state; the others find out later."""
    with one_of_two_ends(tmp_path) as life:
        at_once = life.doubt_seconds(5, is_first=True)
        life.all_is_read(life._looked - 0.001)
        before = life.doubt_seconds(5, is_first=True)
        life.all_is_read(time.monotonic())
        later = life.doubt_seconds(5, is_first=True)

    assert (at_once, before, later) == (writers.DYING_SECONDS, writers.DYING_SECONDS, 0)


@pytest.mark.process
@pytest.mark.parametrize(("has_written", "first", "again"), [(False, writers.FIRST_SECONDS, 0), (True, 2.0, 2.0)])
def test_a_file_that_a_living_process_wrote_is_not_closed_by_the_end_of_one_that_never_wrote(
    tmp_path, has_written, first, again
):
    with one_of_two_ends(tmp_path, "echo words >> words;" if has_written else "") as life:
        for process in life._working.values():
            process.before = process.written - 10

        assert [life.doubt_seconds(size, is_first=True) for size in (10, 11)] == [first, writers.DYING_SECONDS]
        assert [life.doubt_seconds(size, is_first=False) for size in (10, 11)] == [again, writers.DYING_SECONDS]


HELPED = """
import subprocess, time
for number in range(3):
    subprocess.run(["sleep", "1.2"])
    open("state", "w").write("x" * 1000)
time.sleep(60)
"""


@pytest.mark.process
def test_a_state_is_complete_though_a_helper_of_its_program_has_just_ended(tmp_path):
    found: list[float] = []
    life = ProgramLife(f"UNBROKEN_SAVE={tmp_path}")
    made = FileObserver(
        tmp_path, lambda name: name == "state", on_moment=lambda _: found.append(time.monotonic()), life=life
    )
    made.start()
    program = subprocess.Popen([sys.executable, "-c", HELPED], cwd=tmp_path, env={"UNBROKEN_SAVE": str(tmp_path)})
    try:
        until(lambda: len(found) == 3)
    finally:
        program.kill()
        program.wait()
    made.close()


CRASHES = """
import os, subprocess, sys, time
program = subprocess.Popen([sys.executable, "-c", '''
import os, signal, time
time.sleep(1.5)
file = os.open("state", os.O_WRONLY | os.O_CREAT)
os.write(file, b"torn")
os.kill(os.getpid(), signal.SIGKILL)
'''])
log = open("log", "w", buffering=1)
while program.poll() is None:
    log.write("a line of a log" * 100)
    time.sleep(0.01)
open("crashed", "w").close()
time.sleep(60)
"""


@pytest.mark.process
def test_a_program_that_crashes_in_its_first_write_leaves_no_state_though_another_process_writes_much(tmp_path):
    life = ProgramLife(f"UNBROKEN_SAVE={tmp_path}")
    made = FileObserver(tmp_path, lambda name: name == "state", on_rest=life.look, life=life)
    made.start()
    script = subprocess.Popen([sys.executable, "-c", CRASHES], cwd=tmp_path, env={"UNBROKEN_SAVE": str(tmp_path)})
    try:
        until((tmp_path / "crashed").exists)
        time.sleep(0.5)
    finally:
        script.kill()
        script.wait()
    made.close()

    assert made.moments == {}


@pytest.mark.process
def test_a_state_that_may_have_been_closed_by_an_end_is_taken_though_other_helpers_end_after_it(tmp_path):
    """Helpers that write are not known from a program, and each of them ends while the one before is in doubt."""
    words = "for number in 1 2 3 4; do sh -c 'echo x >> words; sleep 1.1; :'; echo state > state$number; done; sleep 60"
    life = ProgramLife(f"UNBROKEN_SAVE={tmp_path}")
    made = FileObserver(tmp_path, lambda name: name.startswith("state"), on_rest=life.look, life=life)
    made.start()
    script = subprocess.Popen(["sh", "-c", words], cwd=tmp_path, env={"UNBROKEN_SAVE": str(tmp_path)})
    try:
        until(lambda: "state2" in made.moments)
        is_last_made = (tmp_path / "state4").exists()
    finally:
        subprocess.run(["pkill", "-KILL", "-P", str(script.pid)], check=False)
        script.kill()
        script.wait()
    made.close()

    assert "state1" in made.moments
    assert not is_last_made


def test_a_program_that_was_never_seen_is_trusted(tmp_path):
    """It may have cleared its environment."""
    assert ProgramLife(f"UNBROKEN_SAVE={tmp_path}").is_alive()
