"""A pytest plugin for the time that CI has, given by variables of the environment (`.ci/run` sets them).

UNBROKEN_TESTS_DEADLINE     seconds since 1970: a test still running fails, none begins any more, the stage is red
UNBROKEN_TESTS_BEGIN_UNTIL  seconds since 1970 after which no test begins; this alone makes no stage red
UNBROKEN_TESTS_HALF         a number: of the tests marked `slow` run the half of the even ones, or of the odd ones
"""

import os
import time
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest
import pytest_timeout

DEADLINE = float(os.environ.get("UNBROKEN_TESTS_DEADLINE") or "inf")
BEGIN_UNTIL = min(float(os.environ.get("UNBROKEN_TESTS_BEGIN_UNTIL") or "inf"), DEADLINE)
HALF = os.environ.get("UNBROKEN_TESTS_HALF")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NotRun())


def pytest_report_header() -> str | None:
    return f"slow tests: half {int(HALF) % 2 + 1} of 2" if HALF else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other half, by each test's own name, so that a new test moves no other one."""
    slow = [item for item in items if HALF and item.get_closest_marker("slow")]
    out = {item for item in slow if (crc32(item.nodeid.encode()) + int(HALF or 0)) % 2}
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=[*out])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> bool | None:
    """Pass over a test that would begin too late."""
    return None if time.time() < BEGIN_UNTIL else True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """Let no test run beyond the deadline; its fixtures still clean up."""
    seconds = min(settings.timeout, max(DEADLINE - time.time(), 0.1))
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=seconds))


class NotRun:
    """Names what was collected and did not come to its end; only too late a beginning excuses it."""

    def __init__(self) -> None:
        self._tests: dict[str, None] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tests |= dict.fromkeys(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._tests = dict.fromkeys(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in ("setup", "call"):
            self._tests.pop(report.nodeid, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._tests and session.exitstatus == 0 and not BEGIN_UNTIL <= time.time() < DEADLINE:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._tests:
            terminalreporter.ensure_newline()
            terminalreporter.section(f"did not run, or not to the end: {len(self._tests)}")
            terminalreporter.write_line("\n".join(self._tests))
