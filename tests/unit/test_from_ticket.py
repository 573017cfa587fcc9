"""A segment by its ticket: as with a Snakemake around it, and with none."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from snakemake.benchmark import BenchmarkRecord
from support.toyrun import KEYS, PYTHONPATH, ROOT, toy_run

from unbroken.errors import ConfigError, FormatError
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.record import read_record
from unbroken.runs.run import CopySettings, Run
from unbroken.runs.store import Store
from unbroken.segment import from_ticket
from unbroken.segment.job import Assignment
from unbroken.segment.ticket import Ticket, path_of, read

SCRIPT = str(ROOT / "scripts" / "toy_segment.py")


def ticket_of(run: Run, script: str = SCRIPT, latency_seconds: float = 0.0) -> Ticket:
    return Ticket(Assignment(run, KEYS), script, "toy_segment", 2, {"runtime": 1}, latency_seconds)


def segment(folder: Path, number: int, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", from_ticket.__name__, str(path_of("demo"))]
    return subprocess.run(
        [*command, f"toy_segment:run=demo,segment={number:03d}", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
    )


def test_a_ticket_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = replace(
        toy_run(slurm_extra=("--exclusive",), modules=("gcc/12",), enter=("env", "A=1")),
        copies=CopySettings("/elsewhere", 3, 10.0),
        metric_goals={"time_ps": 100.0},
    )
    written = ticket_of(run)
    assert read(tmp_path / written.write(tmp_path)) == written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "missing; start snakemake again"),
        ('{"version": 99}', ": found format 99, unbroken "),
        ('{"version": 1, "assignment": {}', "spoilt"),
        ('{"version": 1, "assignment": {"run": {}, "keys": {}}}', "spoilt"),
        ("[]", "spoilt"),
    ],
)
def test_a_ticket_that_cannot_be_used_is_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / path_of("demo")
    path.parent.mkdir(parents=True)
    if text is not None:
        path.write_text(text)
    with pytest.raises((ConfigError, FormatError), match=r"ticket\.json") as raised:
        read(path)
    assert said in str(raised.value)

    found = segment(tmp_path, 1)
    assert found.returncode == 1
    assert said in found.stderr and "Traceback" not in found.stderr


def test_a_chain_works_where_snakemake_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "snakemake.py").write_text("raise ImportError('a job is to do without')\n")
    run = toy_run(goal=12, save_steps=2, step_seconds=0.02, segment_minutes=0.002)
    ticket_of(run).write(tmp_path)
    places, outcomes = RunFolder("demo", tmp_path), []
    while Outcome.FINISHED not in outcomes:
        found = segment(tmp_path, len(outcomes) + 1, PYTHONPATH=f"{tmp_path}:{PYTHONPATH}")
        record = read_record(places.record(len(outcomes) + 1))
        assert found.returncode == 0 and record is not None, found.stderr
        outcomes.append(record.outcome)
        assert len(outcomes) < 100

    assert len(outcomes) > 1
    assert (places.final / "result.txt").exists() or any(places.final.iterdir())


def test_what_an_attempt_before_has_left_is_cleared(tmp_path: Path) -> None:
    ticket_of(toy_run(goal=3)).write(tmp_path)
    places = RunFolder("demo", tmp_path)
    for path in (places.record(1), places.log(1)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("torn")

    assert segment(tmp_path, 1, "--attempt", "3").returncode == 0

    record = read_record(places.record(1))
    assert record is not None and record.outcome is Outcome.FINISHED
    assert "torn" not in places.log(1).read_text()
    assert History(places.history).attempts()[-1].driver_attempt == 3


def test_the_benchmark_of_a_segment_is_as_snakemake_writes_it(tmp_path: Path) -> None:
    ticket = ticket_of(toy_run(goal=10**6, step_seconds=0.02, segment_minutes=0.02))
    replace(ticket, benchmark="benchmarks/{run}.{segment}.tsv").write(tmp_path)

    found = segment(tmp_path, 1)

    assert found.returncode == 0, found.stderr
    names, values = (tmp_path / "benchmarks/demo.001.tsv").read_text().splitlines()
    told = dict(zip(names.split("\t"), values.split("\t"), strict=True))
    assert list(told) == BenchmarkRecord.get_header()
    assert float(told["s"]) > 0.5
    assert float(told["max_rss"]) > 1


def test_a_benchmark_that_cannot_be_written_costs_no_segment(tmp_path: Path) -> None:
    replace(ticket_of(toy_run(goal=3)), benchmark="benchmarks/{segment}.tsv").write(tmp_path)
    (tmp_path / "benchmarks").touch()

    found = segment(tmp_path, 1)

    assert (found.returncode, RunFolder("demo", tmp_path).record(1).exists()) == (0, True)
    assert "benchmark: benchmarks/001.tsv: File exists" in found.stderr


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
    ticket_of(toy_run(), str(script)).write(tmp_path)

    assert segment(tmp_path, 1, "--attempt", "2").returncode == 7

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
    for name in [*(f"{library}_NUM_THREADS" for library in from_ticket.THREADS), *from_ticket.TMPDIR]:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    ticket_of(toy_run(goal=400, save_steps=5, step_seconds=0.01, segment_minutes=0.005), latency_seconds=60.0).write()
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

    def show(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            hidden.rename(late)

    monkeypatch.setattr(from_ticket, "_rest", show)
    assert from_ticket.main([str(path_of("demo")), "toy_segment:run=demo,segment=002"]) == 0

    assert len(looks) == 3
    assert History(begun.history).attempts()[-1].from_checkpoint == record.checkpoint


def test_a_record_that_this_node_does_not_see_yet_is_waited_for(
    begun: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = begun.root / "on-the-server"
    begun.record(1).rename(hidden)
    looks = []

    def show(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            hidden.rename(begun.record(1))

    monkeypatch.setattr(from_ticket, "_rest", show)
    assert from_ticket.main([str(path_of("demo")), "toy_segment:run=demo,segment=002"]) == 0
    assert len(looks) == 2


def test_a_checkpoint_that_was_set_aside_is_not_waited_for(begun: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert segment(Path(), 2).returncode == 0
    store = Store(begun.checkpoints)
    record = read_record(begun.record(2))
    assert record is not None
    store.quarantine(record.checkpoint, "somebody does not want it", is_whole=True)
    monkeypatch.setattr(from_ticket, "_rest", lambda seconds: pytest.fail("waited"))

    assert from_ticket.main([str(path_of("demo")), "toy_segment:run=demo,segment=003"]) == 0


def test_a_record_that_never_comes_is_one_line(tmp_path: Path) -> None:
    ticket_of(toy_run()).write(tmp_path)
    began = time.monotonic()
    found = segment(tmp_path, 2)
    assert found.returncode == 1
    assert "results/demo/segments/001.json: not there after 0 s; type: snakemake" in found.stderr
    assert time.monotonic() - began < 600
