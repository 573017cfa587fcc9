"""A training in pieces is the training as a whole, byte for byte, whatever cuts it."""

import csv
import os
import random
import signal
from pathlib import Path

import pytest
from support.toyrun import until
from support.training_parent import TrainingParent

from unbroken.system.digests import digest_file

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("training_torch")]  # one process, one `whole`

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

# 40 samples in batches of 5: 8 batches an epoch, 3 epochs, 24 steps.
PROGRAM = """
import argparse, os, random, signal, time
import numpy as np, torch
from torch import nn
from unbroken.training.torch import Training, seed_everything

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.randn(6)
        return noise + index, (noise.sum() > 9).float()

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--persistent", action="store_true")
parser.add_argument("--signals", type=int, nargs="*", default=[])
parser.add_argument("--pause", type=float, default=0)
parser.add_argument("--without-scheduler", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)
seed_everything(3)
model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
parts = dict(
    model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3),
    scaler=torch.amp.GradScaler("cpu", init_scale=8.0), average=torch.optim.swa_utils.AveragedModel(model),
    torch_generator=torch.Generator().manual_seed(5), numpy_generator=np.random.default_rng(6),
    twister=np.random.Generator(np.random.MT19937(7)),
)
if options.without_scheduler:
    del parts["scheduler"]
training = Training(seed=3, best=("accuracy", "max"), state=parts)
loader = training.loader(Noisy(), 5, num_workers=options.workers, persistent_workers=options.persistent)
steps = 0
for epoch in training.epochs():
    random.random(), torch.rand(3)
    training.log(lr=optimizer.param_groups[0]["lr"])
    for inputs, targets in training.batches(loader):
        noise = torch.randn(1) + random.gauss(0, 1) + np.random.randn()
        noise = noise + torch.rand(1, generator=parts["torch_generator"])
        noise = noise + parts["numpy_generator"].normal() + parts["twister"].normal()
        loss = nn.functional.mse_loss(model(inputs).squeeze(1) + 0.1 * noise.float(), targets)
        optimizer.zero_grad()
        parts["scaler"].scale(loss).backward()
        parts["scaler"].step(optimizer)
        parts["scaler"].update()
        parts["average"].update_parameters(model)
        training.log(loss=loss.item())
        time.sleep(options.pause)
        step = int(parts["average"].n_averaged)
        if step in options.signals:
            os.kill(os.getpid(), signal.SIGUSR1)
    if options.without_scheduler is False:
        parts["scheduler"].step()
    training.log(accuracy=-training.mean("loss") + 0.01 * random.random())
    if -(epoch + 1) in options.signals:
        os.kill(os.getpid(), signal.SIGUSR1)
training.finish({"model.pt": model.state_dict(), "optimizer.pt": optimizer.state_dict(), "note.txt": "done"})
"""
STEPS = 24


def started(root: Path, arguments: list[str] | None = None, **seconds: float) -> TrainingParent:
    return TrainingParent(root, PROGRAM, arguments or [], **seconds)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainingParent:
    """The same training without any stop."""
    parent = started(tmp_path_factory.mktemp("whole") / "run")
    parent.run_to_the_end()
    assert parent.codes == [0]
    return parent


def assert_equal(pieces: TrainingParent, whole: TrainingParent) -> None:
    found, expected = pieces.result(), whole.result()
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.parametrize("workers", [0, 2])
def test_stops_anywhere_change_no_byte_of_the_result(workers: int, tmp_path: Path, whole: TrainingParent) -> None:
    # Two in the first epoch, one after the last batch of it, one at the very end of the second epoch.
    stops = ["--signals", "3", "5", "8", "-2"]
    pieces = started(tmp_path / "run", ["--workers", str(workers), *stops])

    pieces.run_to_the_end()

    assert pieces.codes == [85, 85, 85, 85, 0]
    assert_equal(pieces, whole)


def test_kills_at_random_moments_change_no_byte_of_the_result(tmp_path: Path, whole: TrainingParent) -> None:
    chance = random.Random(11)
    pieces = started(tmp_path / "run", ["--workers", "2", "--pause", "0.1"], save_seconds=0.05)

    for _ in range(4):
        pieces.run(kill_after=chance.uniform(0, 0.1))
    pieces.run_to_the_end()

    assert pieces.codes.count(-signal.SIGKILL) >= 3
    assert_equal(pieces, whole)


def test_a_term_to_the_whole_job_is_survived_by_the_workers(tmp_path: Path, whole: TrainingParent) -> None:
    pieces = started(tmp_path / "run", ["--workers", "2", "--persistent", "--pause", "0.3"])
    child = pieces.start()
    until((pieces.attempt_folder / "progress.json").exists)
    os.killpg(child.pid, signal.SIGTERM)
    pieces.take_last(child)
    pieces.arguments = ["--workers", "2", "--persistent"]

    pieces.run_to_the_end()

    assert pieces.codes == [85, 0]
    assert "exited unexpectedly" not in pieces.log
    assert_equal(pieces, whole)


def test_the_stop_file_and_the_deadline_are_obeyed(tmp_path: Path) -> None:
    asked = started(tmp_path / "asked", ["--workers", "2", "--persistent", "--pause", "0.2"])
    child = asked.start()
    until((asked.attempt_folder / "progress.json").exists)
    (asked.attempt_folder / "stop").touch()
    code = child.wait(100)  # 85 says that it left early
    late = started(tmp_path / "late", ["--pause", "4"], deadline_seconds=8)
    late.run()

    # What is exact about the deadline is tested with a clock of its own.
    assert (code, late.codes) == (85, [85])


def test_a_part_that_the_checkpoint_does_not_know_is_named(tmp_path: Path) -> None:
    pieces = started(tmp_path / "run", ["--without-scheduler", "--signals", "3"])

    pieces.run()
    pieces.arguments = []
    pieces.run()

    assert pieces.codes == [85, 1]
    line = pieces.log.splitlines()[-1]
    assert line.startswith("unbroken.errors.CheckpointError:")
    assert line.endswith("holds no state of scheduler, which Training(...) is given now")


def test_what_is_handed_over_says_how_far_it_is_and_what_it_is(whole: TrainingParent) -> None:
    first, last = whole.handovers[0], whole.handovers[-1]
    files = last["digests"]["files"]

    assert (first["done"], first["goal"], first["unit"], first["is_best"], first["is_finished"]) == (
        *(1, 3, "epochs", True, False),
    )
    assert (last["done"], last["is_finished"], set(last["versions"])) == (
        *(3, True, {"torch", "numpy", "python", "ranks", "threads", "gpus", "compiled"}),
    )
    assert set(files) == {"state.pt", "final/model.pt", "final/optimizer.pt"}
    assert {name: entry["digest"] for name, entry in files.items()} == {
        name: digest_file(whole.latest / name, last["digests"]["algorithm"]) for name in files
    }
    assert [row["is_best"] for row in whole.handovers[:-1]] == [True] * (len(whole.handovers) - 1)


def test_the_metrics_have_one_row_a_step(whole: TrainingParent) -> None:
    rows = list(csv.DictReader((whole.latest / "final" / "metrics.csv").read_text().splitlines()))

    assert [(row["epoch"], row["step"]) for row in rows[:2]] == [("0", "0"), ("0", "1")]
    assert [row["step"] for row in rows if row["loss"]] == [str(step) for step in range(1, STEPS + 1)]
    assert [row["step"] for row in rows if row["accuracy"]] == ["8", "16", "24"]
