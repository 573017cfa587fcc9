"""Small JAX trainings as a program of its own: three ways to write one, and what may befall it.

`nnx`: objects of Flax NNX with dropout and a schedule of Optax, over a shuffled data set of Grain; `pytree`: a donated
TrainState with a PRNG key, over an iterator and a generator of its own; `loader`: Grain's DataLoader.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import time

import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from flax.training.train_state import TrainState

from unbroken.training.jax import Saves, Training
from unbroken.training.jax import state as jax_state
from unbroken.training.jax.position import Positions

INPUTS = np.random.default_rng(1).normal(size=(64, 8)).astype("float32")
SCHEDULE = optax.cosine_decay_schedule(1e-2, 60)


class Net(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.last = nnx.Linear(8, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, inputs):
        return self.last(self.dropout(nnx.relu(self.first(inputs))))


class LinenNet(nn.Module):
    width: int

    @nn.compact
    def __call__(self, inputs):
        hidden = nn.Dropout(0.3, deterministic=False)(nn.relu(nn.Dense(self.width)(inputs)))
        return nn.Dense(1)(hidden)


class OwnIterator:
    """Draws batches at random, and knows where it is."""

    def __init__(self):
        self.random, self.count = np.random.Generator(np.random.PCG64(7)), 0

    def __next__(self):
        self.count += 1
        return INPUTS[self.random.integers(0, len(INPUTS), 8)]

    def state_dict(self):
        return {"random": self.random.bit_generator.state, "count": np.int64(self.count), 3: (b"\x00", None)}

    def load_state_dict(self, state):
        assert type(state["count"]) is np.int64
        assert state[3] == (b"\x00", None)
        self.random.bit_generator.state, self.count = state["random"], int(state["count"])


def off(outputs, inputs):
    return ((outputs - inputs.sum(1, keepdims=True)) ** 2).mean()


def nnx_training(options, **given):
    batches = iter(grain.MapDataset.source(INPUTS).shuffle(seed=3).repeat().batch(8).to_iter_dataset())
    model = Net(options.width, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(SCHEDULE), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, inputs):
        loss, grads = nnx.value_and_grad(lambda model: off(model(inputs), inputs))(model)
        optimizer.update(model, grads)
        return loss

    training = Training({"model": model, "optimizer": optimizer}, data=batches, **given)
    return training, lambda: train_step(model, optimizer, next(batches))


def pytree_training(options, **given):
    net, batches, noise = LinenNet(options.width), OwnIterator(), np.random.default_rng(5)
    params = net.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, INPUTS[:8])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adamw(SCHEDULE))
    odd = {"half": jnp.ones(3, jnp.bfloat16), "none": jnp.zeros((0, 2)), "scale": 0.5, "mean": np.zeros(2)}

    def train_step(state, key, odd, inputs):
        key, dropout = jax.random.split(key)
        apply = state.apply_fn
        loss, grads = jax.value_and_grad(lambda params: off(apply(params, inputs, rngs={"dropout": dropout}), inputs))(
            state.params
        )
        odd = {**odd, "scale": odd["scale"] * 1.01, "half": odd["half"] * odd["scale"]}
        return state.apply_gradients(grads=grads), key, odd, loss

    train_step = jax.jit(train_step, donate_argnums=(0, 1))
    whole = {"train": state, "key": jax.random.key(2), "odd": odd}
    training = Training(whole, data={"batches": batches, "noise": noise}, **given)

    def step():
        whole = training.state
        inputs = next(batches) + noise.normal(0, 0.01, (8, 8)).astype("float32")
        state, key, odd, loss = train_step(whole["train"], whole["key"], whole["odd"], inputs)
        training.update({"train": state, "key": key, "odd": odd})
        return loss

    return training, step


def loader_training(options, **given):
    sampler = grain.samplers.IndexSampler(len(INPUTS), shuffle=True, seed=1, num_epochs=None)
    loader = grain.DataLoader(
        data_source=INPUTS, sampler=sampler, operations=[grain.transforms.Batch(8)], worker_count=0
    )
    batches = iter(loader)
    params = {"weights": jnp.zeros((8, 1))}
    optimizer = optax.sgd(SCHEDULE, momentum=0.9)
    state = {"params": params, "optimizer": optimizer.init(params)}

    @jax.jit
    def train_step(state, inputs):
        loss, grads = jax.value_and_grad(lambda params: off(inputs @ params["weights"], inputs))(state["params"])
        updates, moments = optimizer.update(grads, state["optimizer"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "optimizer": moments}, loss

    training = Training(state, data=batches, **given)

    def step():
        state, loss = train_step(training.state, next(batches))
        training.update(state)
        return loss

    return training, step


def main(options):
    if options.distributed:  # JAX wants it to be the first
        jax.distributed.initialize(f"localhost:{options.distributed}", 1, 0)
    arm(options)
    random.seed(0)
    np.random.seed(0)
    saves = Saves(steps=options.save_steps, in_background=not options.in_front)
    made = {"nnx": nnx_training, "pytree": pytree_training, "loader": loader_training}[options.way]
    training, step = made(options, seed=options.seed, folder=options.out, saves=saves, best=("loss", "min"))
    print(f"resumed from step {training.step}: {training.resumed}", flush=True)
    random.random(), np.random.rand()  # what each start draws belongs to no step
    for number in training.steps(options.goal):
        loss = step()
        training.log(loss=loss, python=random.random(), numpy=np.random.rand())
        if options.spoil == number:
            training.update(jax.tree.map(lambda leaf: leaf * jnp.nan, training.state))
        if options.at == number:
            os.kill(os.getpid(), getattr(signal, options.signal))
        time.sleep(options.pause)
    arrays = jax.tree.leaves(jax_state.State(training.state).tree)
    digests = [hashlib.sha256(jax_state.on_host(leaf).tobytes()).hexdigest() for leaf in arrays]
    kinds = [f"{type(leaf).__name__} {getattr(leaf, 'dtype', '')} {getattr(leaf, 'weak_type', '')}" for leaf in arrays]
    training.finish({"digests.txt": "\n".join([*digests, *kinds]), "state": training.state})


def arm(options):
    """Let the process die in a save, or its restart lose something."""
    save, count = ocp.Checkpointer.save, 0

    def save_and_die(self, directory, *arguments, **named):
        nonlocal count
        count += 1
        if count == options.dies_in_save and options.when == "before":
            os.mkdir(f"{directory}.orbax-checkpoint-tmp")  # as Orbax begins
            os.kill(os.getpid(), signal.SIGKILL)
        save(self, directory, *arguments, **named)
        if count == options.dies_in_save:
            os.kill(os.getpid(), signal.SIGKILL)

    ocp.Checkpointer.save = save_and_die
    if options.broken == "position":
        Positions.restore = lambda self, saved, source: None
    if options.broken in ("moments", "weak"):
        restored = jax_state.restored

        def broken(array, row, own):
            if options.broken == "weak" and row[3] == "weak":
                row = [*row[:3], "jax"]
            if options.broken == "moments" and ("['nu']" in row[0] or ".nu" in row[0]):
                array = array * 0
            return restored(array, row, own)

        jax_state.restored = broken


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["nnx", "pytree", "loader"])
    parser.add_argument("--out")
    parser.add_argument("--goal", type=float, default=20)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--save-steps", type=int, default=3)
    parser.add_argument("--in-front", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--at", type=int, default=-1)
    parser.add_argument("--signal", default="SIGUSR1")
    parser.add_argument("--distributed", type=int, default=0)
    parser.add_argument("--spoil", type=int, default=-1)
    parser.add_argument("--dies-in-save", type=int, default=0)
    parser.add_argument("--when", choices=["before", "after"], default="after")
    parser.add_argument("--broken", choices=["", "position", "moments", "weak"], default="")
    sys.exit(main(parser.parse_args()))
