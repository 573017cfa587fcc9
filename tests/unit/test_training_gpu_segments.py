"""A chain on a GPU whose segments are started by spec.json, as in a job on Slurm: without a Snakemake."""

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.gpu import EXACT
from support.toy_spec import segment_command, toy_spec
from support.toyrun import PYTHONPATH, ROOT, toy_run

from unbroken.config.package_files import root_folder
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.record import read_record
from unbroken.store.run import IdentityKeys, RunSpec

pytestmark = pytest.mark.gpu

PROGRAM = ROOT / "tests" / "support" / "gpu_program.py"
KEYS = IdentityKeys(("args", "goal"), ("script",), ("threads",))
PATIENCE_SECONDS = 300


def chain(folder: Path, minutes: float, pause: float) -> RunFolder:
    """A run in a new folder, its spec.json written."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM.read_text())
    settings = {"script": "train.py", "args": ["--pause", str(pause)], "python": "", "ranks": 1, "goal": 3}
    run: RunSpec = replace(
        toy_run(engine="torch", segment_minutes=minutes, save_minutes=0.02, attempts_without_progress=20),
        settings=settings,
    )
    script = str(root_folder() / "scripts" / "torch_segment.py")
    toy_spec(run, keys=KEYS, script=script, name="torch_segment").write(folder)
    return RunFolder("demo", folder)


def start(places: RunFolder, number: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        segment_command(number),
        cwd=places.root.parents[1],
        env={**os.environ, **EXACT, "PYTHONPATH": os.environ.get("PYTHONPATH", PYTHONPATH)},
        start_new_session=True,
    )


def run_to_the_end(places: RunFolder, kills_in: tuple[int, ...] = ()) -> list[EndKind]:
    """All segments; what runs of those named is killed once it has saved, and they are started again."""
    outcomes: list[EndKind] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while EndKind.FINISHED not in outcomes:
        assert time.monotonic() < until, History(places.history).attempts()
        number, before = len(outcomes) + 1, set(places.checkpoints.glob("*"))
        process = start(places, number)
        if number in kills_in:
            kills_in = tuple(kill for kill in kills_in if kill != number)
            while process.poll() is None and set(places.checkpoints.glob("*")) <= before:
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            continue
        assert process.wait(PATIENCE_SECONDS) == 0, places.log(number).read_text()
        record = read_record(places.record(number))
        assert record is not None
        outcomes.append(record.kind)
    return outcomes


def test_a_chain_without_snakemake_with_kills_ends_as_the_whole(tmp_path: Path) -> None:
    whole = chain(tmp_path / "whole", 20, 0)
    assert run_to_the_end(whole) == [EndKind.FINISHED]
    # Its pauses alone are longer than a segment.
    pieces = chain(tmp_path / "pieces", 0.2, 1.5)

    outcomes = run_to_the_end(pieces, kills_in=(1, 2))

    assert len(outcomes) > 1
    assert (pieces.final / "model.pt").read_bytes() == (whole.final / "model.pt").read_bytes()
