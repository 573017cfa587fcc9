import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies
from support.making import PASSPORT

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import folder_name
from unbroken.store.progress import (
    FileDigest,
    Progress,
    amount,
    how_far,
    parse_handover,
    parse_progress,
    read_progress,
    read_told,
)


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
        ({"done": 10**400}, r"x: 'done' is 1(0){59}\.\.\., allowed: a number"),
        ({"done": 1, "goal": 10**400}, r"x: 'goal' is 10+\.\.\., allowed: a number or null"),
        ({"done": 1, "unit": 5}, "x: 'unit' is 5, allowed: text"),
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


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"versions": 5}, "x: 'versions' is 5, allowed: an object"),
        ({"versions": ["torch"]}, r"x: 'versions' is \['torch'\], allowed: an object"),
        ({"save_seconds": float("nan")}, "x: 'save_seconds' is nan, allowed: a number or null"),
        ({"save_seconds": "3"}, "x: 'save_seconds' is '3', allowed: a number or null"),
        ({"save_seconds": True}, "x: 'save_seconds' is True, allowed: a number or null"),
        ({"is_best": 1}, "x: 'is_best' is 1, allowed: true or false"),
        ({"is_finished": "yes"}, "x: 'is_finished' is 'yes', allowed: true or false"),
        ({"is_milestone": []}, r"x: 'is_milestone' is \[\], allowed: true or false"),
    ],
)
def test_a_hand_over_of_another_shape_is_refused_with_what_is_allowed(told: dict[str, object], words: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{words}$"):
        parse_handover({"done": 1, **told}, "x")


def test_half_a_surrogate_pair_is_no_character_that_anybody_has_to_print() -> None:
    half, other = json.loads('["\\ud800", "\\udfff"]')
    told = {"done": 1, "unit": half, "metrics": {other: half}, "versions": {half: other}}

    handover = parse_handover(told, "x")

    progress = handover.progress
    for text in (progress.unit, *progress.metrics, *map(str, progress.metrics.values()), *handover.versions.items()):
        assert str(text).encode()


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "done",
    "goal",
    "unit",
    "metrics",
    "is_best",
    "is_finished",
    "is_milestone",
    "versions",
    "save_seconds",
    "digests",
)


@settings(deadline=None)
@given(strategies.dictionaries(strategies.sampled_from(KEYS), JSON))
def test_whatever_a_program_says_becomes_a_passport_or_one_line(told: dict[str, object]) -> None:
    try:
        handover = parse_handover(told, "x")
    except CheckpointError as error:
        assert "\n" not in str(error) and len(str(error)) < 300
        return
    passport = replace(
        PASSPORT, progress=handover.progress, versions=handover.versions, save_seconds=handover.save_seconds
    )
    assert json.loads(passport.to_text())
    assert len(folder_name(passport).encode()) < 200


def test_json_that_is_nested_deeper_than_python_goes_is_no_progress_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text("[" * 100_000)

    assert read_progress(path) is None
    with pytest.raises(ValueError, match="nested too deeply"):
        read_told(path)


@pytest.mark.parametrize(
    ("done", "shown"),
    [
        (0, "0"),
        (300.0, "300"),
        (1.347826, "1.347"),
        (59.9999, "59.999"),
        (0.00424, "0.0042"),
        (0.625, "0.625"),
        (1e9, "1000000000"),
    ],
)
def test_a_number_is_short_and_never_rounded_up_to_the_goal(done: float, shown: str) -> None:
    assert amount(done) == shown


def test_how_far_a_run_is_names_its_goal_and_unit_where_there_are_any() -> None:
    assert how_far(1200, 5000, "steps") == "1200 of 5000 steps"
    assert how_far(0.5, None, "ns", "/") == "0.5 ns"
    assert how_far(3, 10, "", "/") == "3/10"
