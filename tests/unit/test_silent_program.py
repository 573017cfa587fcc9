"""A program that says nothing of its progress: its exit code is all there is, beside its files."""

import pytest
from support.toyrun import run_program

from unbroken.errors import SegmentError
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

COUNTS = 'n=$(cat "$UNBROKEN_RESUME/n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$UNBROKEN_SAVE/n"; exit '
PAUSES, FINISHES = ["sh", "-c", COUNTS + "85"], ["sh", "-c", COUNTS + "0"]


def test_its_checkpoints_are_not_taken_for_steps_towards_the_goal(tmp_path):
    records = [run_program(tmp_path, PAUSES, segment, goal=2) for segment in (1, 2, 3)]

    assert [(record.kind, record.progress.done) for record in records] == [(EndKind.PAUSED, n) for n in (1, 2, 3)]


def test_its_exit_0_finishes_the_run_and_a_raised_goal_opens_it_again(tmp_path):
    run_program(tmp_path, PAUSES, 1, goal=2)
    finished = run_program(tmp_path, FINISHES, 2, goal=2)
    passed_on = run_program(tmp_path, FINISHES, 3, goal=2)
    again = run_program(tmp_path, PAUSES, 3, goal=5)

    assert [finished.kind, passed_on.kind, again.kind] == [EndKind.FINISHED, EndKind.FINISHED, EndKind.PAUSED]
    assert [finished.has_worked, passed_on.has_worked, again.has_worked] == [True, False, True]
    assert (tmp_path / "results/demo/final/n").read_text() == "2\n"


def test_a_crash_after_writing_leaves_nothing(tmp_path):
    try:
        run_program(tmp_path, ["sh", "-c", COUNTS + "3"], 1, goal=2)
    except SegmentError as error:
        said = str(error)

    assert "the program ended with exit code 3; nothing new was saved" in said
    assert not list((tmp_path / "results/demo/checkpoints").glob("0*"))
