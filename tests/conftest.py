"""What every test may use: real components, asked for by name."""

import os

import pytest
from components import read_components

IN_CI = os.environ.get("LONGHAUL_CI") == "1"


def require(*names: str) -> None:
    """Skip this test, or fail it in CI, where a component of tools/components.txt is missing."""
    known = read_components()
    missing = [name for name in names if not known[name].is_here()]
    if not missing:
        return
    reason = f"missing: {', '.join(missing)} (on Debian and Ubuntu: apt-get install {' '.join(missing)})"
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)


@pytest.fixture
def in_ci() -> bool:
    """True where a skip for want of something would be a failure."""
    return IN_CI
