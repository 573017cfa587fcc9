from longhaul.written_twice import keys_written_twice


def written(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path, keys_written_twice(path)


def test_a_run_that_stands_twice_is_named_with_both_lines(tmp_path):
    path, lines = written(tmp_path, "runs:\n  a: {engine: toy}\n  b: {}\n  a: {engine: torch}\n")

    assert lines == [f"{path} line 4: runs.a stands there twice (first in line 2); keep one"]


def test_the_same_key_in_two_runs_is_no_mistake(tmp_path):
    _, lines = written(tmp_path, "runs:\n  a: {engine: toy}\n  b: {engine: toy, settings: {args: [{x: 1}, {x: 2}]}}\n")

    assert lines == []


def test_a_key_twice_inside_a_list_is_found(tmp_path):
    path, lines = written(tmp_path, "runs:\n  - {x: 1, x: 2}\n")

    assert lines == [f"{path} line 2: runs.x stands there twice (first in line 2); keep one"]


def test_what_is_no_yaml_is_left_to_those_who_load_it(tmp_path):
    assert written(tmp_path, "a: [")[1] == []
    assert written(tmp_path, "")[1] == []
