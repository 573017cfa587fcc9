"""What is known of a state file when it is complete: real files, and the kernel's own events."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.engines.files import batch, writers
from unbroken.engines.files.databases import copy_database
from unbroken.engines.files.moments import Moment, MomentJournal, read_moments
from unbroken.engines.files.observed import ALIKE_SECONDS, ObservedFiles
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.states import stamp_of, state_stamp_of
from unbroken.engines.files.writers import ProgramLife, written_by
from unbroken.errors import StorageError
from unbroken.program.contract import AttemptFolder
from unbroken.system import log
from unbroken.system.file_events import FileEvents

MARK = "UNBROKEN_SAVE={}"


def is_state(name: str) -> bool:
    return Path(name).name.startswith("state")


class Watched:
    """A folder in which names that begin with `state` are states."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Moment] = []
        life = ProgramLife(MARK.format(folder))
        life.written = lambda paths: written_by([os.getpid()], paths)
        self.observer = FileObserver(folder, is_state, life, on_moment=self.found.append)

    def start(self) -> None:
        self.observer.start([path.name for path in self.folder.iterdir()])

    def moment(self, name: str = "state") -> Moment | None:
        self.observer.settle()
        stamp = stamp_of(self.folder / name)
        return None if stamp is None else self.observer.moment_of({name: stamp})

    @contextmanager
    def sleep_through(self) -> Iterator[None]:
        """For as long, the observer reads no events: as if the machine were busy."""
        gather, goes_on, sleeps = self.observer._gather, threading.Event(), threading.Event()

        def late(first, events):
            sleeps.set()
            goes_on.wait()
            self.observer._gather = gather
            return gather([*first, *events.next(0)], events)

        self.observer._gather = late
        (self.folder / "wakes").touch()
        sleeps.wait()
        yield
        goes_on.set()


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


ways = pytest.mark.parametrize("way", [save, save_renamed])


@ways
@pytest.mark.parametrize(("before", "after"), [(100, 0), (0, 50), (100, 50)])
def test_the_length_at_a_save_is_that_of_then_or_unknown_until_the_next_one(watched, tmp_path, way, before, after):
    append(tmp_path / "table", 10)
    watched.start()
    watched.observer.settle()
    with watched.sleep_through():
        for _ in range(before):
            append(tmp_path / "table", 1)
        way(tmp_path)
        for _ in range(after):
            append(tmp_path / "table", 1)

    found = watched.moment()
    save(tmp_path)

    is_known = before == 0 or after == 0
    assert found.lengths.get("table") == (10 + before if is_known else None)
    assert ("table" in found.unknown) == (not is_known)
    assert (watched.moment().unknown, watched.moment().lengths["table"]) == (set(), 10 + before + after)


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

    exact = {text: moment.lengths["table"] for text, moment in said.items() if "table" in moment.lengths}
    wrong = {text: length for text, length in exact.items() if length != int(text.split()[1])}
    print(len(said), "read,", len(exact), "exact")
    assert wrong == {}
    assert len(exact) > 30


# --- which states are complete ---


def test_a_state_that_is_opened_again_after_its_close_has_no_moment_and_is_no_output(watched, tmp_path):
    watched.start()
    append(tmp_path / "c", 1)
    save(tmp_path)
    assert watched.moment() is not None

    with (tmp_path / "state").open("r+") as file:
        for _ in range(3):
            file.write("again")
            file.flush()
            append(tmp_path / "c", 1)
            assert (watched.moment(), watched.observer.is_open("state")) == (None, True)

    assert watched.moment().lengths == {"c": 4}


def test_a_state_that_is_completed_while_files_are_looked_at_is_found_with_the_next_events(
    watched, tmp_path, monkeypatch
):
    monkeypatch.setattr(batch, "MOST_ROUNDS", 1)
    reader, saved = watched.observer._reader, []
    read = reader._read

    def read_while_it_saves(*words):
        read(*words)
        if not saved:
            saved.append(save(tmp_path))

    append(tmp_path / "table", 100)
    watched.start()
    watched.observer.settle()
    monkeypatch.setattr(reader, "_read", read_while_it_saves)
    (tmp_path / "wakes").touch()
    until(lambda: saved)

    assert watched.moment().lengths["table"] == 100


def test_a_state_whose_folder_is_new_is_found_although_its_writing_was_not_seen(watched, tmp_path):
    """The folder is watched only when everything in it is there already."""
    watched.start()
    with watched.sleep_through():
        (tmp_path / "100").mkdir()
        save(tmp_path / "100", "state.U")
        append(tmp_path / "table", 40)

    found = watched.moment("100/state.U")

    assert found is not None
    assert "table" in found.unknown


