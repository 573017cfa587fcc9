"""What unbroken tells a program, told to this process."""

from pathlib import Path

import pytest

from unbroken.training.core import once


def tell_here(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> Path:
    """Set the contract's variables in this process's environment, all files in the folder; `more` adds or changes."""
    (folder / "save").mkdir()
    told: dict[str, object] = {"RUN": "demo", "RESUME": "", "SAVE": folder / "save", "DEADLINE": "1e12"}
    told |= {"STOP": folder / "stop", "PROGRESS": folder / "progress.json", "SAVE_SECONDS": "1000", **more}
    for name, value in told.items():
        monkeypatch.setenv(f"UNBROKEN_{name}", str(value))
    return folder


def begin_as_a_new_process() -> None:
    """For a test that plays several attempts: what this process has trained before is forgotten."""
    once._begun.clear()
    once._finished.clear()
