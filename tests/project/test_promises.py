"""The table of promises, which decides what is never run again."""

from fnmatch import fnmatch

import pytest
from support.promises import PROMISES, TESTS, is_promise

FILES = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]


@pytest.mark.parametrize("pattern", PROMISES)
def test_each_pattern_finds_a_file_so_that_no_new_name_drops_a_promise(pattern):
    assert [name for name in FILES if fnmatch(name, pattern)] != []


@pytest.mark.parametrize(
    "name",
    [
        "protocol/test_kill_at_every_step.py",
        "engines/test_conformance.py",
        "engines/test_tensorflow_kills.py",
        "workflow/test_kills.py",
        "workflow/test_two_drivers.py",
        "cluster/test_drivers.py",
        "unit/test_training_device_kills.py",
        *(f"unit/test_{word}.py" for word in ("store", "lease", "select", "salvage", "history")),
    ],
)
def test_what_may_never_fail_is_a_promise(name):
    assert name in FILES
    assert is_promise(TESTS / name)


def test_others_are_none():
    assert not is_promise(TESTS / "unit" / "test_config.py")
    assert not is_promise(TESTS.parent / "test_kills.py")


def test_the_marker_is_set_on_this_very_run(pytestconfig, request):
    promised = {item.path for item in request.session.items if item.get_closest_marker("promise")}
    collected = {item.path for item in request.session.items}

    assert promised == {path for path in collected if is_promise(path)}
    for item in request.session.items:
        if item.get_closest_marker("promise"):
            assert item.get_closest_marker("flaky").kwargs == {"reruns": 0}
