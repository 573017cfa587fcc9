"""A training by hand on a system that has not all that Linux has: it stops, goes on, and has one writer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

# What macOS has not, and what Windows has not either.  /proc is missing on both.
PROGRAM = """\
import os, pathlib, signal, sys, time

for module, names in {
    os: ["O_PATH", "copy_file_range", "sched_getaffinity", "memfd_create", "pidfd_open"],
    signal: ["sigwaitinfo", "sigtimedwait", "pidfd_send_signal"],
    time: ["CLOCK_BOOTTIME"],
}.items():
    for name in names:
        delattr(module, name)
sys.modules["fcntl"] = None

from unbroken.system import host

host._stat = lambda pid: []
host.boot_id = host.pid_namespace = lambda: ""

import torch
from unbroken.training.torch import Saves, Training

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(1, 1)
training = Training(state={"model": model}, folder=sys.argv[1], saves=Saves(steps=1))
loader = training.loader(torch.arange(8.0).reshape(8, 1), 2, num_workers=1)
for _ in training.epochs(1):
    for batch in training.batches(loader):
        with torch.no_grad():
            model.weight += model(batch).mean()
        if training.step + 1 == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGTERM)
training.finish({"model.pt": model.state_dict()})
"""


def train(folder: Path, stop_at: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(stop_at)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("UNBROKEN", "SLURM"))},
    )
    assert done.returncode in (0, 85), done.stdout
    return done.returncode


@pytest.mark.slow
def test_a_training_by_hand_stops_and_goes_on_where_less_is_there_than_on_linux(tmp_path: Path) -> None:
    codes = [train(tmp_path / "pieces", 2), train(tmp_path / "pieces", 0), train(tmp_path / "whole", 0)]

    assert codes == [85, 0, 0]
    pieces, whole = ((tmp_path / name / "final" / "model.pt").read_bytes() for name in ("pieces", "whole"))
    assert pieces == whole
