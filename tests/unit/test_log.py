"""Log records go where a process says."""

import json
import logging

import pytest

from unbroken.system import log

logger = logging.getLogger("unbroken.somewhere")


def test_the_innermost_context_has_the_lines(tmp_path):
    outer, inner = [], []
    with log.lines_to(outer.append):
        logger.info("one %d", 1)
        with log.lines_to(inner.append):
            logger.info("two")
        logger.debug("not by default")
    logger.info("nobody's")

    assert (outer, inner) == (["one 1"], ["two"])


def test_contexts_of_threads_may_end_in_any_order():
    found = []
    outer, first, second = (log.lines_to(found.append) for _ in range(3))
    with outer:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        logger.info("one reader is left")

    assert found == ["one reader is left"]
    assert logging.getLogger("unbroken").handlers == []


def test_the_level_and_the_json_lines_are_set_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("UNBROKEN_LOG", "debug")
    monkeypatch.setenv("UNBROKEN_LOG_JSON", str(tmp_path / "log.jsonl"))
    found = []
    with log.lines_to(found.append):
        logger.debug("a detail")

    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert found == ["a detail"]
    assert line.pop("time").endswith("Z")
    assert line == {"level": "debug", "logger": "unbroken.somewhere", "message": "a detail"}


def test_a_log_that_cannot_be_written_ends_no_work_and_prints_no_traceback(capsys):
    def broken(line: str) -> None:
        raise OSError(line)

    with log.lines_to(broken):
        logger.warning("a full disk")

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("UNBROKEN_LOG_JSON", "/dev/full", "/dev/full: No space left on device; lines of the log are missing there"),
        ("UNBROKEN_LOG_JSON", "none/x", "none/x: No such file or directory; lines of the log are missing there"),
        ("UNBROKEN_LOG", "loud", "found 'loud', allowed: debug, info, warning, error; taken as info"),
    ],
)
def test_what_cannot_be_meant_is_one_line_once(monkeypatch, tmp_path, capsys, name, value, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    log._complain.cache_clear()
    found = []
    for _ in range(2):
        with log.lines_to(found.append):
            logger.info("one")
            logger.info("two")

    assert capsys.readouterr().err == f"unbroken: {name}: {said}\n"
    assert found == ["one", "two"] * 2


def test_a_reader_that_logs_itself_ends_in_no_circle():
    with log.lines_to(logger.info):
        logger.info("round and round")
