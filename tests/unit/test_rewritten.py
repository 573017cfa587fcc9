"""Tables to which a program went on writing after restarts: each record once, as it was written last."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from unbroken.engines.files.settings import record_of
from unbroken.engines.files.tables import copy_once

ROWS = record_of("rows")
FRAMES = record_of(r"STEP\n(\d+)\n")


def row(number: int) -> str:
    return f"{number},{number * 7 % 13}\n"


def frame(number: int) -> str:
    return f"STEP\n{number}\n" + "".join(f"{atom} {number}.{atom}\n" for atom in range(3))


def once(folder: Path, text: str, pattern: re.Pattern[bytes]) -> str:
    """Return the table as it is imported."""
    table = folder / "table"
    table.write_text(text)
    copy_once(table, pattern, folder / "once")
    return (folder / "once").read_text()


# Where the program was, and to which save it went back, again and again.
KILLS = some.lists(some.tuples(some.integers(1, 30), some.integers(0, 30)), max_size=5)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(KILLS, some.booleans(), some.booleans(), some.booleans())
def test_whatever_was_written_again_is_there_once(
    tmp_path: Path, kills: list[tuple[int, int]], has_head: bool, heads_again: bool, writes_the_save_again: bool
) -> None:
    head, text, at = "step,value\n" if has_head else "", "", 0
    text += head + row(0)
    for steps, back in kills:
        reached = min(100, at + steps)
        text += "".join(row(number) for number in range(at + 1, reached + 1))
        at = max(0, reached - back)  # the save
        text += head if heads_again else ""
        text += row(at) if writes_the_save_again else ""
    text += "".join(row(number) for number in range(at + 1, 101))

    found = once(tmp_path, text, ROWS)

    if heads_again and has_head and not writes_the_save_again:
        # Where no record is written twice, the head stays: there are programs that repeat it every so many rows.
        found = head + found.replace(head, "")
    assert found == head + "".join(row(number) for number in range(101))


def test_records_of_several_lines_are_told_by_their_numbers(tmp_path: Path) -> None:
    text = "".join(map(frame, [0, 10, 20, 30, 20, 30, 40, 30, 40, 50]))

    assert once(tmp_path, text, FRAMES) == "".join(map(frame, [0, 10, 20, 30, 40, 50]))


def test_several_rows_of_one_step_stay(tmp_path: Path) -> None:
    text = "".join(f"{step} {atom} {step * atom}\n" for step in range(1, 5) for atom in range(1, 4))

    assert once(tmp_path, text, ROWS) == text


@pytest.mark.parametrize(("text", "kept"), [("1 2\n3 4\n", 8), ("1 2\n3 ", 4), ("1 2", 3), ("", 0)])
def test_a_last_line_that_a_kill_has_torn_is_left_out(text: str, kept: int, tmp_path: Path) -> None:
    assert once(tmp_path, text, ROWS) == text[:kept]
