"""A small training on made-up data, with the moments of its segment noted.

It asks to be stopped after `--segment-steps` steps, so that a chain has as many segments as wanted on any machine.
"""

import argparse
import os
import signal

from marks import Marks

marks = Marks()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from unbroken.training.torch import Training, seed_everything  # noqa: E402

marks.now("imported")


def main(options):
    torch.set_num_threads(1)
    seed_everything(0)
    model = nn.Sequential(nn.Linear(256, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    training = Training(state={"model": model, "optimizer": optimizer}, seed=0)
    save = training._link.save
    training._link.save = lambda *arguments: (marks.now("save_start"), save(*arguments))[1]
    loader = training.loader(TensorDataset(torch.rand(6400, 256), torch.randint(0, 10, (6400,))), 64)
    steps = 0
    for _ in training.epochs(goal=1):
        for inputs, labels in training.batches(loader):
            marks.first("first_step")
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(loss=loss.item())
            steps += 1
            marks.now("last_step")
            if steps == options.segment_steps:
                os.kill(os.getpid(), signal.SIGUSR1)  # noticed after this step
    training.finish({"model.pt": model.state_dict()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segment-steps", type=int, default=0, help="0: to the goal")
    parser.add_argument("--width", type=int, default=2000)
    try:
        main(parser.parse_args())
    finally:
        marks.write()
