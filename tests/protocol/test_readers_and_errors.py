"""The promise: what only reads changes nothing, and a disk that fails at any call costs one line and no traceback."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
import yaml
from protocol.kill_harness import Steps, forked
from support.snapshots import snapshot
from support.toyrun import toy, toy_run

from longhaul import cli
from longhaul.errors import LonghaulError
from longhaul.plan import Plan
from longhaul.slurm import my_jobs

GOAL = 20
CONFIG = Path("config/config.yaml")
ERRORS = ("ESTALE", "ENOTCONN", "ETIMEDOUT", "EACCES", "EROFS", "ENOSPC", "EDQUOT", "EBUSY", "ENOTEMPTY", "EMFILE")


def plan(base: Path) -> None:
    found = Plan((toy_run(goal=GOAL + 20),), base, is_driver=True)
    found.check()
    found.targets()
    found.has_nothing_to_do()
    found.report()


READERS: dict[str, Callable[[Path], None]] = {
    "status": lambda base: cli.status(base, CONFIG),
    "status --json": lambda base: cli.status(base, CONFIG, as_json=True),
    "verify": lambda base: cli.verify([], base),
    "plan": plan,
}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with checkpoints, records, history and results."""
    monkeypatch.setattr(my_jobs, "ask", lambda *words, **more: None)  # Slurm is another story
    base = tmp_path / "base"
    toy(base, goal=GOAL, save_steps=5, keep=3)
    settings = {"goal": GOAL, "step_seconds": 0, "save_steps": 5}
    run = {"engine": "toy", "segments": 3, "segment_minutes": 1, "settings": settings}
    (base / "config").mkdir()
    (base / CONFIG).write_text(yaml.safe_dump({"runs": {"demo": run}}))
    return base


def calls(base: Path, reader: str) -> int:
    """How many calls of `os` it makes below the run's folder."""

    def count() -> None:
        steps = Steps(base / "results", mode="EIO")
        with contextlib.suppress(typer.Exit):
            READERS[reader](base)
        (base / "count").write_text(str(len(steps.names)))

    assert forked(count, base / "screen")[1] == 0, (base / "screen").read_text()
    found = int((base / "count").read_text())
    assert found > 15, "the harness sees the calls"
    return found


def failing(base: Path, reader: str, error: str) -> list[str]:
    """What went wrong, for each of its calls in turn."""
    count, wrong = calls(base, reader), []
    before = snapshot(base / "results")
    for at in range(1, count + 1):
        (base / "screen").unlink()

        def attempt(at: int = at) -> None:
            Steps(base / "results", at, error)
            with contextlib.suppress(LonghaulError, typer.Exit):
                READERS[reader](base)

        _, status = forked(attempt, base / "screen")
        if status != 0:
            wrong.append(f"call {at}: {os.waitstatus_to_exitcode(status)}: {(base / 'screen').read_text()[-2000:]}")
        if snapshot(base / "results") != before:
            wrong.append(f"call {at}: changed something")
    return wrong


@pytest.mark.parametrize("reader", READERS)
def test_a_disk_that_fails_at_any_call_of_a_reader_costs_one_line(base: Path, reader: str) -> None:
    assert "\n".join(failing(base, reader, "EIO")[:3]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("reader", READERS)
def test_whatever_the_disk_says_at_any_call_of_a_reader_costs_one_line(base: Path, reader: str, error: str) -> None:
    assert "\n".join(failing(base, reader, error)[:3]) == ""
