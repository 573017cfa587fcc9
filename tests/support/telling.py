"""What unbroken tells a program, told to this process; the program's signal handlers are taken back in the end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unbroken.training.core import once


@contextmanager
def told_here(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> Iterator[Path]:
    """The contract's variables, in this process's environment, with all files in the folder; `more` adds or changes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    (folder / "save").mkdir()
    told: dict[str, object] = {"RUN": "demo", "RESUME": "", "SAVE": folder / "save", "DEADLINE": "1e12"}
    told |= {"STOP": folder / "stop", "PROGRESS": folder / "progress.json", "SAVE_SECONDS": "1000", **more}
    for name, value in told.items():
        monkeypatch.setenv(f"UNBROKEN_{name}", str(value))
    try:
        yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begin_as_a_new_process() -> None:
    """For a test that plays several attempts: what this process has trained before is forgotten."""
    once._begun.clear()
    once._finished.clear()
