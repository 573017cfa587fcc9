"""A working directory for each test, and the certainty that it leaves no process behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.workdir import WorkDir, uninterrupted


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDir]:
    """An empty working directory; what still runs in it at the end of the test is killed."""
    directory = WorkDir(tmp_path / "work")
    directory.root.mkdir()
    yield directory
    directory.kill_everything()


@pytest.fixture
def whole(tmp_path: Path):
    """The result of a toy run in one piece: `whole(goal, seed)`."""
    return lambda goal, seed=0: uninterrupted(tmp_path / f"whole_{goal}_{seed}", goal, seed)
