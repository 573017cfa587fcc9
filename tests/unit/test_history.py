import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT

from unbroken.store.history import EndKind, History


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "run" / "history.jsonl")


def test_attempts_read_back_in_order(history: History) -> None:
    attempts = [replace(ATTEMPT, token=token, message="line\nbreak \u2028 and more") for token in (1, 2, 3)]
    for attempt in attempts:
        history.append(attempt)

    assert history.attempts() == attempts


def test_no_file_is_no_attempt(history: History) -> None:
    assert history.attempts() == []


@pytest.mark.parametrize("length", [1, 20, -2, -1])
def test_a_line_torn_by_a_kill_is_passed_over_and_spoils_no_later_one(history: History, length: int) -> None:
    for token in (1, 2):
        history.append(replace(ATTEMPT, token=token))
    first, second = history.path.read_bytes().splitlines(keepends=True)
    history.path.write_bytes(first + second[:length])

    history.append(replace(ATTEMPT, token=3))

    whole_second = [2] if length == -1 else []  # only the newline was missing
    assert [attempt.token for attempt in history.attempts()] == [1, *whole_second, 3]


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"format": 2}',
        "[]",
        "3",
        "null",
        '{"format": 2, "kind": "x"}',
        '{"format": 2, "kind": "paused"}',
        "\x00\xff",
    ],
)
def test_a_line_that_is_no_attempt_is_passed_over(history: History, line: str) -> None:
    history.append(ATTEMPT)
    history.path.write_bytes(history.path.read_bytes() + line.encode("latin-1") + b"\n")

    assert history.attempts() == [ATTEMPT]


def test_a_write_that_takes_only_a_part_is_continued(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:50]))

    history.append(ATTEMPT)

    assert history.attempts() == [ATTEMPT]


@pytest.mark.parametrize(
    ("start", "end", "claim"),
    [(None, "a", True), ("a", "b", True), ("a", "a", False), ("a", None, False), (None, None, False)],
)
def test_an_attempt_that_left_another_checkpoint_has_advanced(start: str | None, end: str | None, claim: bool) -> None:
    assert replace(ATTEMPT, from_checkpoint=start, to_checkpoint=end).has_advanced is claim


def test_only_finished_and_paused_settle_a_segment() -> None:
    assert [outcome.value for outcome in EndKind if outcome.settles] == ["finished", "paused"]
