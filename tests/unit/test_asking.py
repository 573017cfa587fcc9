"""Programs that answer and leave, and the folder in which a program runs."""

import sys
import time
from pathlib import Path

import pytest

from unbroken.errors import SegmentError
from unbroken.program import process as child

pytestmark = pytest.mark.process


def test_an_answer_has_both_outputs_and_the_exit_code() -> None:
    answer = child.ask(["sh", "-c", "echo out; echo err >&2; cat; exit 3"], told="in\n")

    assert (answer.code, answer.lines) == (3, ["out", "err", "in"])


def test_a_line_that_is_enough_ends_the_program_well() -> None:
    answer = child.ask(["sh", "-c", "echo a; echo b; sleep 1000"], is_enough=lambda line: line == "b")

    assert (answer.code, answer.lines) == (0, ["a", "b"])


def test_a_program_that_does_not_answer_is_killed_and_named() -> None:
    with pytest.raises(SegmentError, match=r"sleep 1000: no answer in 0.2 s; it was killed"):
        child.ask(["sleep", "1000"], seconds=0.2)


def test_a_program_is_late_even_if_its_end_is_heard_before_the_kill_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = child.Child.kill

    def slow_kill(program: child.Child) -> None:
        kill(program)
        time.sleep(0.5)

    monkeypatch.setattr(child.Child, "kill", slow_kill)

    with pytest.raises(SegmentError, match=r"no answer in 0.1 s; it was killed"):
        child.ask(["sleep", "1000"], seconds=0.1)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(SegmentError, match="no_such_gmx is not a program that can be found here"):
        child.ask(["no_such_gmx"])


def test_a_program_runs_in_the_folder_that_it_is_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "desk").mkdir()
    child.start([sys.executable, "-c", "import os; print(os.getcwd())"], {}, log, tmp_path / "desk").wait(30)

    assert log.read_text() == f"{tmp_path / 'desk'}\n"
    assert child.ask(["pwd"], folder=tmp_path / "desk").lines == [str(tmp_path / "desk")]
