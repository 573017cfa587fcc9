import json
from pathlib import Path

import pytest

from longhaul.errors import CheckpointError
from longhaul.progress import FileDigest, Progress, parse_handover, parse_progress, read_progress


def test_progress_reaches_its_goal_by_count_and_not_by_word() -> None:
    assert [Progress(done, 10).is_finished for done in (9, 10, 11)] == [False, True, True]
    assert not Progress(10).is_finished


def test_the_least_that_a_program_must_say_is_how_much_is_done() -> None:
    assert parse_progress({"done": 3}, "x") == Progress(3, None, "steps", {})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "x: 'done' is None, allowed: a number"),
        ({"done": "3"}, "x: 'done' is '3', allowed: a number"),
        ({"done": True}, "x: 'done' is True, allowed: a number"),
        ({"done": float("nan")}, "x: 'done' is nan, allowed: a number"),
        ({"done": float("inf")}, "x: 'done' is inf, allowed: a number"),
        ({"done": 1, "goal": "all"}, "x: 'goal' is 'all', allowed: a number or null"),
        ({"done": 1, "metrics": [1]}, r"x: 'metrics' is \[1\], allowed: an object"),
        ([1], "x: found list, allowed: an object with a number 'done'"),
    ],
)
def test_progress_of_another_shape_is_refused_with_what_is_allowed(data: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{words}$"):
        parse_progress(data, "x")


def test_a_loss_that_is_not_a_number_any_more_is_kept_as_text() -> None:
    told = json.loads('{"done": 1, "metrics": {"loss": NaN, "worst": -Infinity, "best": 0.5, "list": [1, NaN]}}')

    progress = parse_progress(told, "x")

    assert progress.metrics == {"loss": "NaN", "worst": "-Infinity", "best": 0.5, "list": "[1, NaN]"}


def test_digests_made_while_writing_are_taken_over() -> None:
    told = {
        "done": 1,
        "is_best": True,
        "digests": {"algorithm": "xxh3_128", "files": {"a": {"size_bytes": 3, "digest": "ff"}}},
    }

    handover = parse_handover(told, "x")

    assert handover.is_best
    assert (handover.algorithm, handover.digests) == ("xxh3_128", {"a": FileDigest(3, "ff")})


@pytest.mark.parametrize("digests", [{"files": {"a": 3}}, {"files": {"a": {"size_bytes": 3}}}, {"files": [1]}, [1]])
def test_malformed_digests_are_refused(digests: object) -> None:
    with pytest.raises(CheckpointError, match="x: 'digests' is malformed"):
        parse_handover({"done": 1, "digests": digests}, "x")


@pytest.mark.parametrize("text", ["", '{"done": 1', "[]", '{"done": "x"}'])
def test_a_torn_progress_file_is_no_progress_yet(tmp_path: Path, text: str) -> None:
    path = tmp_path / "progress.json"
    path.write_text(text)

    assert read_progress(path) is None


def test_no_progress_file_is_no_progress_yet(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "progress.json") is None
