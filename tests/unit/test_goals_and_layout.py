"""Goals in a program's own metrics, and the parts of an identity that may change where the config says so."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.making import PASSPORT
from support.toyrun import toy_run

from unbroken.errors import FormatError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.progress import Progress
from unbroken.store.run import Identity, IdentityKeys, accept_identity, identity_of, usable_identities

LAYOUT = IdentityKeys((), (), (), layout_keys=("seed",), layout_run_keys=("threads",), switch_key="step_seconds")


@pytest.mark.parametrize(
    ("reached", "wanted", "claim"),
    [(20.0, 20, True), (19.9999995, 20, True), (20.0, 20.1, False), (None, 5, True), (30.0, 20, True)],
)
def test_a_goal_in_a_metric_reopens_a_run_when_it_is_raised(reached: float | None, wanted: float, claim: bool) -> None:
    metrics = {} if reached is None else {"time_ps": reached}
    run = replace(toy_run(goal=None), metric_goals={"time_ps": wanted})

    assert run.is_content_with(Progress(100, 100, "steps", metrics)) is claim


def identity(threads: int, is_open: bool) -> Identity:
    return identity_of(toy_run(threads=threads, step_seconds=is_open), LAYOUT)


@pytest.mark.parametrize(("is_open", "claim"), [(True, True), (False, False)])
def test_another_layout_is_usable_only_where_the_config_allows_it(tmp_path: Path, is_open: bool, claim: bool) -> None:
    was = identity(1, is_open=False)
    made = Checkpoint(tmp_path, replace(PASSPORT, identity=was.digest, identity_parts=was.parts))

    usable = usable_identities(identity(2, is_open), tmp_path / "accepted.json", [made])

    assert (was.digest in usable) is claim


def test_the_switch_alone_is_never_a_difference(tmp_path: Path) -> None:
    was, now = identity(1, is_open=True), identity(1, is_open=False)

    assert now.is_alike(was.parts)
    assert now.differences(was.parts) == []
    assert identity(2, is_open=False).differences(was.parts) == ["threads was 1, is 2"]


def test_long_values_are_shown_where_they_differ() -> None:
    words = "[" + ", ".join(f'"--option-{number}"' for number in range(20))
    was, now = ({"settings.start": f'{words}, "--seed", "{seed}", "--end", "{"x" * 50}"]'} for seed in (1, 2))

    (line,) = Identity("", now).differences(was)

    assert '"--seed", "1"' in line.partition(", is ")[0]
    assert '"--seed", "2"' in line.partition(", is ")[2]
    assert len(line) < 180


def test_a_changed_file_is_named_with_its_setting(tmp_path: Path) -> None:
    part, path = "content of settings.inputs raw.bin", tmp_path / "raw.bin"
    now = Identity("", {part: "sha256 other"}, files={part: path})

    assert now.differences({part: "sha256 one"}) == [f"{path} (settings.inputs) was changed"]


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 2, "accepted": []}', "{}"])
def test_accepted_identities_of_another_format_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "accepted.json"
    path.write_text(text)

    for ask in (lambda: usable_identities(Identity("1", {}), path, []), lambda: accept_identity(path, "0", [])):
        with pytest.raises(FormatError, match=r"accepted\.json: found format .*; nothing was changed"):
            ask()

    assert path.read_text() == text


def test_a_key_that_came_later_and_is_empty_changes_nothing() -> None:
    now = Identity("new", {"settings.start": '["sh"]', "settings.edits": "[]", "settings.put": "{}"})

    assert now.is_alike({"settings.start": '["sh"]'})
    assert now.is_alike({"settings.start": '["sh"]', "settings.gone": "null"})
    assert now.differences({"settings.start": '["sh"]', "settings.edits": '["a"]'}) == [
        'settings.edits was ["a"], is []'
    ]
    assert now.differences({}) == ['settings.start was absent, is ["sh"]']
