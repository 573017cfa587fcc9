"""Small disks of one's own, for tests that fill them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.disks import mount_small, unmount

Mount = Callable[[str], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system of its own over results/ in tmp_path; takes mount options, gives the working directory."""
    place = tmp_path / "results"

    def mount(options: str) -> Path:
        place.mkdir(exist_ok=True)
        mount_small(place, options)
        return tmp_path

    yield mount
    unmount(place)
