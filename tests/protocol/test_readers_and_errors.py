"""The promise: what only reads changes nothing, and a disk that fails at any call costs one line and no traceback."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from protocol.kill_harness import KINDS, Steps, forked
from support.snapshots import snapshot
from support.toyrun import toy_script

from unbroken.cli import main as cli
from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.job.attempt import Job
from unbroken.plan.load import load_plan

pytestmark = pytest.mark.process

SETTINGS = {"goal": 20, "step_seconds": 0, "save_steps": 5}
RUN = {"engine": "toy", "segments": 3, "segment_minutes": 1, "keep": 3, "settings": SETTINGS}


def command(*words: str) -> Callable[[], None]:
    def run() -> None:
        sys.argv = ["unbroken", *words]
        cli.main()

    return run


def plan() -> None:
    """What a start of snakemake reads before it plans: of a goal that was raised, so that all counts."""
    load_plan({"runs": {"demo": {**RUN, "settings": {**SETTINGS, "goal": 40}}}}, is_driver=True).targets()


READERS = {
    "status": command("status"),
    "status --json": command("status", "--json"),
    "verify": command("verify"),
    "plan": plan,
}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with checkpoints, records, history and results."""
    monkeypatch.setenv("PATH", "/no/slurm/here")
    base = tmp_path / "base"
    (base / "config").mkdir(parents=True)
    (base / "logs" / "demo").mkdir(parents=True)
    (base / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": RUN}}))
    (run,) = read_checked_runs({"runs": {"demo": RUN}}, base)
    toy_script().segment(Job(run, known_schemas().engines["toy"].identity, 1, 1, base))
    monkeypatch.chdir(base)
    return base


def calls(base: Path, reader: str) -> int:
    """How many calls of `os` it makes below the run's folder."""

    def count() -> None:
        steps = Steps(Path("results"), mode="EIO")
        with contextlib.suppress(SystemExit):
            READERS[reader]()
        (base / "count").write_text(str(len(steps.names)))

    assert forked(count, base / "screen")[1] == 0, (base / "screen").read_text()
    found = int((base / "count").read_text())
    assert found > 15, "the harness sees the calls"
    return found


def failing(base: Path, reader: str, errors: Sequence[str]) -> list[str]:
    """What went wrong, for each of its calls in turn; the errors share them."""
    count, wrong = calls(base, reader), []
    before = snapshot(base / "results")
    for at in range(1, count + 1):
        (base / "screen").unlink()

        def attempt(at: int = at) -> None:
            Steps(Path("results"), at, errors[at % len(errors)])
            with contextlib.suppress(SystemExit):
                READERS[reader]()

        _, status = forked(attempt, base / "screen")
        said = (base / "screen").read_text()
        if status != 0 or "Traceback" in said:
            wrong.append(f"call {at}: {os.waitstatus_to_exitcode(status)}: {said[-2000:]}")
        if snapshot(base / "results") != before:
            wrong.append(f"call {at}: changed something")
    return wrong


@pytest.mark.parametrize("reader", READERS)
def test_a_disk_that_fails_at_any_call_of_a_reader_costs_one_line(base: Path, reader: str) -> None:
    assert "\n".join(failing(base, reader, ["EIO"])[:3]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("errors", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_whatever_the_disk_says_at_any_call_of_a_reader_costs_one_line(
    base: Path, reader: str, errors: Sequence[str]
) -> None:
    assert "\n".join(failing(base, reader, errors)[:3]) == ""
