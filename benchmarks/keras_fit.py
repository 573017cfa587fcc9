"""Keras: a chain of segments against one uninterrupted `fit`, and what a save costs a training that goes on.

The chain runs under a real snakemake and its segments end after their share of the steps; the plain `fit` is a Python
script without unbroken.  Stall: the time of the one call in which a callback saves, the model and optimizer the same.
All: the seconds that the training loses by the save until it is complete, against the same steps without.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import yaml
from support.chains import COMMAND, ENOUGH_MINUTES
from support.keras_training import BATCHES, dense_model
from support.measure import Cost, cost_of, in_turns, machine, options, publish, ratios, spread, table

from unbroken.training.core.save_schedule import Phase
from unbroken.training.tensorflow import Saves, Training

PROGRAM = Path(__file__).parent / "support" / "keras_training.py"
# What begins a save (its time is the stall), and what says that it is complete.
Way = tuple[Callable[[], object], Callable[[], bool]]


def plain(base: Path, epochs: int) -> Cost:
    folder = Path(tempfile.mkdtemp(dir=base))
    return cost_of([sys.executable, str(PROGRAM), "--plain", "--epochs", str(epochs)], folder)


def chain(base: Path, epochs: int, segments: int) -> Cost:
    folder = Path(tempfile.mkdtemp(dir=base))
    steps = 0 if segments == 1 else -(-epochs * BATCHES // segments)
    settings = {"script": str(PROGRAM), "goal": epochs, "args": ["--segment-steps", steps]}
    run = {"engine": "tensorflow", "segments": segments, "segment_minutes": ENOUGH_MINUTES, "settings": settings}
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"bench": run}}))
    return cost_of(COMMAND, folder)


def compare(base: Path, epochs: int, segments: int, rounds: int) -> str:
    variants = {
        "`model.fit` alone": partial(plain, base, epochs),
        "unbroken, one segment": partial(chain, base, epochs, 1),
        f"unbroken, {segments} segments": partial(chain, base, epochs, segments),
    }
    found = in_turns(variants, rounds)
    bases, *_ = found.values()
    rows = []
    for name, costs in found.items():
        row = [name]
        for key in ("wall_seconds", "cpu_seconds"):
            values, whole = ([getattr(cost, key) for cost in group] for group in (costs, bases))
            row += [spread(values, 1), spread(ratios(values, whole))]
        rows.append(row)
    one, many = (found[name] for name in list(found)[1:])
    further = [(b.wall_seconds - a.wall_seconds) / (segments - 1) for a, b in zip(one, many, strict=True)]
    return (
        f"**{epochs * BATCHES:,} steps**, rounds: {rounds}\n\n"
        f"{table(['variant', 'seconds', 'times', 'CPU seconds', 'times'], rows)}\n\n"
        f"Each further segment costs {spread(further, 1)} s."
    )


class Loop:
    """A training, and how long one of its steps takes."""

    def __init__(self, width: int) -> None:
        self.model = dense_model(width)
        random = np.random.default_rng(0)
        self.batch = random.normal(size=(64, width)).astype("float32"), random.integers(0, 10, 64)
        self.seconds(2)

    def seconds(self, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self.model.train_on_batch(*self.batch)
        return time.perf_counter() - began


def ways(base: Path, model: keras.Model) -> dict[str, Way]:
    weights = keras.callbacks.ModelCheckpoint(base / "{batch}.weights.h5", save_freq=1, save_weights_only=True)
    whole = keras.callbacks.ModelCheckpoint(base / "{batch}.keras", save_freq=1)
    backup = keras.callbacks.BackupAndRestore(base / "backup", save_freq=1)
    for callback in (weights, whole, backup):
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
    return {
        "no save": (lambda: None, lambda: True),
        "`ModelCheckpoint`, weights and optimizer": (lambda: weights.on_train_batch_end(1, {}), lambda: True),
        "`ModelCheckpoint`, whole model": (lambda: whole.on_train_batch_end(1, {}), lambda: True),
        "`BackupAndRestore`": (lambda: backup.on_train_batch_end(1), lambda: True),
        "unbroken": unbrokens(base / "ours", model),
    }


def unbrokens(base: Path, model: keras.Model) -> Way:
    """A save as a segment's program makes it; what it hands over is taken away before the next."""
    (base / "save").mkdir(parents=True)
    told = {"RUN": "bench", "SAVE": base / "save", "STOP": base / "stop", "PROGRESS": base / "progress.json"}
    told |= {"LIVE": base / "live", "SAVE_SECONDS": 3600, "GOAL": 1, "GOAL_UNIT": "epochs"}
    os.environ |= {f"UNBROKEN_{name}": str(value) for name, value in told.items()}
    training = Training({"model": model}, saves=Saves(steps=1))
    position = training._course.position
    training._tick(Phase.BATCH, Phase.BATCH)  # counts from here

    def save() -> None:
        position.step += 1
        training._tick(Phase.BATCH, Phase.BATCH)

    return save, lambda: True


def measured(way: Way, loop: Loop, base: Path, steps: int) -> tuple[float, float]:
    """Seconds that the training stands still for a save, and that it loses by it until it is complete."""
    begin, is_complete = way
    for ready in base.glob("*/save/*.ready"):
        shutil.rmtree(ready)
    os.sync()
    alone = loop.seconds(steps) / steps
    began = time.perf_counter()
    begin()
    stall, count = time.perf_counter() - began, 0
    while count < steps or not is_complete():
        loop.seconds(1)
        count += 1
    return stall, time.perf_counter() - began - count * alone


def stalls(base: Path, width: int, rounds: int, steps: int) -> str:
    loop = Loop(width)
    variants = {name: partial(measured, way, loop, base, steps) for name, way in ways(base, loop.model).items()}
    in_turns(variants, 1)  # to have everything loaded
    found = in_turns(variants, rounds)
    plain = [stall for stall, _ in found["`ModelCheckpoint`, weights and optimizer"]]
    rows = []
    for name, costs in found.items():
        waited, lost = ([cost[at] for cost in costs] for at in (0, 1))
        rows.append([name, spread(waited, 3), spread(ratios(waited, plain)), spread(lost)])
    header = ["variant", "stall, seconds", "times `ModelCheckpoint`", "all, seconds"]
    step = spread([loop.seconds(1) for _ in range(5)], 3)
    megabytes = 3 * 8 * width * width / 1e6
    return f"**{megabytes:.0f} MB**, a step takes {step} s, rounds: {rounds}\n\n{table(header, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        epochs=(int, 8, f"length of the training, {BATCHES} steps each"),
        segments=(int, 4, "how many segments the chain has"),
        width=(int, 1000, "of the layers: 24 * width^2 bytes are saved; the larger state is nine times that"),
        rounds=(int, 2, "how often the trainings, three times as often the saves"),
        steps=(int, 4, "steps at least after each save"),
    )
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the other core is for what is written beside
    tf.config.threading.set_inter_op_parallelism_threads(1)
    where = machine("snakemake", "tensorflow-cpu", "keras")
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as folder:
        base = Path(folder)
        pages = [compare(base, chosen.epochs, chosen.segments, chosen.rounds)]
        pages += [stalls(base / f"{n}", n * chosen.width, 3 * chosen.rounds, chosen.steps) for n in (1, 3)]
    publish("keras_fit", "\n\n".join([where, *pages]), chosen.write)
