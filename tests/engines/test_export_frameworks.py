"""Trainings of the Trainer, Lightning and Accelerate that were runs go on as plain folders, to the same weights.

By `resume.sh`, which starts the script; and from the checkpoint in the folder by the library alone, in a script without
unbroken, where what the library itself can put back is all there is.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import ROOT

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from engines.test_import_frameworks import (
    ACCELERATE,
    ACCELERATE_BY_HAND,
    ACCELERATE_RUN,
    DIGITS,
    LIGHTNING,
    LIGHTNING_BY_HAND,
    LIGHTNING_RUN,
    by_hand,
    tensors,
)
from engines.test_import_torch import job, segment

from unbroken.engines.torch.engine import TorchEngine
from unbroken.job.import_export import export_run
from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.slow]
# Asks to stop, as a run alone; by a signal, which is heard before the next step.
STOP = """
import os, signal
def stop():
    if "UNBROKEN_STOP" in os.environ:
        os.kill(os.getpid(), signal.SIGUSR1)
"""
LIGHTNING_STOPS = """
from pytorch_lightning import Callback
class Stops(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 20:
            stop()
"""
TRAINER_STOPS = """class Pause(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 16:
            stop()
"""
ACCELERATE_ALONE = """
class Left:
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
loader = DataLoader(train, batch_size=100)
model, optimizer, scheduler, loader = accelerator.prepare(layers, optimizer, scheduler, loader)
accelerator.register_for_checkpointing(Left())  # in the place of unbroken's UnbrokenLoop
accelerator.load_state(sys.argv[1])
for epoch in range(2, 4):
    for inputs, targets in loader:
        step(inputs, targets)
torch.save(model.state_dict(), "model.pt")
"""


def exported(base: Path, script: str, **settings: object) -> Path:
    """The plain folder of a run that was stopped on its way."""
    made = job(base / "run", script=script, **settings)
    assert segment(made).kind is EndKind.PAUSED
    export_run(made, TorchEngine(made.base), base / "out", "")
    return base / "out"


def resumed(folder: Path) -> Path:
    """The results, once its script has come to its end."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("UNBROKEN_")}
    subprocess.run([folder / "resume.sh"], check=True, env=plain)
    return folder / "final"


def checkpoint_in(folder: Path) -> Path:
    (found,) = [path for path in (folder / "checkpoints").iterdir() if path.is_dir() and not path.is_symlink()]
    return found


def alone(folder: Path, script: str, checkpoint: Path) -> Path:
    """A script without unbroken, from that checkpoint."""
    assert "unbroken" not in script.replace("unbroken's UnbrokenLoop", "")
    folder.mkdir()
    (folder / "alone.py").write_text(script)
    subprocess.run([sys.executable, "alone.py", str(checkpoint)], cwd=folder, check=True)
    return folder


def test_a_run_of_the_trainer_goes_on_in_the_middle_of_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    script = (ROOT / "examples" / "torch_transformers" / "train.py").read_text().replace("or 60", "or 20")
    plain = script.replace("[Pause(), unbroken]", "[]").replace('save_strategy="no",', 'save_strategy="steps",')
    plain = plain.replace("from unbroken.training.transformers import UnbrokenCallback", "")
    plain = plain.replace("unbroken = UnbrokenCallback(seed=0)", "").replace('unbroken.output_dir("out")', '"out"')
    plain = plain.replace("unbroken.goal or 20", "20").replace(
        "unbroken.resume", "sys.argv[1] if sys.argv[1:] else None"
    )
    plain = plain.replace("float(sys.argv[1]) if sys.argv[1:] else 0.0", "0.0").replace("# unbroken says when", "")
    plain = plain.replace("Plain transformers but for the lines with `unbroken`.  ", "")
    whole = by_hand(tmp_path / "whole", plain) / "out" / "checkpoint-20" / "model.safetensors"
    begin, end = script.index("class Pause"), script.index("torch.set_num_threads")
    stopping = STOP + script[:begin] + TRAINER_STOPS + script[end:]

    folder = exported(tmp_path, stopping, goal=20, goal_unit="steps")
    by_itself = alone(tmp_path / "alone", plain, checkpoint_in(folder))

    found = by_itself / "out" / "checkpoint-20" / "model.safetensors"
    assert found.read_bytes() == whole.read_bytes()
    assert (resumed(folder) / "model.safetensors").read_bytes() == whole.read_bytes()


def test_a_run_of_lightning_goes_on_in_the_middle_of_its_epoch(tmp_path: Path) -> None:
    """15 batches an epoch.  Lightning alone asks for a loader with a state, as that of unbroken has one."""
    pytest.importorskip("pytorch_lightning", reason="missing: pytorch_lightning (pip install unbroken[adapters])")
    whole = by_hand(tmp_path / "whole", DIGITS + LIGHTNING + LIGHTNING_BY_HAND) / "ends" / "epoch=3.ckpt"
    run = LIGHTNING_RUN.replace("unbroken.goal, unbroken", "unbroken.goal or 4, Stops(), unbroken")

    folder = exported(tmp_path, STOP + DIGITS + LIGHTNING + LIGHTNING_STOPS + run, goal=4)

    assert tensors(resumed(folder) / "model.ckpt") == tensors(whole)


@pytest.mark.parametrize("at", [20, 30])
def test_a_run_of_accelerate_goes_on_and_from_the_end_of_an_epoch_by_accelerate_alone(at: int, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="missing: accelerate (pip install unbroken[adapters])")
    whole = by_hand(tmp_path / "whole", DIGITS + ACCELERATE + ACCELERATE_BY_HAND) / "model.pt"
    stops = f"        step(inputs, targets)\n        if unbroken.step == {at - 1}:\n            stop()\n"
    run = ACCELERATE_RUN.replace("        step(inputs, targets)\n", stops)

    folder = exported(tmp_path, STOP + DIGITS + ACCELERATE + run, goal=4)
    if at == 30:
        found = alone(tmp_path / "alone", DIGITS + ACCELERATE + ACCELERATE_ALONE, checkpoint_in(folder)) / "model.pt"
        assert tensors(found) == tensors(whole)

    assert tensors(resumed(folder) / "model.pt") == tensors(whole)
