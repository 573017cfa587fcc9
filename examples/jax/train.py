"""Trains a small network to read handwritten digits (8 x 8 pixels, they come with scikit-learn).

Plain Flax NNX, Optax and Grain but for the lines with `training`: through them the training can be stopped after any
step and goes on in the next segment as if nothing had happened.  `python train.py` trains without unbroken.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from unbroken.training.jax import Training

STEPS = 270  # the goal where no configuration gives one
EVERY = 30  # steps, a test


class Network(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 32, 64, rngs=rngs)
        self.last = nnx.Linear(64, 10, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, images):
        maps = nnx.relu(self.second(nnx.relu(self.first(images))))
        pooled = nnx.max_pool(maps, (2, 2), strides=(2, 2)).reshape(len(images), -1)
        return self.last(self.dropout(nnx.relu(self.hidden(self.dropout(pooled)))))


def read_digits():
    """Images and labels from scikit-learn's own file: to load all of scikit-learn takes longer than an epoch."""
    folder = Path(find_spec("sklearn").submodule_search_locations[0], "datasets", "data")
    rows = np.loadtxt(folder / "digits.csv.gz", delimiter=",")
    images = rows[:, :-1].reshape(-1, 8, 8, 1).astype("float32") / 16
    return [{"image": image, "label": label} for image, label in zip(images, rows[:, -1].astype("int32"), strict=True)]


@nnx.jit
def train_step(model, optimizer, batch):
    def loss_of(model):
        losses = optax.softmax_cross_entropy_with_integer_labels(model(batch["image"]), batch["label"])
        return losses.mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def accuracy_of(model, batch):
    return (model(batch["image"]).argmax(-1) == batch["label"]).mean()


def main(options):
    digits = read_digits()
    shuffled = grain.MapDataset.source(digits[:1437]).seed(options.seed).shuffle().repeat()
    batches = iter(shuffled.batch(options.batch_size).to_iter_dataset())
    test_set = jax.tree.map(lambda *rows: jnp.stack(rows), *digits[1437:])

    model = Network(nnx.Rngs(options.seed))
    schedule = optax.cosine_decay_schedule(options.lr, STEPS)
    optimizer = nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)

    parts = {"model": model, "optimizer": optimizer}
    training = Training(parts, data=batches, seed=options.seed, best=("accuracy", "max"))
    for step in training.steps(STEPS):
        loss = train_step(model, optimizer, next(batches))
        if (step + 1) % EVERY == 0:
            accuracy = float(accuracy_of(nnx.view(model, deterministic=True), test_set))
            training.log(loss=loss, accuracy=accuracy)
            print(f"step {step + 1}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
        time.sleep(options.pause_seconds)
    training.finish({"model": model})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each step, to have time to watch")
    main(parser.parse_args())
