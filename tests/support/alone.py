"""A training in a rule of somebody's own, without a command of unbroken: the program and its workflow."""

import subprocess
import sys
from pathlib import Path

from support.workdir import WorkDir

EPOCHS, BATCHES = 6, 4
# It writes down each batch, and has the accidents that files ask for, each of them once.
PROGRAM = """\
import os
import shutil
import sys
import time

import torch

from unbroken.training.torch import Saves, Training, seed_everything

output = snakemake.output[0] if "snakemake" in globals() else sys.argv[1]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.randn(6) + index


torch.set_num_threads(1)
seed_everything(1)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
training = Training(state={"model": model, "optimizer": optimizer}, folder="ckpt", saves=Saves(steps=1))
loader = training.loader(Numbers(), 5)
for epoch in training.epochs(int(os.environ.get("EPOCHS", "6"))):
    for batch in training.batches(loader):
        loss = (model(batch) + torch.randn(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
        with open("batches.txt", "a") as file:
            file.write(f"{training.step}\\n")
        if not os.path.exists("hurry"):
            time.sleep(float(os.environ.get("PACE", "0")))
        accident = f"accident-{training.step}"
        if os.path.exists(accident):
            number = int(open(accident).read())
            os.remove(accident)
            if not number:
                raise ValueError("no such luck")
            if number < 0:
                hog = bytearray(os.urandom(1 << 20)) * -number
            os.kill(os.getpid(), number)
training.finish({"model.pt": model.state_dict()})
shutil.copy("ckpt/final/model.pt", output)
"""
KINDS = {"script": 'script: "train.py"', "shell": 'shell: "python train.py {output}"'}
WORKFLOW = """\
rule all:
    input:
        "plot.txt",


rule train:
    output:
        "model.pt",
    {more}
    {kind}


rule plot:
    input:
        "model.pt",
    output:
        "plot.txt",
    shell:
        "echo plotted >> plotted.txt; cksum < {{input}} > {{output}}"
"""


def prepare(work: WorkDir, kind: str, more: str) -> None:
    """A folder as somebody else would have it."""
    work.write("train.py", PROGRAM)
    work.snakefile = work.write("Snakefile", WORKFLOW.format(kind=KINDS[kind], more=more))


def batches(work: WorkDir) -> list[int]:
    """The steps that were trained, those that were trained again twice."""
    path = work.root / "batches.txt"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def uninterrupted(folder: Path, epochs: int = EPOCHS) -> bytes:
    """What the same program leaves in one piece."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    command = ["env", f"EPOCHS={epochs}", sys.executable, "train.py", "model.pt"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "model.pt").read_bytes()
