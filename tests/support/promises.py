"""Which tests keep a promise of the project: no work lost, none done twice, no torn checkpoint.

One of them that fails once is a fault, also if it passes afterwards, so it is never run again (tests/conftest.py).
"""

from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).parents[1]

# Folders and files below tests/, so that nobody has to think of a marker.
PROMISES = (
    "protocol/*",
    "exec/test_exec.py",
    "engines/test_conformance.py",
    "*/test_*kill*.py",
    "*/test_*drivers.py",
    "*/test_store.py",
    "*/test_atomic_directory.py",
    "*/test_torch_files.py",
    "*/test_fs.py",
    "*/test_parts.py",
    "*/test_lease.py",
    "*/test_select.py",
    "*/test_segment_goes_on.py",
    "*/test_records.py",
    "*/test_salvage.py",
    "*/test_history.py",
    "*/test_*mishaps.py",
)


def is_promise(path: Path) -> bool:
    """Return True if the tests of this file are promises."""
    if not path.is_relative_to(TESTS):
        return False
    name = path.relative_to(TESTS).as_posix()
    return any(fnmatch(name, pattern) for pattern in PROMISES)
