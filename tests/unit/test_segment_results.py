"""The last step of a run: its results are made, checked and told, and an error in it is how the attempt ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disks import mount_small, unmount
from support.toyrun import PYTHONPATH, ProgramEngine, checkpoints, history, program, run_program, toy, toy_job

from unbroken.engines.base import Results, Task, When
from unbroken.errors import ResultsError, SegmentError, StorageError, UnbrokenError
from unbroken.job.lifecycle import run_segment
from unbroken.program.contract import HandedOver
from unbroken.report.status import RunState, status_of
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import EndCause, EndKind
from unbroken.store.record import Record, read_record
from unbroken.store.run import RunSpec

pytestmark = pytest.mark.process

ONE_STEP = program("one_step")


class BadEnd(ProgramEngine):
    """An engine of somebody else's package whose `finish` raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(ONE_STEP)
        self.error = error

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        (final / "half").write_text("written before the error\n")
        raise self.error


class SaysMore(ProgramEngine):
    """An engine that says of a file that it is among the results, and how large it is."""

    def __init__(self, size: int | None) -> None:
        super().__init__(ONE_STEP)
        self.size = size

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        (final / "table").write_text("12\n")

    def results(self, run: RunSpec, checkpoint: Checkpoint) -> Results:
        return Results({"table": self.size, **({} if self.size else {"trajectory": None})})


class Filling(ProgramEngine):
    """An engine whose results are larger than its checkpoints."""

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        (final / "joined").write_bytes(b"x" * 1_500_000)


def run_engine(base: Path, engine: ProgramEngine, attempt: int = 1) -> Record:
    return run_segment(toy_job(base, 1, attempt, goal=1), engine)


def outcomes(base: Path) -> list[str]:
    return [attempt.kind.value for attempt in history(toy_job(base))]


def starts(base: Path) -> int:
    """How often a program was started."""
    return sum(path.read_text().count(": starting: ") for path in (base / "logs/demo").glob("*.*.log"))


def state_of(base: Path) -> RunState:
    return status_of("demo", base, toy_job(base, goal=1).run).state


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a disk of 1 MB under its results."""
    (tmp_path / "results").mkdir()
    mount_small(tmp_path / "results", "size=1m")
    yield tmp_path
    unmount(tmp_path / "results")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("a join went wrong"), "OSError: a join went wrong"),
        (FileNotFoundError(2, "No such file or directory", "gmx"), "No such file or directory: 'gmx'"),
        (OSError(5, "Input/output error", "/data"), "/data: Input/output error"),
        (ValueError("no frame in traj"), "ValueError: no frame in traj"),
        (KeyError("md.log"), "KeyError: 'md.log'"),
        (SystemExit(0), "SystemExit: 0"),
        (SegmentError("a record is missing"), "a record is missing"),
    ],
    ids=["os", "absent", "io", "value", "key", "exit", "segment"],
)
def test_an_error_in_finish_is_the_attempts_end_and_only_finish_is_repeated(
    tmp_path: Path, error: BaseException, said: str
) -> None:
    with pytest.raises(UnbrokenError) as caught:
        run_engine(tmp_path, BadEnd(error))
    job = toy_job(tmp_path)
    log = job.log.read_text()
    (attempt,) = history(job)
    stopped = state_of(tmp_path)
    was_there = job.places.record(1).exists() or job.places.final.exists()
    record = run_engine(tmp_path, ProgramEngine(ONE_STEP), 2)

    assert said in str(caught.value)
    assert (attempt.kind, attempt.cause, attempt.progress_to) == (EndKind.FAILED, EndCause.NO_RESULTS, 1)
    assert "the goal is reached (1 of 1 steps), but its results were not written" in attempt.message
    assert said in attempt.message
    assert "but its results were not written" in log
    assert "Traceback (most recent call last)" in log or isinstance(error, SegmentError)
    assert "results are in" not in log
    assert (stopped, was_there) == (RunState.STOPPED, False)
    assert starts(tmp_path) == 1
    assert outcomes(tmp_path) == ["failed", "finished"]
    assert (record.kind, state_of(tmp_path)) == (EndKind.FINISHED, RunState.FINISHED)
    assert (job.places.final / "state").read_text() == "1.0\n"


def test_a_finish_that_fails_again_keeps_the_run_unfinished(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with pytest.raises(ResultsError, match="nothing is computed again, the next start repeats this step alone"):
            run_engine(tmp_path, BadEnd(ValueError("no frame")), attempt)

    first, second = history(toy_job(tmp_path))
    assert (first.cause, second.cause) == (EndCause.NO_RESULTS, EndCause.NO_RESULTS)
    assert (starts(tmp_path), state_of(tmp_path)) == (1, RunState.STOPPED)
    assert read_record(toy_job(tmp_path).places.record(1)) is None


def test_a_disk_that_is_full_in_finish_is_told_and_the_results_are_made_when_there_is_room(small_disk: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        run_engine(small_disk, Filling(ONE_STEP))
    (attempt,) = history(toy_job(small_disk))
    state = state_of(small_disk)
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk / "results")], check=True)
    run_engine(small_disk, Filling(ONE_STEP), 2)

    assert (attempt.kind, attempt.cause) == (EndKind.FAILED, EndCause.NO_RESULTS)
    assert state is RunState.STOPPED
    assert (toy_job(small_disk).places.final / "joined").stat().st_size == 1_500_000
    assert (starts(small_disk), state_of(small_disk)) == (1, RunState.FINISHED)


KILLED = """
import os, signal
from pathlib import Path
from support.toyrun import ProgramEngine, program, toy_job
from unbroken.job.lifecycle import run_segment

