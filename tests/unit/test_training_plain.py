"""The parts of unbroken.training that need no library."""

import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from unbroken.program.contract import AttemptFolder
from unbroken.program.handover import ready_states
from unbroken.store.progress import FileDigest, Handover, Progress, read_progress, write_progress
from unbroken.system.memory import available_bytes
from unbroken.training.core.environment import Contract, DeadlineFile, Outbox, Signals, read_contract
from unbroken.training.core.position import Course, Position
from unbroken.training.core.save_policy import Saves, best_interval
from unbroken.training.core.save_schedule import LEAVE_SECONDS, SAFETY, Phase, SaveSchedule


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told_to_save(stop: Path, deadline: float, deadline_file: DeadlineFile) -> Contract:
    paths = {"save": stop.parent, "stop": stop, "progress": stop.parent / "progress.json"}
    return Contract("demo", None, deadline=deadline, save_seconds=60.0, deadline_file=deadline_file, **paths)


def make_pace(
    stop: Path,
    clock: Callable[[], float] = time.monotonic,
    deadline: float = math.inf,
    saves: Saves | None = None,
    **told: object,
) -> SaveSchedule:
    """Saves take 2 s as long as nothing is known, and are due after 60 s; `told` is of the signals and the deadline."""
    contract = told_to_save(stop, deadline, SimpleNamespace(moved=told.get("moved", lambda: None)))
    signals = SimpleNamespace(heard=lambda: told.get("has_signal", False), resumed_at=-math.inf)
    return SaveSchedule(contract, saves or Saves(), told.get("signals", signals), 2, now=clock, **told.get("how", {}))


def take_step(pace: SaveSchedule, clock: Clock, phase: Phase, seconds: float) -> None:
    pace.begin_step()
    clock.now += seconds
    pace.end_step(phase)


def test_without_unbroken_there_is_no_contract() -> None:
    assert read_contract({"HOME": "/"}) is None


def test_the_deadline_is_moved_to_the_clock_that_cannot_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    told = {
        "RUN": "demo",
        "SAVE": "/s",
        "DEADLINE": "1000030.5",
        "STOP": "/stop",
        "PROGRESS": "/p",
        "SAVE_SECONDS": "9",
    }

    contract = read_contract({f"UNBROKEN_{name}": value for name, value in told.items()})

    assert contract is not None
    assert (contract.deadline, contract.resume, contract.goal, contract.save_seconds) == (80.5, None, None, 9)


def test_what_is_handed_over_is_what_the_parent_reads(tmp_path: Path) -> None:
    attempt_folder = AttemptFolder(tmp_path / "desk")
    attempt_folder.prepare()
    outbox = Outbox(attempt_folder.save)
    given = Handover(
        Progress(2.5, 3.0, "epochs", {"loss": 0.5}),
        is_best=True,
        is_finished=True,
        versions={"torch": "2"},
        save_seconds=0.25,
        algorithm="xxh3_128",
        digests={"state.pt": FileDigest(3, "ab")},
    )

    draft = outbox.new_draft()
    (draft / "state.pt").write_text("abc")
    outbox.hand_over(draft, given)
    found = ready_states(attempt_folder)

    assert [(entry.draft.name, entry.handover) for entry in found] == [("000001.ready", given)]


