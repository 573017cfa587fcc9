"""A pytest plugin for tests that start no process: `-p quick_tests --quick`, and `--quick-list` to find out which do.

An audit hook stops whatever starts a process before it does, and the test fails. tests/not_quick.txt names the tests
that a quick run leaves out; it is written by `make quick-list`. What is new is tried until somebody lists it.
`--quick-kept` runs all tests and watches those that are not listed, so that CI sees what would make `make quick` red.
"""

import multiprocessing.util
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIST = "tests/not_quick.txt"
HEADING = "# What `make quick` leaves out, and why. Written by: make quick-list [FILES=tests/...]\n"
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "unbroken.spawn"}
A_PROCESS = "a process was started"
# All calls of a test, with all its parameters.
SLOW_SECONDS = 2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two ways to run, and where the list lies."""
    group = parser.getgroup("quick tests")
    group.addoption("--quick", action="store_true", help="run what starts no process; a test that does so fails")
    group.addoption("--quick-kept", action="store_true", help="run all; what is not listed and starts a process fails")
    group.addoption("--quick-list", action="store_true", help="try all, and write the list of what is not quick")
    group.addoption("--quick-file", metavar="FILE", default=LIST, help=f"the list ({LIST})")


def pytest_configure(config: pytest.Config) -> None:
    """Processes are watched where tests run, the list is written where somebody waits for it."""
    table = config.rootpath / config.getoption("--quick-file")
    if config.getoption("--quick"):
        config.pluginmanager.register(Selection(read_list(table), config.rootpath), "quick-selection")
    is_kept = config.getoption("--quick-kept")
    if config.getoption("--quick") or is_kept or config.getoption("--quick-list"):
        listed = read_list(table) if is_kept else {}
        config.pluginmanager.register(Watch(not config.getoption("--quick-list"), listed), "quick-watch")
    if config.getoption("--quick-list") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ListWriter(table, config.rootpath), "quick-list")


def read_list(table: Path) -> dict[str, str]:
    """Reasons by file or by `file::test`, without parameters."""
    lines = table.read_text().splitlines() if table.exists() else []
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


class Selection:
    """Leaves out what is listed, and whole files before they are imported."""

    def __init__(self, listed: dict[str, str], root: Path) -> None:
        self._listed = listed
        self._root = root

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """None lets others decide."""
        return True if _relative(collection_path, self._root) in self._listed else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """The tests of a file of which some are quick."""
        out = [item for item in items if _function(item.nodeid) in self._listed]
        items[:] = [item for item in items if _function(item.nodeid) not in self._listed]
        config.hook.pytest_deselected(items=out)


class Watch:
    """Stops what starts a process during a test, in any of its phases and threads.

    Beside `listed` tests, which may start some, it takes no notice of what those have left: their threads, and fixtures
    that end with a later test.
    """

    def __init__(self, fails: bool, listed: dict[str, str]) -> None:
        self._fails = fails
        self._listed = listed
        self._others: set[int] = set()
        self._started: list[str] | None = None
        self._pid = os.getpid()
        sys.addaudithook(self._audit)
        self._watch_spawn()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """From the first fixture's set-up to the last one's tear-down."""
        name = _function(item.nodeid)
        if self._listed:
            self._others = {thread.ident or 0 for thread in threading.enumerate()} - {threading.get_ident()}
        self._started = None if name in self._listed or _file(name) in self._listed else []
        result = yield
        self._started = None
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """Where others may have begun what ends here, nothing is stopped."""
        started = self._started
        self._started = None if self._listed else started
        yield
        self._started = started

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Also where the test itself passed over the error, or an earlier test met it in their fixture."""
        report = yield
        if self._started == [] and report.failed and A_PROCESS in report.longreprtext:
            self._started = ["by a fixture"]
        if self._started:
            file, line, _ = item.location
            words = f"{A_PROCESS} ({self._started[0]}); if it has to be: make quick-list FILES={file}"
            report.outcome = "failed" if self._fails else "skipped"
            report.longrepr = words if self._fails else (file, line or 0, words)
            report.kind = A_PROCESS
            self._started = []
        return report

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in STARTS or self._started is None or threading.get_ident() in self._others:
            return
        if os.getpid() == self._pid:
            what = f"{event} {arguments[1] if event == 'subprocess.Popen' else ''}".strip()[:200]
            self._started.append(what)
            pytest.fail(f"{A_PROCESS}: {what}", pytrace=False)

    def _watch_spawn(self) -> None:
        # Python has no audit event for this way.
        spawn = multiprocessing.util.spawnv_passfds

        def audited(path: Any, *arguments: Any) -> int:
            sys.audit("unbroken.spawn", path)
            return spawn(path, *arguments)

        multiprocessing.util.spawnv_passfds = audited


class ListWriter:
    """Writes the list anew for the files that were run, by what their tests did."""

    def __init__(self, table: Path, root: Path) -> None:
        self._table = table
        self._root = root
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """With workers and without."""
        test = _function(report.nodeid)
        self._seconds[test] += report.duration
        if getattr(report, "kind", None) == A_PROCESS:
            self._reasons[test] = "process"
        elif report.failed:
            self._reasons.setdefault(test, "failed")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Of what was not tried the old reasons hold."""
        # It fails by what an earlier test could not start; if it is broken, other stages say so.
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK
        reasons = {test: self._reason(test) for test in self._seconds}
        tried = {_file(test) for test in reasons}
        listed = {
            name: reason
            for name, reason in read_list(self._table).items()
            if _file(name) not in tried and (self._root / _file(name)).exists()
        }
        for file in tried:
            of_file = {test: reason for test, reason in reasons.items() if _file(test) == file}
            if all(reason in ("process", "failed") for reason in of_file.values()):
                listed[file] = "process"
            else:
                listed |= {test: reason for test, reason in of_file.items() if reason is not None}
        lines = [f"{name}  {reason}\n" for name, reason in sorted(listed.items())]
        self._table.write_text(HEADING + "".join(lines))

    def _reason(self, test: str) -> str | None:
        if test in self._reasons:
            return self._reasons[test]
        return f"{self._seconds[test]:.0f} s" if self._seconds[test] > SLOW_SECONDS else None


def _function(test: str) -> str:
    return re.split(r"\[|@", test, maxsplit=1)[0]


def _file(name: str) -> str:
    return name.split("::")[0]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
