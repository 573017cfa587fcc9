"""A pytest plugin that writes down what a stage collected and how each test went, one JSON line per event.

`python tools/stage_report.py PYTEST-ARGUMENTS` is pytest with this folder on its path, which no child inherits.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest

SLOWEST = 10
TOLD_BY_TIMEOUT = "from pytest-timeout"
TOO_LATE = "no test begins any more"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that the runner sets."""
    group = parser.getgroup("stage report")
    group.addoption("--stage-report", metavar="FILE", help="write what was collected and how each test went")
    group.addoption("--only-test", metavar="ID", help="of all that the other arguments choose, this one test")
    group.addoption("--begin-until", metavar="SECONDS", type=float, help="no test begins later (seconds since 1970)")
    group.addoption("--first-file", metavar="N", type=int, default=0, help="begin with the Nth file of tests, modulo")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that a person started writes; workers mark what they report."""
    if only := config.getoption("--only-test"):
        config.args = [only]
    if hasattr(config, "workerinput") or not config.getoption("--stage-report"):
        return
    config.pluginmanager.register(Writer(Path(config.getoption("--stage-report"))), "stage-report-writer")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where not all can run, it is not the same ones each time."""
    first = config.getoption("--first-file")
    files = list(dict.fromkeys(item.path for item in items))
    if first and files:
        at = files.index(files[first % len(files)])
        place = {file: number for number, file in enumerate(files[at:] + files[:at])}
        items.sort(key=lambda item: place[item.path])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a worker has measured is kept now: pytest-xdist kills one that takes more than ten seconds to leave."""
    measured = sys.modules.get("coverage")
    if hasattr(session.config, "workerinput") and measured and (coverage := measured.Coverage.current()):
        coverage.save()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """A test that would begin too late is told as one that did not run."""
    until = item.config.getoption("--begin-until")
    if until is None or time.time() <= until:
        return None
    why = (str(item.path), 0, TOO_LATE)
    report = pytest.TestReport(item.nodeid, item.location, {}, "skipped", why, "setup", was_left_out=True)
    item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure carries its kind from the worker to the writer."""
    report = yield
    if report.failed and call.excinfo is not None and _is_timeout(call.excinfo.value):
        report.kind = "a time-out"
    elif report.failed:
        report.kind = "a promise" if item.get_closest_marker("promise") else "failure"
    return report


class Writer:
    """Writes events to a file, each as soon as it is known, and shows the slowest tests at the end."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w")
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._has_collected = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers."""
        self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """With workers: each collects all."""
        if not self._has_collected:
            self._collected(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected has no second chance."""
        if report.failed:
            self._write(event="collection error", id=report.nodeid, text=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of a test's three phases, or the crash of its worker, or that it was left out."""
        test = plain_id(report.nodeid)
        if getattr(report, "was_left_out", False):
            self._write(event="left out", id=test)
            return
        self._seconds[test] += report.duration
        # This is how xdist reports the test during which a worker went.
        crashed = report.when not in ("setup", "call", "teardown")
        self._write(
            event="phase",
            id=test,
            outcome=report.outcome,
            seconds=report.duration,
            is_last=crashed or report.when == "teardown",
            kind="a crashed worker" if crashed else getattr(report, "kind", "failure"),
            text=report.longreprtext if report.failed else "",
            printed=[] if report.skipped else [[title, text] for title, text in report.sections],
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Above pytest's own closing lines, which stay the last."""
        slowest = sorted(self._seconds.items(), key=lambda pair: pair[1], reverse=True)[:SLOWEST]
        if slowest:
            terminalreporter.ensure_newline()
            terminalreporter.section("slowest tests, with set-up and tear-down")
        for test, seconds in slowest:
            terminalreporter.write_line(f"{seconds:8.1f} s  {test}")

    def _collected(self, ids: Sequence[str]) -> None:
        self._has_collected = True
        self._write(event="collected", ids=[plain_id(test) for test in ids])

    def _write(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


def plain_id(test: str) -> str:
    """A test's id without the `@group` that xdist hangs on it."""
    return test[: test.rfind("@")] if test.rfind("@") > max(test.rfind("]"), test.rfind("::")) else test


def _is_timeout(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, pytest.fail.Exception) and TOLD_BY_TIMEOUT in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    sys.exit(pytest.main())