def test_the_outbox_has_room_for_two(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    rooms = []
    for _ in range(3):
        rooms.append(outbox.has_room)
        outbox.hand_over(outbox.new_draft(), Handover(Progress(1)))

    assert rooms == [True, True, False]


def test_a_metric_that_is_no_number_is_null_in_the_progress_file(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"

    write_progress(path, Progress(1, 2, "epochs", {"loss": math.nan, "accuracy": 0.5}))

    assert json.loads(path.read_text())["metrics"] == {"loss": None, "accuracy": 0.5}
    assert read_progress(path) == Progress(1, 2, "epochs", {"loss": None, "accuracy": 0.5})
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.process
def test_a_forked_helper_still_dies_of_term_and_lives_through_usr1() -> None:
    code = """
import os, signal, sys, time
from unbroken.training.core.environment import Signals
signals = Signals()
signals.install()
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(20)
time.sleep(0.2)
os.kill(pid, signal.SIGTERM)
status = os.waitpid(pid, 0)[1]
os.kill(os.getpid(), signal.SIGTERM)
print(os.WTERMSIG(status), signals.has_come)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)

    assert answer.stdout.split() == [str(int(signal.SIGTERM)), "True"]


def test_a_handler_that_a_compiler_has_put_over_ours_is_taken_back(signals_kept: None) -> None:
    """LLVM does it by sigaction, of which Python hears nothing; here a handler of C that does nothing does."""
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    signals = Signals()
    signals.install()
    ours = libc.signal(signal.SIGUSR1, ctypes.cast(libc.abs, ctypes.c_void_p))

    os.kill(os.getpid(), signal.SIGUSR1)
    lost = signals.heard()
    os.kill(os.getpid(), signal.SIGUSR1)

    assert ours
    assert (lost, signals.heard()) == (False, True)


def test_a_handler_that_the_program_has_put_over_ours_stays(signals_kept: None) -> None:
    signals, come = Signals(), []
    signals.install()
    signal.signal(signal.SIGUSR1, lambda number, frame: come.append(number))

    assert not signals.heard()
    os.kill(os.getpid(), signal.SIGUSR1)

    assert come == [signal.SIGUSR1]


def test_the_stop_file_is_looked_for_five_times_a_second(tmp_path: Path) -> None:
    clock, stop = Clock(), tmp_path / "stop"
    pace = make_pace(stop, clock)
    first = pace.must_stop(Phase.BATCH)
    stop.touch()
    clock.now += 0.1
    second = pace.must_stop(Phase.BATCH)
    clock.now += 0.11
    third = pace.must_stop(Phase.BATCH)
    stop.unlink()

    assert (first, second, third, pace.must_stop(Phase.BATCH)) == (False, False, True, True)


def test_a_step_that_would_end_too_late_is_not_begun(tmp_path: Path) -> None:
    clock = Clock()
    pace = make_pace(tmp_path / "stop", clock, deadline=200)
    take_step(pace, clock, Phase.BATCH, 1.0)
    take_step(pace, clock, Phase.END, 30.0)
    needed = SAFETY * 2 + LEAVE_SECONDS

    clock.now = 200 - needed - 1.1
    assert not pace.must_stop(Phase.BATCH)
    assert pace.must_stop(Phase.END)


def test_a_save_is_due_after_the_interval_and_not_again_at_once(tmp_path: Path) -> None:
    clock = Clock()
    pace = make_pace(tmp_path / "stop", clock)
    before = pace.is_save_due(1)
    clock.now += 60
    after = pace.is_save_due(2)
    pace.saved(1.0)

    assert (before, after, pace.is_save_due(3)) == (False, True, False)


def test_a_signal_stops_at_the_next_step(tmp_path: Path) -> None:
    assert make_pace(tmp_path / "stop", Clock(), has_signal=True).must_stop(Phase.BATCH)


def test_an_epoch_whose_end_was_not_run_lies_before_its_end() -> None:
    trained = Course(Position(epoch=1, batch=8, step=16, batches=8), goal=5)
    closed = Course(Position(epoch=2, batch=0, step=16, batches=8), goal=5)
    half = Course(Position(epoch=1, batch=4, step=12, batches=8), goal=5)

    assert half.reported == 1.5
    assert half.reported < trained.reported < closed.reported == 2


def test_nothing_but_the_last_checkpoint_says_that_the_goal_is_reached() -> None:
    course = Course(Position(epoch=4, batch=8, step=40, batches=8), goal=5)

    assert course.done == 5
    assert course.reported < 5
    assert not course.is_over


def test_a_goal_inside_an_epoch_can_be_raised_later() -> None:
    course = Course(Position(epoch=1, batch=2, step=10, batches=8), goal=11, unit="steps", is_in_batch=True)
    course.close_epoch()
    reached = course.is_over
    course.goal = 20

    assert reached
    assert (course.position.epoch, course.position.batch, course.is_over) == (1, 3, False)


def test_a_loop_that_is_left_early_ends_its_epoch() -> None:
    course = Course(Position(epoch=1, batch=2, step=10, batches=8), goal=5, is_in_batch=True)

    course.close_epoch()

    assert (course.position.epoch, course.position.batch, course.position.step) == (2, 0, 11)


@pytest.mark.process
def test_the_parts_without_torch_import_only_the_standard_library() -> None:
    modules = ("environment", "position", "metrics", "save_schedule", "run_directory", "save_policy")
    names = ", ".join(f"unbroken.training.core.{name}" for name in modules)
    code = f"import sys, {names}; print(sorted(set(sys.modules) & {{'torch', 'numpy', 'xxhash'}}))"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_a_training_follows_a_deadline_that_is_moved(tmp_path: Path) -> None:
    clock, moved = Clock(), iter([None, 500.0, None])
    pace = make_pace(tmp_path / "stop", clock, 130, moved=lambda: next(moved))
    take_step(pace, clock, Phase.BATCH, 1)

    stops = []
    for now in (110.0, 129.0, 129.5):
        clock.now = now
        stops.append(pace.must_stop(Phase.BATCH))

    assert stops == [False, False, False]


class Suspended:
    """A training whose job was suspended after its first step, and resumed 600 s later; Slurm moved its end as far."""

    def __init__(self, tmp_path: Path, moved_after_seconds: float, rewritten: Sequence[float] = ()) -> None:
        self.clock, self.resumed_at, self.rests = Clock(), -math.inf, 0
        self.moves, self.rewritten = iter([150.0 + 600.0]), iter(rewritten)
        self.moved_at = 100.0 + 601.0 + moved_after_seconds
        how = {"signals": self, "moved": self.moved, "how": {"rest": self.rest}}
        self.pace = make_pace(tmp_path / "stop", self.clock, 150, **how)
        take_step(self.pace, self.clock, Phase.BATCH, 1)
        self.pace.begin_step()
        self.clock.now += 600.0
        self.resumed_at = self.clock.now
        self.pace.end_step(Phase.BATCH)

    def heard(self) -> bool:
        return False

    def moved(self) -> float | None:
        return next(self.moves if self.clock.now >= self.moved_at else self.rewritten, None)

    def rest(self, seconds: float) -> None:
        self.rests += 1
        self.clock.now += seconds


def test_a_job_that_was_suspended_hears_its_new_end_before_it_may_leave(tmp_path: Path) -> None:
    training = Suspended(tmp_path, moved_after_seconds=7.0)

    assert not training.pace.must_stop(Phase.BATCH)
    assert 7.0 <= training.clock.now - training.resumed_at < 8.0

    training.clock.now = 720.0
    assert not training.pace.must_stop(Phase.BATCH)  # the step that stood still says nothing about the next one
    training.clock.now, rests = 749.0, training.rests
    assert training.pace.must_stop(Phase.BATCH)
    assert training.rests == rests


def test_a_deadline_that_is_written_anew_for_a_longer_save_is_not_the_new_end(tmp_path: Path) -> None:
    training = Suspended(tmp_path, moved_after_seconds=7.0, rewritten=[149.0, 148.5])

    assert not training.pace.must_stop(Phase.BATCH)
    assert 7.0 <= training.clock.now - training.resumed_at < 8.0


def test_a_job_whose_end_was_not_moved_leaves_after_a_little(tmp_path: Path) -> None:
    training = Suspended(tmp_path, moved_after_seconds=math.inf)

    assert training.pace.must_stop(Phase.BATCH)
    assert training.clock.now - training.resumed_at == pytest.approx(20.0, abs=1.0)


def test_the_file_with_the_deadline_speaks_up_once_when_it_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "deadline"
    file.write_text("1000.000\n")
    deadline = DeadlineFile(str(file), "1000.000")
    before = deadline.moved()

    file.write_text(f"{time.time() + 60:.3f}\n")
    after, again = deadline.moved(), deadline.moved()

    assert (before, again) == (None, None)
    assert after == pytest.approx(time.monotonic() + 60, abs=1)


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_a_file_with_the_deadline_that_cannot_be_read_changes_nothing(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "deadline"
    if text is not None:
        file.write_text(text)

    assert DeadlineFile(str(file), "1000.000").moved() is None


@pytest.mark.parametrize(("mtbf_minutes", "expected"), [(24 * 60, "117"), (6 * 60, "57"), (15, "9.1")])
def test_the_interval_is_that_of_dalys_figures(mtbf_minutes: float, expected: str) -> None:
    """Daly 2006, figures 3 to 5: a save takes 5 minutes."""
    digits = len(expected.partition(".")[2])

    assert f"{best_interval(5 * 60, mtbf_minutes * 60) / 60:.{digits}f}" == expected


def test_a_save_that_takes_longer_than_failures_let_it_is_made_once_a_failure() -> None:
    assert best_interval(200, 60) == 60


def test_the_interval_follows_from_what_a_save_was_measured_to_cost(tmp_path: Path) -> None:
    clock = Clock()
    saves = Saves(mtbf_hours=24)
    pace = make_pace(tmp_path / "stop", clock, saves=saves)
    guessed = pace.interval_seconds
    pace.begin_save(1)
    pace.saved(1.0, stall_seconds=0.5)
    measured = pace.interval_seconds
    clock.now += measured - 1
    before = pace.is_save_due(2)
    clock.now += 1
    pace.saved(100.0, stall_seconds=0.5)

    assert guessed == best_interval(2, 24 * 3600)
    assert measured == best_interval(0.5, 24 * 3600)
    assert (before, pace.interval_seconds) == (False, 1000)  # the disk is not written all the time


@pytest.mark.parametrize(("waits", "expected"), [(0, [12, 15, 18]), (1, [13, 16, 19])])
def test_a_save_is_due_every_so_many_steps_of_the_whole_training(
    waits: int, expected: list[int], tmp_path: Path
) -> None:
    """A segment begins after step 10; a save that has to wait for a step does not move the next one."""
    pace = make_pace(tmp_path / "stop", saves=Saves(steps=3))
    saved, due = [], 0
    for step in range(11, 21):
        due = due + 1 if pace.is_save_due(step) else 0
        if due > waits:
            saved.append(step)
            pace.begin_save(step)

    assert saved == expected


def test_time_is_kept_for_the_save_that_is_on_its_way_too(tmp_path: Path) -> None:
    clock = Clock()
    pace = make_pace(tmp_path / "stop", clock, deadline=200)
    clock.now = 200 - SAFETY * 2 - LEAVE_SECONDS - 0.1
    before = pace.must_stop(Phase.BATCH)
    pace.is_saving = True

    assert (before, pace.must_stop(Phase.BATCH)) == (False, True)


def test_a_second_ctrl_c_interrupts(signals_kept: None) -> None:
    signals = Signals()
    signals.install()
    os.kill(os.getpid(), signal.SIGINT)

    assert signals.has_come
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_memory_that_is_free_is_known_here() -> None:
    assert 0 < available_bytes() < 10**15
