"""A browser for all tests of one process, and working directories for real runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.needs import require
from support.workdir import WorkDir


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    require("chromium", "chromium-driver")
    from support.browser import browser as opened

    with opened() as one:
        yield one


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDir]:
    """An empty working directory whose drivers write the page; what still runs at the end of the test is killed."""
    directory = WorkDir(tmp_path / "work", added_environment={"UNBROKEN_REPORT": "on"})
    directory.root.mkdir()
    yield directory
    directory.kill_everything()