class Killed(ProgramEngine):
    def finish(self, run, checkpoint, final):
        (final / "half").write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)

run_segment(toy_job(Path(), 1, 1, goal=1), Killed(program("one_step")))
"""


def test_a_job_killed_in_finish_has_not_finished_and_the_next_one_says_when_it_has(tmp_path: Path) -> None:
    around = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=around, capture_output=True)
    state = state_of(tmp_path)
    run_engine(tmp_path, ProgramEngine(ONE_STEP), 2)

    died, finished = history(toy_job(tmp_path))
    assert done.returncode == -signal.SIGKILL
    assert state is RunState.STOPPED
    assert (died.kind, died.progress_to, died.times.program_started is not None) == (EndKind.DIED, 1, True)
    assert (finished.kind, finished.work_seconds) == (EndKind.FINISHED, 0)
    assert (starts(tmp_path), state_of(tmp_path)) == (1, RunState.FINISHED)
    assert sorted(path.name for path in toy_job(tmp_path).places.final.iterdir()) == [
        "state",
        "summary.json",
    ]


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "trajectory: missing; the engine says"), (4, "table: found 3 bytes, expected 4"), (3, "")],
)
def test_a_run_is_finished_only_when_what_its_engine_expects_is_there(
    tmp_path: Path, size: int | None, said: str
) -> None:
    if said:
        with pytest.raises(ResultsError, match=said):
            run_engine(tmp_path, SaysMore(size))
    else:
        run_engine(tmp_path, SaysMore(size))

    assert outcomes(tmp_path) == ["failed" if said else "finished"]
    assert toy_job(tmp_path).places.final.exists() is not bool(said)


def test_a_pipe_among_the_results_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    class Piping(ProgramEngine):
        def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
            os.mkfifo(final / "pipe")

    with pytest.raises(ResultsError, match="pipe: found a pipe, socket or device, allowed: files, folders, links"):
        run_engine(tmp_path, Piping(ONE_STEP))


def test_an_error_of_an_engine_in_the_middle_of_the_work_is_in_its_log_and_history(tmp_path: Path) -> None:
    class Confused(ProgramEngine):
        def states(self, task: Task, when: When) -> list[HandedOver]:
            if when is When.LEFT:
                raise IndexError("list index out of range")
            return []

    with pytest.raises(SegmentError, match="engine toy: IndexError: list index out of range; read "):
        run_engine(tmp_path, Confused(ONE_STEP))

    (attempt,) = history(toy_job(tmp_path))
    assert (attempt.kind, attempt.exit_code) == (EndKind.FAILED, 0)
    assert "in states" in toy_job(tmp_path).log.read_text()


# --- what the user has changed --------------------------------------------------------------------------------------


def goes_further(base: Path, goal: int) -> str:
    """The log of a run whose goal is raised."""
    toy(base, 2, goal=goal)
    return toy_job(base, 2).log.read_text()


def test_results_that_nobody_changed_make_room_for_new_ones(tmp_path: Path) -> None:
    toy(tmp_path)
    said = goes_further(tmp_path, 40)

    places = toy_job(tmp_path).places
    assert json.loads((places.final / "state.json").read_text())["step"] == 40
    assert not places.replaced.exists()
    assert "is not as unbroken wrote it" not in said


@pytest.mark.parametrize("how", ["edited", "added", "removed", "copied back"])
def test_results_that_the_user_changed_are_moved_and_told_before_new_ones_take_their_place(
    tmp_path: Path, how: str
) -> None:
    toy(tmp_path)
    places = toy_job(tmp_path).places
    changed = places.final / ("notes.txt" if how == "added" else "trace.csv")
    if how == "removed":
        changed.unlink()
    elif how == "copied back":
        text = changed.read_bytes()
        changed.unlink()
        changed.write_bytes(text)
    else:
        changed.write_text("mine\n")
    expected = changed.read_bytes() if changed.exists() else None

    said = goes_further(tmp_path, 40)

    (kept,) = places.replaced.iterdir()
    found = kept / changed.name
    assert (found.read_bytes() if found.exists() else None) == expected
    assert said.count(f"{places.final} is not as unbroken wrote it: it was moved to {kept}") == 1
    assert json.loads((places.final / "state.json").read_text())["step"] == 40


def test_results_without_a_note_of_what_was_written_are_kept(tmp_path: Path) -> None:
    toy(tmp_path)
    (toy_job(tmp_path).places.final / "summary.json").unlink()

    goes_further(tmp_path, 40)

    (kept,) = toy_job(tmp_path).places.replaced.iterdir()
    assert json.loads((kept / "state.json").read_text())["step"] == 20


def test_results_that_were_changed_stay_where_they_are_as_long_as_no_new_ones_are_made(tmp_path: Path) -> None:
    toy(tmp_path)
    places = toy_job(tmp_path).places
    (places.final / "trace.csv").write_text("mine\n")

    toy(tmp_path, 2)

    assert (places.final / "trace.csv").read_text() == "mine\n"
    assert not places.replaced.exists()


# --- beyond the goal ------------------------------------------------------------------------------------------------


def test_a_run_that_ends_beyond_its_goal_says_so_with_both_numbers(tmp_path: Path) -> None:
    run_program(tmp_path, program("one_step"), 1, goal=5000)
    run_program(tmp_path, program("two_ways_of_the_same", 7250), 2, goal=5000)

    line = "7250 of 5000 steps: 2250 beyond the goal; the program probably counts from its restart: give it {remaining}"
    row = status_of("demo", tmp_path, toy_job(tmp_path, goal=5000).run)
    assert line in toy_job(tmp_path).places.log(2).read_text()
    assert (row.state, line in row.advice) == (RunState.FINISHED, True)


def test_a_run_that_ends_at_its_goal_or_whose_goal_was_lowered_is_not_called_beyond_it(tmp_path: Path) -> None:
    run_program(tmp_path, program("two_ways_of_the_same", 20), 1, goal=20)
    run_program(tmp_path, program("one_step"), 2, goal=10)

    row = status_of("demo", tmp_path, toy_job(tmp_path, goal=10).run)
    assert [found.passport.progress.done for found in checkpoints(toy_job(tmp_path))] == [20]
    assert "beyond" not in row.advice
    assert all("beyond" not in path.read_text() for path in (tmp_path / "logs/demo").glob("*.log"))
