"""Trainings by the Trainer, Lightning and Accelerate that already ran go on as runs, to the weights of one piece."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engines.test_import_torch import job, segment, taken
from support.toyrun import ROOT

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch

from unbroken.errors import SegmentError
from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.slow]
# Nothing is drawn, and the order is that of the data: what the library saves is all there is.
DIGITS = """
import sys
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
images, digits = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
train = TensorDataset(images[:1500].float() / 16, digits[:1500])
layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
entropy = torch.nn.functional.cross_entropy
"""
LIGHTNING = """
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = layers
    def training_step(self, batch, batch_idx):
        return entropy(self.layers(batch[0]), batch[1])
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.8)]

def trainer(epochs, *callbacks):
    return Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                   enable_model_summary=False, callbacks=list(callbacks))
"""
LIGHTNING_BY_HAND = """
saves = [
    ModelCheckpoint(dirpath="ends", filename="{epoch}", save_top_k=-1),
    ModelCheckpoint(dirpath="within", every_n_train_steps=20, save_top_k=-1, filename="{step}"),
]
trainer(4, *saves).fit(Digits(), DataLoader(train, batch_size=100))
"""
LIGHTNING_RUN = """
from unbroken.training.lightning import UnbrokenCallback
unbroken = UnbrokenCallback(seed=0)
loader = unbroken.loader(train, batch_size=100, shuffle=False)
trainer(unbroken.goal, unbroken).fit(Digits(), loader, ckpt_path=unbroken.resume, weights_only=True)
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
optimizer = torch.optim.Adam(layers.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 15, gamma=0.8)

def step(inputs, targets):
    loss = entropy(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
"""
ACCELERATE_BY_HAND = """
loader = DataLoader(train, batch_size=100)
model, optimizer, scheduler, loader = accelerator.prepare(layers, optimizer, scheduler, loader)
for epoch in range(4):
    for inputs, targets in loader:
        step(inputs, targets)
    accelerator.save_state(f"epoch-{epoch + 1}")
torch.save(model.state_dict(), "model.pt")
"""
ACCELERATE_RUN = """
from unbroken.training.accelerate import UnbrokenLoop
unbroken = UnbrokenLoop(accelerator, seed=0)
loader = unbroken.loader(train, batch_size=100, shuffle=False)
model, optimizer, scheduler = accelerator.prepare(layers, optimizer, scheduler)
for _ in unbroken.epochs(4):
    for inputs, targets in unbroken.batches(loader):
        step(inputs, targets)
unbroken.finish({"model.pt": model.state_dict()})
"""


def by_hand(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "by_hand.py").write_text(script)
    subprocess.run([sys.executable, "by_hand.py"], cwd=folder, check=True)
    return folder


def tensors(path: Path) -> dict[str, bytes]:
    state = torch.load(path, weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.get("state_dict", state).items()}


def test_a_checkpoint_of_the_trainer_goes_on_in_the_middle_of_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves its random states and skips what was trained, so nothing is lost."""
    pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    script = (ROOT / "examples" / "torch_transformers" / "train.py").read_text()
    saving = script.replace("or 60", "or 20").replace('save_strategy="no",', 'save_strategy="steps", save_steps=16,')
    saving = saving.replace("callbacks=[Pause(), unbroken]", "callbacks=[Pause()]")
    whole = by_hand(tmp_path / "by_hand", saving)
    source = whole / "out" / "checkpoint-16"
    settings = {"script": script, "goal": 20, "goal_unit": "steps"}
    shutil.copytree(source, tmp_path / "alone", ignore=shutil.ignore_patterns("optimizer.pt"))

    passport = taken(job(tmp_path, **settings), source, done=16).passport
    record = segment(job(tmp_path, **settings))
    taken(job(tmp_path / "next", **settings), tmp_path / "alone", done=16)
    with pytest.raises(SegmentError, match=r"has no optimizer \(save_only_model\)"):
        segment(job(tmp_path / "next", **settings))

    assert (passport.progress.done, passport.progress.unit, record.kind) == (16, "steps", EndKind.FINISHED)
    found = job(tmp_path, **settings).places.final / "model.safetensors"
    assert found.read_bytes() == (whole / "out" / "checkpoint-20" / "model.safetensors").read_bytes()


def test_a_checkpoint_of_lightning_goes_on_from_the_end_of_its_epoch(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="missing: pytorch_lightning (pip install unbroken[adapters])")
    whole = by_hand(tmp_path / "by_hand", DIGITS + LIGHTNING + LIGHTNING_BY_HAND)
    settings = {"script": DIGITS + LIGHTNING + LIGHTNING_RUN, "goal": 4}

    taken(job(tmp_path, **settings), whole / "ends" / "epoch=1.ckpt", done=2)
    record = segment(job(tmp_path, **settings))
    taken(job(tmp_path / "within", **settings), next((whole / "within").glob("*.ckpt")), done=1)
    with pytest.raises(SegmentError, match="is from the middle of an epoch; allowed: the end of one"):
        segment(job(tmp_path / "within", **settings))

    assert record.kind is EndKind.FINISHED
    found = job(tmp_path, **settings).places.final / "model.ckpt"
    assert tensors(found) == tensors(whole / "ends" / "epoch=3.ckpt")


def test_a_state_of_accelerate_goes_on_from_the_epoch_that_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="missing: accelerate (pip install unbroken[adapters])")
    whole = by_hand(tmp_path / "by_hand", DIGITS + ACCELERATE + ACCELERATE_BY_HAND)
    settings = {"script": DIGITS + ACCELERATE + ACCELERATE_RUN, "goal": 4}

    passport = taken(job(tmp_path, **settings), whole / "epoch-2", done=2).passport
    record = segment(job(tmp_path, **settings))

    assert (passport.progress.done, record.kind) == (2, EndKind.FINISHED)
    assert tensors(job(tmp_path, **settings).places.final / "model.pt") == tensors(whole / "model.pt")
