from collections.abc import Iterator
from pathlib import Path

import pytest
from support.exec_calls import Called


@pytest.fixture
def called(tmp_path: Path) -> Iterator[Called]:
    found = Called(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
