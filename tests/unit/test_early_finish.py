"""A program that is done before its goal (early stopping) says so, and is believed."""

import pytest
from support.toyrun import run_program

from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

STOPS_EARLY = """
mkdir "$UNBROKEN_SAVE/draft" && cd "$UNBROKEN_SAVE/draft" && echo result > file
echo '{"done": 3, "goal": '"$UNBROKEN_GOAL"', "unit": "epochs", "is_finished": true}' > progress.json
mv "$UNBROKEN_SAVE/draft" "$UNBROKEN_SAVE/1.ready"
"""
COMMAND = ["sh", "-c", STOPS_EARLY]


def test_a_run_that_stops_early_is_finished_and_later_segments_do_nothing(tmp_path):
    first = run_program(tmp_path, COMMAND, goal=10)
    second = run_program(tmp_path, ["false"], segment=2, goal=10)

    assert (first.kind, first.progress.done, first.has_worked) == (EndKind.FINISHED, 3, True)
    assert (second.kind, second.has_worked) == (EndKind.FINISHED, False)
    assert (tmp_path / "results/demo/final/file").read_text() == "result\n"


def test_a_raised_goal_lets_it_go_on(tmp_path):
    run_program(tmp_path, COMMAND, goal=10)

    again = run_program(tmp_path, COMMAND, segment=2, goal=20)

    assert (again.kind, again.progress.goal, again.has_worked) == (EndKind.FINISHED, 20, True)
