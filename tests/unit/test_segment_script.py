"""A segment by its spec.json: as with a Snakemake around it, and with none."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.snapshots import Snapshot, snapshot
from support.toy_spec import segment_command, toy_spec
from support.toyrun import PYTHONPATH, toy_run

from unbroken.job import segment_script
from unbroken.job.spec import path_of
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.progress import Progress
from unbroken.store.record import Record, read_record

pytestmark = pytest.mark.process


def segment(folder: Path, number: int, attempt: int = 1, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        segment_command(number, attempt),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
    )


def test_a_chain_works_where_snakemake_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "snakemake.py").write_text("raise ImportError('a job is to do without')\n")
    run = toy_run(goal=12, save_steps=2, step_seconds=0.02, segment_minutes=0.002)
    toy_spec(run).write(tmp_path)
    places, outcomes = RunFolder("demo", tmp_path), []
    while EndKind.FINISHED not in outcomes:
        found = segment(tmp_path, len(outcomes) + 1, PYTHONPATH=f"{tmp_path}:{PYTHONPATH}")
        record = read_record(places.record(len(outcomes) + 1))
        assert found.returncode == 0 and record is not None, found.stderr
        outcomes.append(record.kind)
        assert len(outcomes) < 100

    assert len(outcomes) > 1
    assert (places.final / "result.txt").exists() or any(places.final.iterdir())


def test_what_an_attempt_before_has_left_is_cleared(tmp_path: Path) -> None:
    toy_spec(goal=3).write(tmp_path)
    places = RunFolder("demo", tmp_path)
    for path in (places.record(1), places.log(1)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("torn")

    assert segment(tmp_path, 1, 3).returncode == 0

    record = read_record(places.record(1))
    assert record is not None and record.kind is EndKind.FINISHED
    assert "torn" not in places.log(1).read_text()
    assert History(places.history).attempts()[-1].driver_attempt == 3


def test_a_script_finds_what_snakemake_would_give_it(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "toy_segment.py"
    script.parent.mkdir()
    (script.parent / "beside.py").write_text("WORD = 'beside'\n")
    script.write_text(
        "import json, os, sys, beside\n"
        "from pathlib import Path\n"
        "names = ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'TMPDIR')\n"
        "Path('found.json').write_text(json.dumps({\n"
        "    'run': snakemake.params.assignment.run.name, 'segment': snakemake.wildcards.segment,\n"
        "    'record': snakemake.output.record, 'threads': snakemake.threads, 'log': snakemake.log[0],\n"
        "    'attempt': snakemake.resources.get('attempt'), 'runtime': snakemake.resources['runtime'],\n"
        "    'rule': snakemake.rule, 'environment': [os.environ[name] for name in names],\n"
        "    'beside': beside.WORD, 'name': __name__, 'arguments': sys.argv}))\n"
        "sys.exit(7)\n"
    )
    toy_spec(script=str(script), threads=2).write(tmp_path)

    assert segment(tmp_path, 1, 2).returncode == 7

    assert json.loads((tmp_path / "found.json").read_text()) == {
        "run": "demo",
        "segment": "001",
        "record": "results/demo/segments/001.json",
        "threads": 2,
        "log": "logs/demo/001.log",
        "attempt": 2,
        "runtime": 1,
        "rule": "toy_segment",
        "environment": ["2", "2", tempfile.gettempdir()],
        "beside": "beside",
        "name": "__main__",
        "arguments": [str(script)],
    }


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_kept: None) -> RunFolder:
    """A run whose first segment is done, in the working directory of this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    for name in [*(f"{library}_NUM_THREADS" for library in segment_script.THREADS), *segment_script.TMPDIR]:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    run = toy_run(goal=400, save_steps=5, step_seconds=0.01, segment_minutes=0.005)
    toy_spec(run, latency_seconds=60.0).write()
    assert segment(tmp_path, 1).returncode == 0
    return RunFolder("demo")


def test_a_checkpoint_that_this_node_does_not_see_yet_is_waited_for(
    begun: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_record(begun.record(1))
    assert record is not None
    late, hidden = begun.checkpoints / record.checkpoint, begun.root / "on-the-server"
    late.rename(hidden)
    looks = []

    def show(folder: Path) -> None:
        looks.append(folder)
        if len(looks) == 3:
            hidden.rename(late)

    monkeypatch.setattr(segment_script, "_look_into", show)
    assert segment_script.do_segment(path_of("demo"), 2) == 0

    assert len(looks) == 3
    assert History(begun.history).attempts()[-1].from_checkpoint == record.checkpoint


def test_a_record_that_this_node_does_not_see_yet_is_waited_for(
    begun: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = begun.root / "on-the-server"
    begun.record(1).rename(hidden)
    looks = []

    def show(folder: Path) -> None:
        looks.append(folder)
        if len(looks) == 2:
            hidden.rename(begun.record(1))

    monkeypatch.setattr(segment_script, "_look_into", show)
    assert segment_script.do_segment(path_of("demo"), 2) == 0
    assert len(looks) == 2


def test_a_checkpoint_that_was_set_aside_is_not_waited_for(begun: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert segment(Path(), 2).returncode == 0
    store = Store(begun.checkpoints)
    record = read_record(begun.record(2))
    assert record is not None
    store.quarantine(record.checkpoint, "somebody does not want it", is_whole=True)
    monkeypatch.setattr(segment_script, "_look_into", lambda folder: pytest.fail("waited"))

    assert segment_script.do_segment(path_of("demo"), 3) == 0


def test_a_record_that_never_comes_is_one_line(tmp_path: Path) -> None:
    toy_spec().write(tmp_path)
    began = time.monotonic()
    found = segment(tmp_path, 2)
    assert found.returncode == 1
    assert "results/demo/segments/001.json: not there after 0 s; type: snakemake" in found.stderr
    assert time.monotonic() - began < 600


# --- the record of another job ---------------------------------------------------------------------------------------


def test_a_record_that_another_job_has_just_published_is_not_removed(begun: RunFolder) -> None:
    """The job was sent to do the segment before that record was there: a driver takes the record as its end."""
    before = snapshot(begun.root)

    assert segment_script.do_segment(path_of("demo"), 1) == 0

    assert snapshot(begun.root) == before


def test_a_record_that_is_published_while_a_job_waits_for_the_one_before_is_not_removed(
    begun: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert segment(Path(), 2).returncode == 0
    hidden, before_it = begun.root / "about-to-come", begun.root / "on-the-server"
    begun.record(2).rename(hidden)
    begun.record(1).rename(before_it)

    def show(folder: Path) -> None:
        hidden.rename(begun.record(2))
        before_it.rename(begun.record(1))
        shown.update(snapshot(begun.root))

    shown: Snapshot = {}
    monkeypatch.setattr(segment_script, "_look_into", show)
    assert segment_script.do_segment(path_of("demo"), 2) == 0

    assert shown and snapshot(begun.root) == shown


def test_the_record_of_another_run_or_segment_is_cleared(tmp_path: Path) -> None:
    toy_spec(goal=3).write(tmp_path)
    folder = RunFolder("demo", tmp_path)
    folder.segments.mkdir(parents=True)
    Record("other", 1, EndKind.PAUSED, True, "c", Progress(10), "2026-11-21T00:01:00Z").write(folder.record(1))

    assert segment(tmp_path, 1).returncode == 0

    record = read_record(folder.record(1))
    assert record is not None and (record.run, record.kind) == ("demo", EndKind.FINISHED)
