"""Find the Python that has the programs with a preset that pip brings: an environment of its own, as a user has one."""

from pathlib import Path

from support.needs import skip_or_fail

from unbroken.config.package_files import root_folder

VENV = root_folder() / ".venv-presets"


def presets_python() -> Path:
    """Return the python of `make presets-setup`; without it the test is skipped, in CI failed."""
    python = VENV / "bin" / "python"
    if not (VENV / "setup-done").exists():
        skip_or_fail("missing: .venv-presets (make presets-setup)")
    return python
