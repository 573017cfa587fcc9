"""Programs as site scripts start them, which know nothing of unbroken."""

import subprocess
import sys
from pathlib import Path

# Walks to a step, a pace at a time, and writes a restart file every ten steps; goes on from one that it is given.
WALK = """import os, sys, time
goal, seconds = int(sys.argv[1]), float(sys.argv[2])
step, place = 0, 12345
if len(sys.argv) > 3:
    step, place = map(int, open(sys.argv[3]).read().split())
while step < goal:
    time.sleep(seconds)
    step, place = step + 1, (place * 1103515245 + 12345) % 2**31
    if step % 10 == 0 or step == goal:
        with open("draft", "w") as file:
            file.write(f"{step} {place}\\n")
        os.rename("draft", f"walk.{step:06d}.rst")
print("walked to", goal)
"""


def whole_walk(folder: Path, goal: int) -> bytes:
    """The last restart file of one walk without a break."""
    folder.mkdir()
    (folder / "walk.py").write_text(WALK)
    subprocess.run([sys.executable, "walk.py", str(goal), "0"], cwd=folder, check=True, capture_output=True)
    return (folder / f"walk.{goal:06d}.rst").read_bytes()


# The same for the options of several scripts: the goal first, or CP2K's input with goal and place; one restart file,
# which is renamed into place.  `--at-most` ends a call after so many steps, as a job of a chain does.
WALKER = """import os, sys, time
words = sys.argv[1:]
value = lambda name, default: words[words.index(name) + 1] if name in words else default
read = value("-i", "")
path = "aimd-1.restart" if read else value("--file", "state.txt")
step, place = 0, 12345
if read.endswith(".inp"):
    goal, place = map(int, open(read).read().split())
elif read:
    goal = int(open(read).read().split()[2])
else:
    goal = int(words[0])
if os.path.exists(path):
    step, place = map(int, open(path).read().split()[:2])
last = min(goal, step + int(value("--at-most", goal)))
while step < last:
    time.sleep(0.3)
    step, place = step + 1, (place * 1103515245 + 12345) % 2**31
    if step % 5 == 0 or step == goal:
        with open("draft", "w") as file:
            file.write(f"{step} {place} {goal}\\n")
        os.rename("draft", path)
"""
# A regression in PyTorch with momentum, which saves after each epoch and goes on from what it saved.
TRAINING = """import argparse, os, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--run-dir")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
rows = [list(map(float, line.split())) for line in open(f"{args.data}/numbers.txt")]
data = torch.tensor(rows) / 17
model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
os.makedirs(args.run_dir, exist_ok=True)
state, epoch = f"{args.run_dir}/state.pt", 0
if os.path.exists(state):
    found = torch.load(state)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    torch.set_rng_state(found["random"])
    epoch = found["epoch"]
while epoch < 60:
    for rows in torch.randperm(len(data)).split(64):
        loss = torch.nn.functional.mse_loss(model(data[rows, :1]), data[rows, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epoch += 1
    time.sleep(1.5)
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**kept, "random": torch.get_rng_state(), "epoch": epoch}, state + ".new")
    os.rename(state + ".new", state)
with open(f"{args.run_dir}/model.txt", "w") as file:
    file.write("".join(f"{value.item().hex()}\\n" for part in model.parameters() for value in part.flatten()))
"""
# Neighbour lists at fixed steps, no sorting of atoms: a restart at a multiple of 20 gives the bits of no restart.
LAMMPS = """units lj
atom_style atomic
atom_modify sort 0 0.0
lattice fcc 0.8442
region box block 0 8 0 8 0 8
@begin@
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 500
restart 100 restart.*.bin
run 4000 upto every 100 "shell sleep 2"
"""
# A regression in Keras with momentum, to as many steps as it is told; it goes on from the newest model that it finds.
KERAS = """import glob, os, sys, time
import keras
import numpy

goal = int(sys.argv[1])
found = sorted(glob.glob("model_*.keras"))
if found:
    model = keras.saving.load_model(found[-1])
else:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
step = int(model.optimizer.iterations)
while step < goal:
    draws = numpy.random.default_rng(step).normal(size=(32, 4)).astype("float32")
    model.train_on_batch(draws, draws.sum(1, keepdims=True))
    time.sleep(0.2)
    step += 1
    if step % 20 == 0 or step == goal:
        model.save("draft.keras")
        os.rename("draft.keras", f"model_{step:06d}.keras")
"""
