"""A training on two ranks that already ran by hand goes on as a run of two ranks, to the weights of one piece."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import ROOT

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from engines.test_import_torch import job, segment, taken, weights

from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.slow]
# Nothing is drawn but the first weights; each rank's batches are those that the loader of unbroken gives it in order.
BEGIN = """
import sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
inputs, targets = torch.linspace(0, 1, 512).reshape(64, 8), torch.linspace(-1, 1, 64).reshape(64, 1)
"""
DDP = "model = DistributedDataParallel(model)\n"
FSDP = 'model = fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))\n'
OPTIMIZER = "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)\n"
LOOP = """
rank = dist.get_rank()
for epoch in range(int(sys.argv[1])):
    for begin in range(8 * rank, 64, 16):
        loss = mse_loss(model(inputs[begin : begin + 8]), targets[begin : begin + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SAVE_DDP = """
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "mine.pt")
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
"""
SAVE_DCP = """
weights, moments = states.get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="mine")
whole = states.get_model_state_dict(model, options=states.StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    torch.save(whole, "model.pt")
dist.destroy_process_group()
"""
TRAINING = """
from torch.utils.data import TensorDataset
from unbroken.training.torch import Training
training = Training(state={"model": model, "optimizer": optimizer}, seed=0)
loader = training.loader(TensorDataset(inputs, targets), batch_size=8, shuffle=False)
if training.imported:
"""
LOAD_DDP = """
    saved = torch.load(training.imported, weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
"""
LOAD_DCP = """
    weights, moments = states.get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=training.imported)
    states.set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
"""
EPOCHS = """
for epoch in training.epochs(6):
    for batch, wanted in training.batches(loader):
        loss = mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
training.finish({"model.pt": model.state_dict()})
dist.destroy_process_group()
"""
KINDS = {
    "DDP": (BEGIN + DDP + OPTIMIZER, SAVE_DDP, LOAD_DDP, "mine.pt"),
    "FSDP": (BEGIN + FSDP + OPTIMIZER, SAVE_DCP, LOAD_DCP, "mine"),
}


def trained_by_hand(folder: Path, script: str, epochs: int) -> Path:
    folder.mkdir()
    (folder / "by_hand.py").write_text(script)
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*ranks, "by_hand.py", str(epochs)], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_half_by_hand_and_half_imported_is_one_training_of_two_ranks(kind: str, tmp_path: Path) -> None:
    begin, save, load, name = KINDS[kind]
    half, whole = (trained_by_hand(tmp_path / str(epochs), begin + LOOP + save, epochs) for epochs in (2, 6))
    script = begin + TRAINING + load + EPOCHS

    passport = taken(job(tmp_path / "run", script=script, ranks=2), half / name, done=2).passport
    record = segment(job(tmp_path / "run", script=script, ranks=2))

    assert (passport.progress.done, record.kind, record.progress.done) == (2, EndKind.FINISHED, 6)
    assert unwrapped(job(tmp_path / "run").places.final / "model.pt") == weights(whole / "model.pt")


def test_a_checkpoint_of_the_trainer_on_two_ranks_goes_on_with_the_random_states_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, and in the middle of an epoch of three steps."""
    pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    script = (ROOT / "tests" / "support" / "trainer_ranks.py").read_text()
    plain = script.replace('save_strategy="no",', 'save_strategy="steps", save_steps=2,').replace(
        "Deed(), unbroken", ""
    )
    plain = plain.replace("unbroken.goal", "2").replace("import UnbrokenCallback", "import UnbrokenCallback as _")
    plain = plain.replace("unbroken = UnbrokenCallback()", "").replace('unbroken.output_dir("out")', '"out"')
    plain = plain.replace("unbroken.resume", "None")
    out = trained_by_hand(tmp_path / "whole", plain, 2) / "out"
    settings = {"script": script, "ranks": 2, "goal": 2}

    taken(job(tmp_path / "run", **settings), out / "checkpoint-4", done=1)
    record = segment(job(tmp_path / "run", **settings))

    assert (record.kind, record.progress.done) == (EndKind.FINISHED, 2)
    found = job(tmp_path / "run", **settings).places.final / "model.safetensors"
    assert found.read_bytes() == (out / "checkpoint-6" / "model.safetensors").read_bytes()


def unwrapped(path: Path) -> dict[str, bytes]:
    """DDP's names without its wrapper's."""
    return {name.removeprefix("module."): value for name, value in weights(path).items()}
