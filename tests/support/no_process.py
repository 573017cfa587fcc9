"""A pytest plugin: a test without the marker `process` starts none, so that `make quick` stays quick.

An audit hook stops whatever would start one, before it does, and the test fails.
"""

import multiprocessing.util
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "unbroken.spawn"}
FREE = ("process", "slow", "slurm", "gpu", "tensorflow")


class Watch:
    """What the test that runs has tried to start; None where it may."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._others: set[int | None] = set()
        self._started: list[str] | None = None
        sys.addaudithook(self._audit)
        spawn = multiprocessing.util.spawnv_passfds

        # Python has no audit event for this way.
        def audited(path: Any, *arguments: Any) -> int:
            sys.audit("unbroken.spawn", path)
            return spawn(path, *arguments)

        multiprocessing.util.spawnv_passfds = audited

    @contextmanager
    def over(self, item: pytest.Item) -> Iterator[None]:
        """Fail the test even if it swallowed the error, or met it in a thread of its own."""
        if any(item.get_closest_marker(name) for name in FREE):
            yield
            return
        # What earlier tests have left still runs in threads of theirs.
        self._others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._started = started = []
        try:
            yield
        finally:
            self._started = None
        if started:
            _fail(started[0])

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in STARTS or self._started is None or threading.get_ident() in self._others:
            return
        if os.getpid() == self._pid:
            what = f"{event} {arguments[1] if event == 'subprocess.Popen' else ''}".strip()[:200]
            self._started.append(what)
            _fail(what)


def _fail(what: str) -> None:
    pytest.fail(f"a process was started: {what}; if it has to be: @pytest.mark.process", pytrace=False)


WATCH = Watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with WATCH.over(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with WATCH.over(item):
        return (yield)
