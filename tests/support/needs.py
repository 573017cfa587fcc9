"""Real components that a test asks for by name (tools/components.txt)."""

import os

import pytest
from components import read_components

IN_CI = os.environ.get("UNBROKEN_CI") == "1"


def require(*names: str) -> None:
    """Skip this test, or fail it in CI, where a component of tools/components.txt is missing."""
    known = read_components()
    missing = [name for name in names if not known[name].is_here()]
    if not missing:
        return
    skip_or_fail(f"missing: {', '.join(missing)} (on Debian and Ubuntu: apt-get install {' '.join(missing)})")


def skip_or_fail(reason: str) -> None:
    """Leave this test out, where anybody runs it; in CI nothing may be missing."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
