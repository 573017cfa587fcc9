import pytest

from unbroken.config import yaml_file
from unbroken.errors import ConfigError


def written(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path, yaml_file.mistakes(path)


def test_a_run_that_stands_twice_is_named_with_both_lines(tmp_path):
    path, lines = written(tmp_path, "runs:\n  a: {engine: toy}\n  b: {}\n  a: {engine: torch}\n")

    assert lines == [f"{path} line 4: duplicate key runs.a (first in line 2); keep one"]


def test_the_same_key_in_two_runs_is_no_mistake(tmp_path):
    _, lines = written(tmp_path, "runs:\n  a: {engine: toy}\n  b: {engine: toy, settings: {args: [{x: 1}, {x: 2}]}}\n")

    assert lines == []


def test_a_key_twice_inside_a_list_is_found(tmp_path):
    path, lines = written(tmp_path, "runs:\n  - {x: 1, x: 2}\n")

    assert lines == [f"{path} line 2: duplicate key runs.x (first in line 2); keep one"]


def test_what_is_no_yaml_is_left_to_those_who_load_it(tmp_path):
    assert written(tmp_path, "a: [")[1] == []
    assert written(tmp_path, "")[1] == []


def test_aliases_that_stand_for_a_billion_values_are_one_line(tmp_path):
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path, found = written(tmp_path, "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *lines]))

    assert found == [f"{path}: its aliases (*name) stand for more than 1,000,000 values; write out what is meant"]


def test_a_list_that_holds_itself_is_one_line(tmp_path):
    path, found = written(tmp_path, "a: &a [*a]\n")

    assert found == [f"{path}: its aliases (*name) stand for more than 1,000,000 values; write out what is meant"]


def test_defaults_that_many_runs_share_by_an_alias_are_no_mistake(tmp_path):
    runs = "".join(f"  r{n}: *usual\n" for n in range(500))

    assert written(tmp_path, f"usual: &usual {{engine: toy, settings: {{goal: 3}}}}\nruns:\n{runs}")[1] == []


@pytest.mark.process
def test_lists_in_lists_without_end_are_left_to_those_who_load_them(tmp_path):
    assert written(tmp_path, "a: " + "[" * 1500)[1] == []


def test_a_file_that_is_read_for_minutes_is_not_read(tmp_path):
    path = tmp_path / "config.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)

    assert yaml_file.unreadable(path) == [f"{path}: 50 MB, allowed: at most 20 MB; name large data by its path"]
    assert yaml_file.unreadable(tmp_path / "none.yaml") == []


def test_reading_refuses_all_of_that_in_one_go(tmp_path):
    path, lines = written(tmp_path, "a: 1\nb: 2\na: 3\nb: 4\n")
    with pytest.raises(ConfigError) as refused:
        yaml_file.read(path)

    assert refused.value.mistakes == lines
    assert len(lines) == 2

    path.write_text("a: [")
    with pytest.raises(ConfigError, match=r"config\.yaml line 1: a \[ or { that nothing closes"):
        yaml_file.read(path)

    path.write_text("a: {b: [1, 2.5, yes]}")
    assert yaml_file.read(path) == {"a": {"b": [1, 2.5, True]}}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"runs:\n\tdemo: {}\n", " line 2: a tab; type spaces"),
        (b"runs:\n  demo:\n\t  engine: toy\n", " line 3: a tab; type spaces"),
        (b"runs:\n  demo:\n    engine toy\n    segments: 3\n", " line 4: `segments: 3` cannot stand here; is a colon "),
        (b"runs:\n  demo:\n    segments: 3\n    engine toy\n", " line 4: a colon is missing; type `name: value`"),
        (b"runs:\n  demo:\n    engine: toy\n   segments: 3\n", " line 4: `segments: 3` is indented otherwise than"),
        (b"runs:\n  demo: {note: a: b}\n", " line 2: a [ or { that nothing closes, or a comma is missing in it"),
        (b"runs:\n  demo:\n    note: 'it\n    engine: toy\n", " line 3: a quotation mark that nothing closes"),
        (b"runs: *usual\n", " line 1: not YAML: found undefined alias 'usual'"),
        ("runs: {}".encode("utf-16"), ": UTF-16, allowed: text saved as UTF-8"),
        (b"a: 1\nb: \xff\xfe\n", " line 2: bytes that are not UTF-8, allowed: text saved as UTF-8"),
        (b"a: \x00\n", ": not YAML: unacceptable character #x0000"),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line_and_what_to_type(tmp_path, content, line):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        yaml_file.read(path)

    assert str(refused.value).startswith(f"{path}{line}")
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_config(tmp_path):
    with pytest.raises(ConfigError, match="a folder, allowed: a YAML file"):
        yaml_file.read(tmp_path)
