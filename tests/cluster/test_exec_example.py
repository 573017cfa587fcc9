"""The example `interruptible` with `executor: unbroken` on a real cluster, in jobs of a minute that are killed."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.lab import Cluster
from support.interruptible import FOR_EVER, WATER, Interruptible, without_unbroken
from support.workdir import Driver, WorkDir, until

from unbroken.store.history import EndKind, History

PATIENCE_SECONDS = 1500.0
LONG_RULES = ("train", "assemble", "simulate")


@pytest.fixture
def example(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> Iterator[Interruptible]:
    found = Interruptible(tmp_path / "example")
    found.work.profile = slurm_work.profile
    found.work.added_environment = dict(cluster.environment)
    # Jobs have the Python of the driver first in their PATH, so the rules themselves write down that they work.
    text = found.work.snakefile.read_text()
    assert text.count('"python scripts/') == 3
    found.work.snakefile.write_text(text.replace('"python scripts/', '"echo {rule} >> worked; python scripts/'))
    yield found
    for driver in found.work.drivers:
        driver.process.kill()
    cluster.cancel_everything()
    found.work.kill_everything()


def start(example: Interruptible) -> Driver:
    """Each long rule may take a minute at a time, as often as it needs."""
    limits = [word for rule in LONG_RULES for word in (f"{rule}:segments=40", f"{rule}:runtime=1")]
    return example.work.start(
        *("--executor", "unbroken", "--unbroken-init-seconds-before-status-checks", "3"),
        *("--rerun-incomplete", "--nolock", "--set-resources", *limits),
    )


def job_of(example: Interruptible, name: str) -> str:
    """The job that holds a run, or held it last."""
    claims = sorted((example.store(name) / "lease").glob("*.json"))
    return str(json.loads(claims[-1].read_text())["slurm_job"])


def outcomes(example: Interruptible) -> set[EndKind]:
    """How the attempts of all long rules ended."""
    histories = [History(example.store(name) / "history.jsonl") for name in LONG_RULES]
    return {attempt.kind for history in histories for attempt in history.attempts()}


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_kills_of_program_job_node_and_driver_change_no_byte(
    example: Interruptible, cluster: Cluster, tmp_path: Path
) -> None:
    example.configure(FOR_EVER)
    first = start(example)
    until(lambda: example.checkpoints("assemble") >= 1, PATIENCE_SECONDS)
    known = example.checkpoints("assemble")
    node = cluster.run("squeue", "--noheader", "--format=%N", "--jobs", job_of(example, "assemble")).strip()
    cluster.lose_node(node)
    until(lambda: example.checkpoints("train") >= 1 and example.program("train"), PATIENCE_SECONDS)
    trained = example.checkpoints("train")
    example.send(example.program("train"), signal.SIGKILL)
    # One that works: the task before may just have ended, and the next one may not hold the run yet.
    until(lambda: example.checkpoints("assemble") > known and example.program("assemble"), PATIENCE_SECONDS)
    cluster.run("scancel", job_of(example, "assemble"))
    until(lambda: re.search("; this run stops: .* was cancel+ed; to go on", first.text), PATIENCE_SECONDS)
    until(lambda: example.checkpoints("train") > trained, PATIENCE_SECONDS)
    first.kill()
    example.configure()

    done = start(example).wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert example.results() == without_unbroken(tmp_path / "whole")
    assert {EndKind.DIED, EndKind.FAILED, EndKind.INTERRUPTED, EndKind.FINISHED} <= outcomes(example)
    worked = (example.work.root / "worked").read_text().split()
    assert sorted(worked) == sorted(["plot", "prepare", *["prepare_water"] * bool(WATER)])
