"""Trainings that already ran by hand go on as runs; and one of unbroken's by hand."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import checkpoints

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch

from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.engines.imports import ImportSource
from unbroken.engines.torch.engine import TorchEngine
from unbroken.errors import CheckpointError, SegmentError
from unbroken.job.attempt import Job
from unbroken.job.import_export import export_run, import_run
from unbroken.job.lifecycle import run_segment
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.record import Record

pytestmark = pytest.mark.process

# Nothing is drawn: what the user's checkpoint holds is all there is.
BY_HAND = """
import sys
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
inputs, targets = torch.linspace(0, 1, 512).reshape(64, 8), torch.linspace(-1, 1, 64).reshape(64, 1)
"""
LOOP = """
for epoch in range(int(sys.argv[1])):
    for begin in range(0, 64, 16):
        loss = torch.nn.functional.mse_loss(model(inputs[begin : begin + 16]), targets[begin : begin + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
torch.save({"epoch": epoch, "step": 4 * (epoch + 1), **states}, "mine.pt")
"""
TRAINING = """
from torch.utils.data import TensorDataset
from unbroken.training.torch import Training
training = Training(state={"model": model, "optimizer": optimizer, "scheduler": scheduler}, seed=0)
loader = training.loader(TensorDataset(inputs, targets), batch_size=16, shuffle=False)
"""
THREE_LINES = """
if training.imported:
    saved = torch.load(training.imported, weights_only=True)
    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
"""
EPOCHS = """
for epoch in training.epochs(6):
    for batch, wanted in training.batches(loader):
        loss = torch.nn.functional.mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
    scheduler.step()
training.finish({"model.pt": model.state_dict()})
"""
SCRIPT = BY_HAND + TRAINING + THREE_LINES + EPOCHS


def job(base: Path, segment: int = 1, script: str = SCRIPT, **settings: object) -> Job:
    """A job of a script in `base`."""
    base.mkdir(exist_ok=True)
    (base / "train.py").write_text(script)
    told = {"script": str(base / "train.py"), "goal": 6, **settings}
    run = {"engine": "torch", "segments": 5, "segment_minutes": 9, "settings": told}
    found = read_checked_runs({"runs": {"demo": run}}, base)[0]
    made = Job(found, known_schemas().engines["torch"].identity, segment, 1, base)
    made.places.log(segment).parent.mkdir(parents=True, exist_ok=True)
    return made


def segment(made: Job) -> Record:
    return run_segment(made, TorchEngine(made.base))


def taken(made: Job, source: Path, done: float | None = None) -> Checkpoint:
    return import_run(made, TorchEngine(made.base), ImportSource(source, done))


def trained_by_hand(folder: Path, epochs: int, script: str = BY_HAND + LOOP) -> Path:
    folder.mkdir()
    (folder / "by_hand.py").write_text(script)
    subprocess.run([sys.executable, "by_hand.py", str(epochs)], cwd=folder, check=True)
    return folder / "mine.pt"


def weights(path: Path) -> dict[str, bytes]:
    state = torch.load(path, weights_only=True)
    state = state.get("model", state)
    return {name: value.numpy().tobytes() for name, value in state.items()}


# --- the user's own checkpoint ---


def test_half_by_hand_and_half_imported_is_one_training(tmp_path: Path) -> None:
    mine = trained_by_hand(tmp_path / "half", 2)
    whole = trained_by_hand(tmp_path / "whole", 6)

    passport = taken(job(tmp_path), mine, done=2).passport
    record = segment(job(tmp_path))

    assert (record.kind, record.progress.done) == (EndKind.FINISHED, 6)
    assert weights(job(tmp_path).places.final / "model.pt") == weights(whole)
    rows = (job(tmp_path).places.final / "metrics.csv").read_text().splitlines()
    assert rows[1].startswith("2,1,")  # steps are counted from here
    assert sorted(passport.files) == ["mine.pt"]


@pytest.mark.slow
def test_an_attempt_that_was_killed_before_its_first_save_loads_it_again(tmp_path: Path) -> None:
    mine = trained_by_hand(tmp_path / "half", 2)
    whole = trained_by_hand(tmp_path / "whole", 6)
    dies = "import os, pathlib\nflag = pathlib.Path('once')\nif not flag.exists(): flag.touch(); os._exit(9)\n"
    script = BY_HAND + TRAINING + THREE_LINES + dies.replace("'once'", repr(str(tmp_path / "once"))) + EPOCHS
    taken(job(tmp_path, script=script), mine, done=2)

    with pytest.raises(SegmentError):
        segment(job(tmp_path, script=script))
    segment(job(tmp_path, script=script))

    assert weights(job(tmp_path).places.final / "model.pt") == weights(whole)


@pytest.mark.slow
def test_a_script_that_does_not_load_it_is_stopped_with_what_to_type(tmp_path: Path) -> None:
    mine = trained_by_hand(tmp_path / "half", 2)
    script = BY_HAND + TRAINING + EPOCHS
    taken(job(tmp_path, script=script), mine, done=2)

    with pytest.raises(SegmentError, match=r"does not load it; before epochs or fit type: if training\.imported"):
        segment(job(tmp_path, script=script))

    assert [each.passport.segment for each in checkpoints(job(tmp_path))] == [0]


def test_a_torn_file_is_refused_and_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    mine = tmp_path / "mine.pt"
    torch.save({"model": {"weight": torch.ones(1000)}}, mine)
    mine.write_bytes(mine.read_bytes()[:-100])
    (tmp_path / "other.pt").write_bytes(pickle.dumps(_Touch(str(tmp_path / "ran"))))

    with pytest.raises(CheckpointError, match=r"mine\.pt: torn: the end of the file is missing"):
        taken(job(tmp_path), mine, done=2)
    assert Store(job(tmp_path).places.checkpoints).names() == []
    taken(job(tmp_path), tmp_path / "other.pt", done=2)

    assert not (tmp_path / "ran").exists()


class _Touch:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


# --- unbroken's own ---


@pytest.mark.slow
def test_a_training_by_hand_in_a_folder_goes_on_as_a_run_and_back(tmp_path: Path) -> None:
    """All state is there: nothing is lost."""
    whole = trained_by_hand(tmp_path / "whole", 6)
    by_hand = (BY_HAND + TRAINING + EPOCHS).replace("epochs(6)", "epochs(2)")
    (tmp_path / "by_hand.py").write_text(by_hand)
    environment = {**os.environ, "UNBROKEN_FOLDER": str(tmp_path / "folder")}
    subprocess.run([sys.executable, "by_hand.py"], cwd=tmp_path, env=environment, check=True)

    passport = taken(job(tmp_path / "run", goal=4), tmp_path / "folder").passport
    segment(job(tmp_path / "run", goal=4))
    export_run(job(tmp_path / "run"), TorchEngine(tmp_path / "run"), tmp_path / "out", "")
    subprocess.run([tmp_path / "out" / "resume.sh"], check=True)

    assert passport.imported is not None
    assert (passport.progress.done, passport.imported.not_checked) == (2, ())
    assert weights(tmp_path / "out" / "final" / "model.pt") == weights(whole)
    assert json.loads((tmp_path / "out" / "final" / "summary.json").read_text())["progress"]["done"] == 6
