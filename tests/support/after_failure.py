"""A pytest plugin: what a failed test has left open is closed when Python collects it, and fails no later test."""

from collections.abc import Generator

import pytest

_FAILED = pytest.StashKey[bool]()  # a test has failed in this process


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.config.stash[_FAILED] = True
    return report


# A wrapper, to be before the one of pytest that reads the marker.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.config.stash.get(_FAILED, False):
        item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    return (yield)
