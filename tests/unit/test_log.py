"""Log records go where a process says."""

import json
import logging

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


def test_a_log_that_cannot_be_written_ends_no_work(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def broken(line: str) -> None:
        raise OSError(line)

    with log.lines_to(broken):
        logger.warning("a full disk")


def test_a_reader_that_logs_itself_ends_in_no_circle():
    with log.lines_to(logger.info):
        logger.info("round and round")
