"""`--stdout FILE` has each line once, or says that lines are missing."""

import json
import os
import subprocess
import sys

import pytest
from support.exec_calls import Called
from support.file_programs import KILLS, PRINTING, killed_at, made

pytestmark = pytest.mark.process

GOAL = 900
OPTIONS = ("--keep", "state.txt", "--save-minutes", "0", "--stdout", "printed.txt")
WHOLE = "".join(f"line {number:06d} of what this program prints\n" for number in range(1, GOAL + 1))
kills = pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)


def printed(called: Called) -> str:
    return (called.folder / "printed.txt").read_text()


def pause(called: Called, number: int, *options: str, **more) -> None:
    called.rest_at(number)
    done = called.call(*OPTIONS, "--minutes", "0.08", *options, **more)
    called.go_on()
    assert done.returncode == 85, done.stderr


@pytest.mark.parametrize("way", ["flush", "print", "buffered"])
def test_a_program_that_saves_and_leaves_when_its_time_is_up_loses_and_doubles_no_line(called, way):
    more = made(called, PRINTING, "polite", way, goal=GOAL)
    pause(called, 337, **more)

    done = called.call(*OPTIONS, **more)

    assert (done.returncode, called.starts()) == (0, [0, 337]), done.stderr
    assert printed(called) == WHOLE
    assert "doubt" not in done.stderr


def test_lines_that_are_flushed_are_neither_lost_nor_doubled_by_the_end_of_the_time(called):
    more = made(called, PRINTING, "flush", goal=GOAL)
    pause(called, 337, **more)

    done = called.call(*OPTIONS, **more)

    assert (done.returncode, called.starts()) == (0, [0, 330]), done.stderr
    assert printed(called) == WHOLE
    assert "doubt" not in done.stderr


@kills
@pytest.mark.parametrize("way", ["flush", "print"])
def test_lines_that_are_flushed_or_printed_by_python_are_neither_lost_nor_doubled_by_a_kill(called, way, kill):
    more = made(called, PRINTING, way, goal=GOAL)
    killed_at(called, 337, kill, OPTIONS, more, moment="state.txt")

    done = called.call(*OPTIONS, **more)

    assert (done.returncode, called.starts()) == (0, [0, 330]), done.stderr
    assert printed(called) == WHOLE


def told_by_status(called):
    """The table in colors, and the run's row for programs."""
    words = [sys.executable, "-m", "unbroken", "status", "-d", str(called.folder)]
    colored = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "300"}
    shown = subprocess.run(words, text=True, capture_output=True, env=colored, check=True).stdout
    (row,) = json.loads(subprocess.run([*words, "--json"], text=True, capture_output=True, check=True).stdout)
    return shown, row


@pytest.mark.parametrize("kill", [*KILLS.values(), None], ids=[*KILLS, "time limit"])
def test_lines_that_were_lost_in_a_buffer_are_told_and_it_is_not_plainly_finished(called, kill):
    more = made(called, PRINTING, goal=GOAL)
    if kill is None:
        pause(called, 337, **more)
    else:
        killed_at(called, 337, kill, OPTIONS, more, moment="state.txt")

    done = called.call(*OPTIONS, **more)
    again = called.call(*OPTIONS, **more)

    assert (done.returncode, called.starts()) == (0, [0, 330]), done.stderr
    assert printed(called) != WHOLE
    assert "finished, with doubts:" in done.stderr
    assert "doubt: stdout is buffered by the program" in done.stderr
    assert "doubt: stdout is buffered by the program" in again.stderr
    shown, row = told_by_status(called)
    assert "finished, with doubts" in shown and "\x1b[31mfinished, with doubts" in shown  # red
    assert "with doubts: stdout is buffered by the program" in shown
    assert [doubt.partition(" by ")[0] for doubt in row["doubts"]] == ["stdout is buffered"]
