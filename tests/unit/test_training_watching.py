"""Metrics and times that can be watched while a training runs: no step twice, none missing, whatever cuts it."""

import csv
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from support.toyrun import ROOT, ProgramEngine, toy_job

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.engines.training import report_targets  # noqa: E402
from unbroken.errors import SegmentError  # noqa: E402
from unbroken.job.lifecycle import run_segment  # noqa: E402
from unbroken.store.history import EndKind  # noqa: E402
from unbroken.training.core.metrics import Metrics  # noqa: E402
from unbroken.training.core.metrics_log import MetricsLog, Timers  # noqa: E402
from unbroken.training.core.position import Course, Position  # noqa: E402
from unbroken.training.core.process_group import Processes  # noqa: E402
from unbroken.training.torch import Training  # noqa: E402

# 30 samples in batches of 4: 8 batches an epoch, the last one of two samples.
PROGRAM = """
import os, signal, sys, time, torch
from torch import nn
from torchmetrics import MeanMetric
from unbroken.training.loggers import TensorBoard
from unbroken.training.torch import Training, seed_everything

stop, kill = map(int, sys.argv[1:])
torch.set_num_threads(1)
seed_everything(3)
model = nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters())
mean_loss = MeanMetric()
board = TensorBoard(os.environ["UNBROKEN_LIVE"] + "/tensorboard")
state = {"model": model, "optimizer": optimizer}
training = Training(state, per_rank={"mean_loss": mean_loss}, best=("score", "max"), loggers=[board])
data = torch.utils.data.TensorDataset(torch.randn(30, 3), torch.randn(30, 1))
loader = training.loader(data, 4)
for epoch in training.epochs():
    for batch, wanted in training.batches(loader):
        with training.timer("forward"):
            loss = nn.functional.mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_loss.update(loss.detach(), weight=len(batch))
        training.log(loss=loss.item())
        step = int(optimizer.state[model.weight]["step"])
        if step == stop:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == kill - 1:
            time.sleep(1.1)  # the files are brought up to date once a second
        if step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
    training.log(score=float(epoch), mean_loss=mean_loss.compute().item())
    mean_loss.reset()
training.finish({"model.pt": model.state_dict()})
"""


def segment(base: Path, number: int, stop: int = 0, kill: int = 0):
    """One segment of the program towards two epochs."""
    base.mkdir(exist_ok=True)
    (base / "program.py").write_text(PROGRAM)
    return run_segment(
        toy_job(base, number, goal=2, segment_minutes=9),
        ProgramEngine([sys.executable, str(base / "program.py"), str(stop), str(kill)]),
    )


def report_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_report", ROOT / "scripts" / "torch_report.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def live(base: Path) -> Path:
    return toy_job(base).places.live


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """What TensorBoard itself makes of its files."""
    program = (
        "import json, sys; from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E;"
        "found = E(sys.argv[1]); found.Reload();"
        "print(json.dumps([(event.step, event.value) for event in found.Scalars(sys.argv[2])]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(folder), name]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(step, value) for step, value in json.loads(said.stdout.splitlines()[-1])]


@pytest.mark.slow
def test_what_can_be_watched_is_that_of_the_whole_after_a_stop_and_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="missing: tensorboard (pip install tensorboard)")
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    segment(whole, 1)

    first = segment(pieces, 1, stop=3)
    with pytest.raises(SegmentError, match="SIGKILL"):
        segment(pieces, 2, kill=14)
    ahead = [row["step"] for row in lines(live(pieces) / "metrics.jsonl")]
    second = segment(pieces, 2)

    assert (first.kind, second.kind) == (EndKind.PAUSED, EndKind.FINISHED)
    assert max(ahead) > 8  # the killed attempt was ahead of its checkpoint
    assert (live(pieces) / "metrics.jsonl").read_bytes() == (live(whole) / "metrics.jsonl").read_bytes()
    table = pd.read_json(live(pieces) / "metrics.jsonl", lines=True)
    assert list(table["step"]) == list(range(1, 17))
    assert list(table["score"].dropna()) == [0, 1]
    final = [toy_job(base).places.final / "metrics.csv" for base in (whole, pieces)]
    assert final[0].read_bytes() == final[1].read_bytes()
    noted = [row["loss"] for row in lines(live(pieces) / "metrics.jsonl")]
    assert [float(row["loss"]) for row in csv.DictReader(final[0].read_text().splitlines())] == noted

    shown, shown_whole = (scalars(live(base) / "tensorboard", "loss") for base in (pieces, whole))
    assert [step for step, _ in shown] == list(range(1, 17))
    assert shown == shown_whole
    assert scalars(live(pieces) / "tensorboard", "score") == [(8, 0), (16, 1)]

    times = lines(live(pieces) / "timing.jsonl")
    assert [(line["segment"], line["step"]) for line in times] == [(1, 3), (2, 8), (2, 16)]
    assert [times[-1]["timers"][name][0] for name in ("data", "forward", "step")] == [16, 16, 16]
    assert times[-1]["samples"] == 60
    plot, table_file = tmp_path / "plot.svg", tmp_path / "times.html"
    script = report_script()
    script.torch_report(live(pieces) / "metrics.jsonl", live(pieces) / "timing.jsonl", plot, table_file)
    assert script.segment_borders(pd.read_json(live(pieces) / "timing.jsonl", lines=True)) == [3]
    assert all(f">{word}<" in plot.read_text() for word in ("loss", "score", "mean_loss", "step"))
    assert "<th>forward</th>" in table_file.read_text()


