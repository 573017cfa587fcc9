"""A real Keras process under a real segment is told to leave, or killed, and the next attempt changes no byte."""

import os
import signal
import sys
import zipfile
from pathlib import Path

import pytest
from support.toyrun import ROOT, SegmentProcess, checkpoints, history, start_segment, toy_job, until

pytestmark = [pytest.mark.tensorflow, pytest.mark.xdist_group("tensorflow_kills")]  # one process, one `whole`

STEPS = 20  # of 8 a epoch
PATIENCE_SECONDS = 600.0
# Long enough that none of the steps is the last one before the signal comes.
SLOW = ("--pause", "2")


def started(base: Path, *words: str, segment: int = 1) -> SegmentProcess:
    base.mkdir(exist_ok=True)
    program = [sys.executable, str(ROOT / "tests" / "support" / "keras_program.py"), *words]
    return start_segment(base, segment, command=program, goal=STEPS, segment_minutes=30.0, save_minutes=0.001)


def has_saved(base: Path) -> bool:
    return any(base.glob("results/demo/checkpoints/0*"))


def final_files(base: Path) -> dict[str, bytes]:
    final = base / "results/demo/final"
    with zipfile.ZipFile(final / "model.keras") as model:  # next to the weights it holds the time of its writing
        return {"weights": model.read("model.weights.h5"), "metrics": (final / "metrics.csv").read_bytes()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    base = tmp_path_factory.mktemp("whole")
    assert started(base).end(PATIENCE_SECONDS).code == 0
    return final_files(base)


def outcome_after_going_on(base: Path) -> list[str]:
    """How each attempt ended, once one more has come to the end."""
    is_settled = toy_job(base).places.record(1).exists()
    assert started(base, segment=2 if is_settled else 1).end(PATIENCE_SECONDS).code == 0
    attempts = history(toy_job(base))
    assert attempts[-1].progress_from > 0  # it did not begin anew
    return [attempt.kind.value for attempt in attempts]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_the_program_lets_it_save_and_the_next_segment_ends_as_if_nothing_had_been(
    tmp_path: Path, whole: dict[str, bytes], number: signal.Signals
) -> None:
    segment = started(tmp_path, *SLOW)
    until(lambda: has_saved(tmp_path), PATIENCE_SECONDS)
    os.kill(segment.child_pid(), number)

    assert segment.end(PATIENCE_SECONDS).record["kind"] == "paused"
    assert outcome_after_going_on(tmp_path) == ["paused", "finished"]
    assert final_files(tmp_path) == whole


def test_a_term_to_the_segment_lets_the_program_save_and_the_same_segment_goes_on(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    segment = started(tmp_path, *SLOW)
    until(lambda: has_saved(tmp_path), PATIENCE_SECONDS)
    segment.kill(signal.SIGTERM)

    assert segment.end(PATIENCE_SECONDS).error.startswith("InterruptedSegment: ")
    assert outcome_after_going_on(tmp_path) == ["interrupted", "finished"]
    assert final_files(tmp_path) == whole


@pytest.mark.parametrize("victim", ["program", "segment"])
def test_a_killed_training_goes_on_from_its_last_checkpoint_to_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], victim: str
) -> None:
    segment = started(tmp_path, *SLOW)
    until(lambda: has_saved(tmp_path), PATIENCE_SECONDS)
    os.kill(segment.child_pid() if victim == "program" else segment.pid, signal.SIGKILL)
    code = segment.process.wait(PATIENCE_SECONDS)
    segment.process.communicate()

    assert (victim, code) in [("program", 1), ("segment", -signal.SIGKILL)]
    expected = {"program": "failed", "segment": "died"}
    assert outcome_after_going_on(tmp_path) == [expected[victim], "finished"]
    assert final_files(tmp_path) == whole


def test_a_kill_in_the_middle_of_a_save_leaves_no_visible_checkpoint(tmp_path: Path, whole: dict[str, bytes]) -> None:
    ended = started(tmp_path, "--pause", "0.1", "--dies-in-save", "3").end(PATIENCE_SECONDS)

    assert "the program was ended by SIGKILL" in ended.error
    assert len(checkpoints(toy_job(tmp_path))) == 2
    assert outcome_after_going_on(tmp_path) == ["failed", "finished"]
    assert final_files(tmp_path) == whole
