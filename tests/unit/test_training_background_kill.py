"""A process that is killed while it writes a checkpoint beside the training."""

import signal
from pathlib import Path

import pytest
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

# 4 batches an epoch, 3 epochs, each step saved beside the training; the write dies half way where it is told to.
PROGRAM = """
import argparse, os, signal, threading
import torch
from unbroken.training.torch import rank_checkpoint
from unbroken.training.torch import Saves, Training, seed_everything

parser = argparse.ArgumentParser()
parser.add_argument("--dies-in-save", type=int, default=0)
options = parser.parse_args()
complete, count = rank_checkpoint.save_verified, 0

def save(state, path, **more):
    global count
    count += 1
    made = complete(state, path, **more)
    if count == options.dies_in_save:
        assert threading.current_thread().name == "unbroken-save"
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    return made

rank_checkpoint.save_verified = save
torch.set_num_threads(1)
seed_everything(3)
model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
training = Training(model=model, optimizer=optimizer, saves=Saves(steps=1, in_background=True))
loader = training.loader([torch.arange(6.0) + number for number in range(20)], 5)
for epoch in training.epochs():
    for inputs in training.batches(loader):
        loss = (model(inputs) + torch.randn(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if training._link._async_save:  # else most steps would find the save before still on its way
            training._link._async_save._thread.join()
training.finish({"model.pt": model.state_dict()})
"""


@pytest.mark.slow
def test_a_kill_during_a_save_beside_the_training_costs_the_steps_since_the_save_before(tmp_path: Path) -> None:
    whole = TrainingParent(tmp_path / "whole", PROGRAM)
    whole.run_to_the_end()
    killed = TrainingParent(tmp_path / "killed", PROGRAM, ["--dies-in-save", "3"])
    killed.run()
    drafts = [path.name for path in (killed.root / "desk-0" / "save").iterdir()]
    before = len(killed.handovers)
    killed.arguments = []
    killed.run_to_the_end()

    assert killed.codes == [-signal.SIGKILL, 0]
    assert (before, drafts) == (2, ["draft-000003"])
    assert not (killed.root / "desk-0" / "save" / "draft-000003" / "progress.json").exists()
    assert killed.result() == whole.result()
    assert killed.handovers[-1]["done"] == 3