# --- the files -----------------------------------------------------------------------------------------------------


def some_metrics() -> Metrics:
    metrics = Metrics()
    metrics.add(0, 1, {"loss": 0.5})
    metrics.add(0, 2, {"loss": math.nan})
    metrics.add(0, 2, {"score": 1.0})
    return metrics


def opened(folder: Path, metrics: Metrics | None = None, step: int = 0) -> MetricsLog:
    """A record of a training that resumes at a step with these metrics, or begins."""
    log = MetricsLog()
    log.metrics.restore((metrics or Metrics()).state())
    log.open(Processes(), step, folder)
    return log


def test_a_row_is_written_when_it_is_complete_and_what_is_no_number_is_null(tmp_path: Path) -> None:
    log = opened(tmp_path / "live")
    path = tmp_path / "live" / "metrics.jsonl"

    log.metrics.restore(some_metrics().state())
    log.show()
    first = path.read_text()
    log.finish(2)

    assert first == '{"epoch": 0, "step": 1, "loss": 0.5}\n'
    assert path.read_text() == first + '{"epoch": 0, "step": 2, "loss": null, "score": 1.0}\n'


def test_who_follows_the_file_goes_on_seeing_it_after_a_cut(tmp_path: Path) -> None:
    opened(tmp_path, some_metrics()).show(is_over=True)
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"epoch": 0, "st')  # torn by a kill
    before = path.stat().st_ino

    opened(tmp_path, some_metrics(), 2)

    assert (path.stat().st_ino, path.read_text()) == (before, '{"epoch": 0, "step": 1, "loss": 0.5}\n')


def test_a_file_that_is_not_the_checkpoints_is_written_anew(tmp_path: Path) -> None:
    times = {"step": 1, "samples": 3, "timers": {}}
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "step": 1, "loss": 0.7}\n' * 9)
    (tmp_path / "timing.jsonl").write_text(json.dumps(times) + '\nnonsense\n{"step": 5}\n[]\n')

    log = opened(tmp_path, some_metrics(), 4)

    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 0, "step": 1, "loss": 0.5}\n'
    assert (tmp_path / "timing.jsonl").read_text() == json.dumps(times) + "\n"
    assert log.timers.samples == 3


def test_only_the_first_rank_writes(tmp_path: Path) -> None:
    log = MetricsLog()

    log.open(Processes(1, 2), 0, tmp_path / "live")
    log.finish(0)

    assert not (tmp_path / "live").exists()


def test_a_report_is_made_of_runs_that_noted_something(tmp_path: Path) -> None:
    run = toy_job(tmp_path).run
    empty = report_targets([run], tmp_path)
    live(tmp_path).mkdir(parents=True)
    for name in ("metrics.jsonl", "timing.jsonl"):
        (live(tmp_path) / name).touch()

    assert (empty, report_targets([run], tmp_path)) == ([], ["results/demo/report/metrics.svg"])


# --- times ---------------------------------------------------------------------------------------------------------


def timed(seconds: list[tuple[str, float]], timers: Timers | None = None) -> Timers:
    """Timers on a clock of their own, in powers of two, which add up exactly."""
    clock = [0.0]
    timers = timers or Timers()
    timers._now = lambda: clock[0]
    for name, length in seconds:
        with timers.timed(name):
            clock[0] += length
    return timers


def test_times_add_up_over_segments() -> None:
    first = timed([("data", 0.25), ("step", 0.5), ("data", 0.25), ("step", 1.0)])
    first.samples = 8
    second = Timers()
    second.restore(json.loads(json.dumps(first.line())))

    timed([("data", 0.5), ("step", 0.5), ("save", 4.0)], second)
    second.samples += 4

    assert second.line() == {
        "samples": 12,
        "seconds_per_step": 1.0,
        "samples_per_second": 4.0,
        "timers": {"data": [3, 1.0], "step": [3, 2.0], "save": [1, 4.0]},
    }
    assert Timers().line()["seconds_per_step"] is None


@pytest.mark.parametrize(("unit", "goal", "left"), [("epochs", 3.0, 40.0), ("steps", 25.0, 30.0)])
def test_the_pace_says_when_it_will_be_done(unit: str, goal: float, left: float) -> None:
    training = Training()
    training._course = Course(Position(epoch=1, batch=0, step=10, batches=10), goal, unit)

    before = training._figures()
    training._log.timers = timed([("data", 0.5), ("step", 1.5)])

    assert before == {}
    assert training._figures() == {"pace": "0.5 steps/s", "left_seconds": left}
