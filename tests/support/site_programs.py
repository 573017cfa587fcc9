"""Small programs that read the same arguments and files as programs of sites: those that cannot be had, and scripts.

Each walks a pace at a time, deterministic, and writes its restart file by renaming it into place.
"""

import sys

_WALK = """import os, re, sys, time

def read(path):
    return [int(word) for word in open(path).read().split()[:2]]

def write(path, text):
    with open("draft", "w") as file:
        file.write(text)
    os.rename("draft", path)

def walk(step, place, last, path, is_told=lambda: False, seconds=0.2):
    while step < last and not is_told():
        time.sleep(seconds)
        step, place = step + 1, (place * 1103515245 + 12345) % 2**31
        if step % 5 == 0 or step == last:
            write(path, f"{step} {place}\\n")
    write(path, f"{step} {place}\\n")
    return step

"""
# A part of so many steps (nstlim), from the coordinates of -c to those of -r.
_PMEMD = """words = [word for word in sys.argv[1:] if word != "-O"]
options = dict(zip(words[::2], words[1::2]))
assert os.environ["AMBERHOME"] and read(options["-p"])
steps = int(re.search(r"nstlim *= *(\\d+)", open(options["-i"]).read())[1])
step, place = read(options["-c"])
walk(step, place, step + steps, options["-r"])
"""
# `run 100` more steps from NAME.restart, if there is one.
_NAMD = """assert sys.argv[1].startswith("+p")
lines = dict(line.split() for line in open(sys.argv[2]))
path = lines["outputname"] + ".restart"
step, place = read(path) if os.path.exists(path) else (0, int(lines["seed"]))
walk(step, place, step + int(lines["run"]), path)
"""
# From POSCAR to CONTCAR, NSW steps in all; told to leave by STOPCAR, which it removes when it starts.
_VASP = """if os.path.exists("STOPCAR"):
    os.remove("STOPCAR")
told = lambda: os.path.exists("STOPCAR") and "LSTOP = .TRUE." in open("STOPCAR").read()
steps = int(re.search(r"NSW *= *(\\d+)", open("INCAR").read())[1])
step, place = read("POSCAR")
walk(step, place, steps, "CONTCAR", told)
"""
# A training that works for a while, saves, and says by its exit code 9 that there is more to do.
_EPOCHS = """step, place = read(sys.argv[2]) if "--resume" in sys.argv else (0, 12345)
step = walk(step, place, min(300, step + 100), "model.pt")
sys.exit(0 if step == 300 else 9)
"""
PMEMD, NAMD, VASP = (f"#!{sys.executable}\n{_WALK}{text}" for text in (_PMEMD, _NAMD, _VASP))
EPOCHS = _WALK + _EPOCHS
# A walk in R, by the words of its line of a table; goes on from its own restart file.
R_WALK = """words <- commandArgs(trailingOnly = TRUE)
value <- function(name) words[match(name, words) + 1]
path <- paste0("walk_", value("--seed"), ".rds")
if (file.exists(path)) {
  state <- readRDS(path)
} else {
  set.seed(as.integer(value("--seed")))
  state <- list(step = 0, places = numeric(0), seed = .Random.seed)
}
assign(".Random.seed", state$seed, envir = globalenv())
while (state$step < 400) {
  Sys.sleep(0.2)
  state$step <- state$step + 1
  state$places[state$step] <- rnorm(1)
  state$seed <- .Random.seed
  if (state$step %% 10 == 0) {
    saveRDS(state, "draft.rds")
    invisible(file.rename("draft.rds", path))
  }
}
write.csv(data.frame(place = format(cumsum(state$places), digits = 17)), value("--out"))
"""
# A script for MATLAB and Octave that is told whether to go on.
SIMULATE = """state = struct('step', 0, 'place', 12345);
if go_on
  state = load('state.mat');
end
while state.step < 400
  pause(0.2);
  state.place = mod(state.place * 16807, 2147483647);
  state.step = state.step + 1;
  if mod(state.step, 10) == 0
    save('-v7', 'draft.mat', '-struct', 'state');
    movefile('draft.mat', 'state.mat');
  end
end
file = fopen('place.txt', 'w');
fprintf(file, '%d %.17g\\n', state.step, state.place);
fclose(file);
fclose(fopen('done.txt', 'w'));
"""
# A regression with Lightning, which leaves when it hears USR1 and goes on from the file of --ckpt_path.
LIGHTNING = """import argparse, os, signal, time
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import SLURMEnvironment

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int)
parser.add_argument("--max_epochs", type=int)
parser.add_argument("--ckpt_path")
args = parser.parse_args()


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch):
        time.sleep(0.08)
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Leave(pl.Callback):
    is_told = False

    def on_fit_start(self, trainer, module):
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "is_told", True))

    def on_train_epoch_end(self, trainer, module):
        trainer.save_checkpoint("draft.ckpt")
        os.rename("draft.ckpt", args.ckpt_path)
        trainer.should_stop = self.is_told  # at an end of an epoch, or the rest of it would be left out


pl.seed_everything(1)
torch.set_num_threads(1)
x = torch.linspace(-1, 1, 64).reshape(-1, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.sin(3 * x)), 8)
trainer = pl.Trainer(
    accelerator="cpu", devices=args.devices, max_epochs=args.max_epochs, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, callbacks=[Leave()], plugins=[SLURMEnvironment(auto_requeue=False)],
)
model = Line()
trainer.fit(model, data, ckpt_path=args.ckpt_path if os.path.exists(args.ckpt_path) else None)
if trainer.current_epoch < args.max_epochs:
    raise SystemExit(85)
with open("model.txt", "w") as file:
    file.write("".join(f"{value.item().hex()}\\n" for part in model.parameters() for value in part.flatten()))
"""
# A regression on several ranks, each with its share of the rows; the first one saves, and all go on from that.
RANKS = """import os, sys, time
import torch
import torch.distributed as dist

path = sys.argv[sys.argv.index("--checkpoint") + 1]
torch.manual_seed(1)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
epoch = 0
if os.path.exists(path):
    found = torch.load(path)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    epoch = found["epoch"]
parallel = torch.nn.parallel.DistributedDataParallel(model)
x = torch.linspace(-1, 1, 64).reshape(-1, 1)[rank::ranks]
while epoch < 240:
    loss = torch.nn.functional.mse_loss(parallel(x), torch.sin(3 * x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    epoch += 1
    time.sleep(0.4)
    if rank == 0 and epoch % 5 == 0:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(kept, path + ".new")
        os.rename(path + ".new", path)
if rank == 0:
    with open("model.txt", "w") as file:
        values = (value.item().hex() for part in model.parameters() for value in part.flatten())
        file.write(f"{ranks} ranks\\n" + "".join(f"{value}\\n" for value in values))
dist.destroy_process_group()
"""