@pytest.mark.parametrize("ticks_seconds", [0.0, 0.05])
def test_a_file_of_a_state_that_is_found_early_may_be_its_last(watched, tmp_path, ticks_seconds):
    """A solver writes fields, rows of a table, then a file in one more folder, which is found before the rows are."""
    append(tmp_path / "table", 10)
    watched.start()
    (tmp_path / "100").mkdir()
    file = (tmp_path / "100" / "state.U").open("w")
    watched.observer.settle()
    with watched.sleep_through():
        (tmp_path / "100/sub").mkdir()
        file.close()
        append(tmp_path / "table", 40)
        time.sleep(ticks_seconds)
        save(tmp_path / "100/sub", "state.F")

    watched.observer.settle()
    stamps = {name: stamp_of(tmp_path / name) for name in ("100/state.U", "100/sub/state.F")}
    found = watched.observer.moment_of(stamps)

    assert found is not None
    assert found.lengths["table"] == 50 or (not ticks_seconds and "table" in found.unknown)


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


def test_states_that_come_with_a_renamed_folder_are_complete_with_the_lengths_of_then(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        append(tmp_path / "table", 70)
        (tmp_path / "tmp").mkdir()
        save(tmp_path / "tmp", "state.U")
        (tmp_path / "tmp").rename(tmp_path / "200")

    found = watched.moment("200/state.U")

    assert (found.unknown, found.lengths["table"]) == (set(), 70)
    assert watched.observer.is_renamed("200/state.U")


def test_outputs_that_are_moved_or_removed_have_their_new_names_alone(watched, tmp_path):
    watched.start()
    (tmp_path / "old").mkdir()
    append(tmp_path / "old" / "table", 30)
    append(tmp_path / "a", 1)
    append(tmp_path / "b", 2)
    watched.observer.settle()
    (tmp_path / "old").rename(tmp_path / "new")
    append(tmp_path / "new" / "table", 3)
    os.replace(tmp_path / "a", tmp_path / "c")
    (tmp_path / "b").unlink()
    watched.observer.settle()
    save(tmp_path)

    assert watched.moment().lengths == {"new/table": 33, "c": 1}
    (tmp_path / "state").unlink()
    watched.observer.settle()
    assert watched.observer.moments() == []


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


def no_watch(*_: object) -> None:
    raise StorageError("no watch left")


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
    first = watched.moment()

    save(tmp_path)
    save(tmp_path / "late")

    assert first is None
    assert watched.moment().lengths["table"] == 10
    assert watched.moment("late/state") is not None  # the folder was made while events were lost


def test_without_a_watch_left_it_says_so_and_knows_nothing(watched, tmp_path, monkeypatch):
    watched.start()
    save(tmp_path)
    watched.observer.settle()

    monkeypatch.setattr(FileEvents, "_watch", no_watch)
    (tmp_path / "folder").mkdir()
    until(lambda: watched.observer.why_blind)

    assert watched.observer.why_blind == "no watch left"
    assert watched.moment() is None


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_state_whose_writing_nothing_shows_is_complete_when_it_stays_as_it_is(tmp_path, monkeypatch, is_blind):
    """It was made by a link, or no watch is left: then the death of the program may have ended its writing."""
    if is_blind:
        monkeypatch.setattr(FileEvents, "_watch", no_watch)
    (tmp_path / "attempt").mkdir()
    observed = ObservedFiles(
        tmp_path, AttemptFolder(tmp_path / "attempt"), is_state=is_state, is_measured=lambda _: True
    )
    observed.begin({})
    began = time.monotonic()
    for name in ("state", "state.torn"):
        (tmp_path / f"{name}.new").write_text("saved\n")
        os.link(tmp_path / f"{name}.new", tmp_path / name)
    stamps = {"state": stamp_of(tmp_path / "state")}
    until(lambda: observed.are_complete(stamps, {}))
    (tmp_path / "state.torn").write_text("to")
    observed.end()

    assert time.monotonic() - began >= ALIKE_SECONDS
    assert observed.are_complete(stamps, {})
    torn = {"state.torn": stamp_of(tmp_path / "state.torn")}
    assert [observed.are_complete(torn, {}) for _ in range(2)] == ([False, False] if is_blind else [True, True])


@pytest.mark.parametrize(("change", "is_complete"), [("cut", False), ("replaced", True), ("kept", True)])
def test_a_renamed_state_that_is_cut_after_the_death_of_its_program_does_not_count(tmp_path, change, is_complete):
    """A node that crashes may leave it so; one that was renamed after all that was noted is another file."""
    state, attempt = tmp_path / "state", AttemptFolder(tmp_path / "attempt")
    attempt.root.mkdir()
    state.write_text("saved\n")
    journal = MomentJournal(attempt.root / "moments.jsonl")
    journal.begin({})
    journal.note(Moment("state", stamp_of(state), {}, 0.0, is_renamed=True))
    observed = ObservedFiles(tmp_path, attempt, is_state=is_state, is_measured=lambda _: True)
    observed.know_before()

    if change == "cut":
        os.truncate(state, 3)
    elif change == "replaced":
        (tmp_path / "new").write_text("saved again\n")
        (tmp_path / "new").replace(state)

    assert observed.are_complete({"state": stamp_of(state)}, {}) is is_complete


@pytest.mark.process
def test_ten_thousand_states_at_once_take_no_minute(watched, tmp_path):
    watched.start()
    with watched.sleep_through():
        for number in range(5000):
            (tmp_path / f"state.{number}").touch()
    began = time.monotonic()

    watched.observer.settle(60)

    assert time.monotonic() - began < 20
    moments = watched.observer.moments()
    assert len(moments) == 5000
    assert len({id(moment.lengths) for moment in moments}) < 5


# --- the journal ---


@pytest.fixture
def journal(tmp_path):
    made = MomentJournal(tmp_path / "moments.jsonl")
    made.begin({"table": 5})
    return made


def moment(name: str, is_renamed: bool = False, **lengths: int) -> Moment:
    return Moment(name, (1, 2, 3), lengths, time.monotonic(), is_renamed=is_renamed)


def test_the_last_moment_of_every_file_is_noted_however_fast_they_come(journal):
    journal.note(moment("old", is_renamed=True, table=6, log=1).doubted("log"))
    for length in range(50):
        for name in ("coordinates", "velocities"):
            journal.note(moment(name, table=length))
    journal.note_appended({"log"})
    with journal.path.open("a") as file:
        file.write('\n{"name": "torn", "sta')

    (old, *found), appended = read_moments(journal.path)

    assert (old.lengths, old.unknown, old.is_renamed) == ({"table": 6}, {"log"}, True)
    assert [(each.name, each.lengths) for each in found] == [
        ("coordinates", {"table": 49}),
        ("velocities", {"table": 49}),
    ]
    assert appended == {"log"}
    assert read_moments(journal.path.with_name("none")) == ([], set())


def test_a_full_disk_ends_no_observing_and_is_told_once(journal):
    told: list[str] = []
    os.rename(journal.path, journal.path.with_name("before"))
    os.symlink("/dev/full", journal.path)
    with log.lines_to(told.append):
        for name in ("a", "b"):
            journal.note(moment(name, table=9))
    os.replace(journal.path.with_name("before"), journal.path)
    with journal.path.open("a") as file:
        file.write('\n{"name": "b", "le')
    journal.note(moment("c", log=3))

    assert len(told) == 1
    assert "No space left on device" in told[0] and str(journal.path) in told[0]
    assert [(each.name, each.lengths) for each in read_moments(journal.path)[0]] == [("c", {"log": 3})]


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
    assert (moment.unknown, moment.lengths["log"]) == (set(), 4)


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


@contextmanager
def observed(folder: Path, *words: str) -> Iterator[tuple[FileObserver, subprocess.Popen[bytes]]]:
    """A program that is started while its folder is observed; it is gone at the end, and so are all that it started."""
    life = ProgramLife(MARK.format(folder))
    made = FileObserver(folder, is_state, life, on_rest=life.look)
    made.start()
    program = subprocess.Popen(words, cwd=folder, env={"UNBROKEN_SAVE": str(folder)}, start_new_session=True)
    try:
        yield made, program
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        made.close()


def python(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text]


TORN = """
import os, time
def save(text, pause):
    with open("state", "w") as file:
        file.write(text[:5]); file.flush(); time.sleep(pause); file.write(text[5:])
save("first state", 0)
while not os.path.exists("go"):
    time.sleep(0.01)
save("second state", 60)
"""


@pytest.mark.process
def test_a_state_that_the_death_of_its_program_closed_is_not_complete(tmp_path):
    with observed(tmp_path, *python(TORN)) as (made, program):
        until(lambda: made.moment("state"))
        (tmp_path / "go").touch()
        until(lambda: (tmp_path / "state").stat().st_size == 5)

        program.kill()
        program.wait()
        made.close()

        assert made.moments() == []


DIES = """
import os, subprocess, sys, time
open("state.first", "w").write("1")
program = subprocess.Popen([sys.executable, "-I", "-S", "-c", '''
import os, signal, time
time.sleep(1.2)
file = os.open("state", os.O_WRONLY | os.O_CREAT)
os.write(file, b"torn")
os.kill(os.getpid(), signal.SIGKILL)
'''])
log = open("log", "w", buffering=1)
while program.poll() is None:
    log.write("a line of a log" * 100)
    time.sleep(0.01)
open("dead", "w").close()
time.sleep(60)
"""


@pytest.mark.process
def test_a_program_that_dies_in_its_first_write_leaves_no_state_though_what_started_it_lives_and_writes(tmp_path):
    with observed(tmp_path, *python(DIES)) as (made, _):
        until((tmp_path / "dead").exists)
        time.sleep(0.5)

        assert [moment.name for moment in made.moments()] == ["state.first"]


HELPED = """
import subprocess, time
for number in range(3):
    subprocess.run(["sleep", "1.2"])
    open(f"state.{number}", "w").write("x" * 1000)
time.sleep(60)
"""


@pytest.mark.process
def test_a_state_is_complete_though_a_helper_of_its_program_has_just_ended(tmp_path):
    with observed(tmp_path, *python(HELPED)) as (made, _):
        until(lambda: made.moment("state.0") is not None)
        is_last_made = (tmp_path / "state.2").exists()

        assert not is_last_made
        until(lambda: len(made.moments()) == 3)


@pytest.mark.process
def test_a_state_that_was_just_saved_is_complete_once_its_doubt_is_resolved(tmp_path):
    """Before the program is asked to stop: killed soon after that, nothing else of it would count."""
    with observed(tmp_path, *python(HELPED)) as (made, _):
        until((tmp_path / "state.0").exists)
        time.sleep(0.1)
        at_once = made.moment("state.0")
        made.resolve_doubts(writers.DYING_SECONDS + 2)

        assert (at_once, made.moment("state.0") is None) == (None, False)


@pytest.mark.process
def test_a_script_that_starts_many_short_programs_is_known_by_those_that_are_there(tmp_path):
    with observed(tmp_path, "sh", "-c", "while :; do sleep 0.02; done") as (made, _):
        time.sleep(1.5)

        assert 1 <= len(made._life._working) <= 3


@pytest.mark.process
@pytest.mark.parametrize(("before", "first", "again"), [("", writers.FIRST_SECONDS, 0), ("echo words > words;", 2, 2)])
def test_a_living_process_that_wrote_as_much_is_likely_to_have_written_a_file(tmp_path, before, first, again):
    """Not where the one that ended had written too; and a program may crash in its first write."""
    life = ProgramLife(MARK.format(tmp_path))
    with ExitStack() as stack:
        words = ("sh", "-c", f"{before} exec sleep 60")
        ranks = [stack.enter_context(observed(tmp_path, *words))[1] for _ in range(2)]
        time.sleep(writers.LONG_SECONDS)
        life.look()
        ranks[0].kill()
        ranks[0].wait()
        life.look()
        for process in life._working.values():
            process.before = process.written - 10

        found = [life.doubt_seconds(size, is_first=is_first) for is_first in (True, False) for size in (10, 11)]
    assert found == [first, writers.DYING_SECONDS, again, writers.DYING_SECONDS]


@pytest.mark.process
def test_the_end_of_an_old_process_may_have_closed_what_was_read_until_the_queue_was_empty(tmp_path):
    """A rank that died has closed its part of a state; the others find out later."""
    life = ProgramLife(MARK.format(tmp_path))
    assert life.is_alive()  # never seen: it may have cleared its environment
    with ExitStack() as stack:
        ranks = [stack.enter_context(observed(tmp_path, "sleep", "60"))[1] for _ in range(2)]
        life._scanned = 0.0
        life.look()
        time.sleep(writers.LONG_SECONDS)
        assert (life.is_alive(), life.doubt_seconds(5, is_first=True)) == (True, 0)
        ranks[0].kill()
        ranks[0].wait()

        assert (life.is_alive(), life.doubt_seconds(5, is_first=True)) == (True, writers.DYING_SECONDS)
        life.all_is_read(life._looked - 0.001)
        assert life.doubt_seconds(5, is_first=True) == writers.DYING_SECONDS
        life.all_is_read(time.monotonic())
        assert life.doubt_seconds(5, is_first=True) == 0
    assert not life.is_alive()
