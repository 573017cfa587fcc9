"""A small Keras training, whole or in pieces, all in this process: each start of TensorFlow costs seconds."""

import json
import os
import random
import signal
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unbroken.program.contract import EXIT_PAUSED
from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import Saves, Training, seed_everything

# 40 samples in batches of 5: 8 batches an epoch.
BATCHES = 8
FEATURES = np.random.default_rng(1).normal(size=(40, 6)).astype("float32")
TARGETS = (FEATURES.sum(axis=1, keepdims=True) > 0).astype("float32")


class SignalAfter(keras.callbacks.Callback):
    """Sends USR1 after some steps, and after some epochs (negative numbers)."""

    def __init__(self, places):
        super().__init__()
        self.set = set(places)

    def on_train_batch_end(self, batch, logs=None):
        self._signal(int(self.model.optimizer.iterations.numpy()))

    def on_epoch_end(self, epoch, logs=None):
        self._signal(-1 - epoch)

    def _signal(self, place):
        if place in self.set:
            os.kill(os.getpid(), signal.SIGUSR1)


@dataclass
class Pieces:
    """Tells a training what unbroken tells it, takes what it hands over, and starts it again from that."""

    root: Path
    patch: pytest.MonkeyPatch
    goal: float = 3
    unit: str = "epochs"
    save_seconds: float = 1000.0
    deadline_seconds: float = 1000.0
    make_model: Callable[[], keras.Model] | None = None
    make_data: Callable[[Training], object] | None = None
    callbacks: Callable[[], list[object]] = list
    train: Callable[..., None] | None = None
    folder: Path | None = None  # a training without the workflow
    saves: Saves = field(default_factory=Saves)
    validate: bool = False
    spoil: int = 0  # after so many steps a weight becomes NaN
    units: int = 16
    plain: bool = False  # an optimizer with fewer variables
    batch_size: int = 5
    own_seed: int = 3
    count: int = 0
    history: object = None
    loggers: Callable[[], list[object]] = list
    seen: list[UnbrokenCallback] = field(default_factory=list)
    fit_options: dict[str, object] = field(default_factory=dict)
    handovers: list[Path] = field(default_factory=list)

    @property
    def latest(self) -> Path:
        return self.handovers[-1]

    @property
    def attempt_folder(self) -> Path:
        return self.root / f"desk-{self.count}"

    def attempt(self, signals=(), is_expected=True) -> int:
        """Trains until it is done (0) or leaves (85)."""
        self.count += 1
        keras.utils.clear_session()  # as in a process of its own: Keras numbers the names of what it makes
        (self.attempt_folder / "save").mkdir(parents=True)
        for name, value in (self._folder_told() if self.folder else self._told()).items():
            self.patch.setenv(name, value)
        kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
        try:
            (self.train or fitted)(self, signals)
        except SystemExit as left:
            if left.code != EXIT_PAUSED or not is_expected:
                raise
            return EXIT_PAUSED
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)
            self.take()
        return 0

    def take(self) -> None:
        """As unbroken does while a training runs: it hands over no more while two are still there."""
        for ready in sorted((self.attempt_folder / "save").glob("*.ready")):
            taken = self.root / f"checkpoint-{len(self.handovers) + 1:03d}"
            ready.rename(taken)
            self.handovers.append(taken)

    def model(self) -> keras.Model:
        seed_everything(3)
        optimizer = keras.optimizers.SGD(0.1) if self.plain else None
        return self.make_model() if self.make_model else dense_model(optimizer, self.units)

    def options(self, model) -> dict[str, object]:
        validate = (lambda: model(FEATURES[:4])) if self.validate else None
        return {
            "seed": self.own_seed,
            "best": ("val_loss", "min"),
            "validate": validate,
            "folder": self.folder,
            "saves": self.saves,
            "loggers": self.loggers(),
        }

    def data(self, training: Training):
        if self.make_data:
            return self.make_data(training)
        return training.data(FEATURES, TARGETS, batch_size=self.batch_size, augment=noisy)

    def in_pieces(self, *signals) -> list[int]:
        """One attempt for each place to stop at, and a last one."""
        return [self.attempt([place]) for place in signals] + [self.attempt()]

    def left(self) -> dict[str, bytes]:
        """All files of the last checkpoint but what says how long it took, or when it was written."""
        files = [path for path in self.latest.rglob("*") if path.is_file() and path.name != "progress.json"]
        return {str(path.relative_to(self.latest)): _content(path) for path in files if "served" not in path.parts}

    def variables(self) -> bytes:
        return next(self.latest.glob("state.data-*")).read_bytes()

    def progress(self, number=-1) -> dict[str, object]:
        return json.loads((self.handovers[number] / "progress.json").read_text())

    def notes(self) -> dict[str, Any]:
        return json.loads((self.latest / "state.json").read_text())

    def change_a_note(self, name, change) -> None:
        notes = self.notes()
        (self.latest / "state.json").write_text(json.dumps({**notes, name: change(notes[name])}))

    def change(self, **changes) -> None:
        for name, value in changes.items():
            setattr(self, name, value)

    def verdict(self) -> dict[str, str]:
        return json.loads((self.attempt_folder / "verdict").read_text())

    def _told(self) -> dict[str, str]:
        return {
            "UNBROKEN_RUN": "demo",
            "UNBROKEN_RESUME": str(self.latest) if self.handovers else "",
            "UNBROKEN_SAVE": str(self.attempt_folder / "save"),
            "UNBROKEN_DEADLINE": str(time.time() + self.deadline_seconds),
            "UNBROKEN_LIVE": str(self.root / "live"),
            "UNBROKEN_STOP": str(self.attempt_folder / "stop"),
            "UNBROKEN_PROGRESS": str(self.attempt_folder / "progress.json"),
            "UNBROKEN_VERDICT": str(self.attempt_folder / "verdict"),
            "UNBROKEN_GOAL": str(self.goal),
            "UNBROKEN_GOAL_UNIT": self.unit,
            "UNBROKEN_SAVE_SECONDS": str(self.save_seconds),
        }

    def _folder_told(self) -> dict[str, str]:
        return {"UNBROKEN_SAVE": ""}


def _content(path: Path) -> bytes:
    if path.suffix != ".keras":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:  # next to the weights it holds the time of its writing
        return archive.read("model.weights.h5")


class Spoil(keras.callbacks.Callback):
    """Makes a weight NaN after some steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) == self.steps:
            self.model.layers[0].bias.assign(np.full(16, np.nan))


def fitted(work, signals) -> None:
    """`model.fit` with validation."""
    model = work.model()
    unbroken = UnbrokenCallback(**work.options(model))
    work.seen.append(unbroken)
    taking = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: work.take())
    work.history = model.fit(
        work.data(unbroken),
        callbacks=[unbroken, *work.callbacks(), taking, Spoil(work.spoil), SignalAfter(signals)],
        validation_data=(FEATURES[:10], TARGETS[:10]),
        verbose=0,
        **{"epochs": unbroken.goal or work.goal, **work.fit_options},
    )


def own_loop(work, signals) -> None:
    """A loop with GradientTape, and all kinds of parts and random numbers."""
    generator, noise = tf.random.Generator.from_seed(5), keras.random.SeedGenerator(6)
    total, optimizer = tf.Variable(0.0), keras.optimizers.Adam(0.01)
    mean = keras.metrics.Mean()
    model = work.model()
    parts = {"generator": generator, "noise": noise, "total": total, "optimizer": optimizer, "mean": mean}
    training = Training({"model": model, **parts}, **work.options(model))
    for _ in training.epochs():
        for features, targets in training.batches(work.data(training)):
            shift = generator.normal([6]) + keras.random.normal([6], seed=noise)
            shift = shift + keras.random.normal([6]) + random.random() + np.random.rand()
            with tf.GradientTape() as tape:
                outputs = model(features + 0.1 * shift, training=True)
                loss = tf.reduce_mean(keras.losses.binary_crossentropy(targets, outputs))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            mean.update_state(loss)
            total.assign_add(loss)
            training.log(loss=float(loss))
            if int(optimizer.iterations.numpy()) in signals:
                os.kill(os.getpid(), signal.SIGUSR1)
        training.log(val_loss=training.mean("loss"), mean=float(mean.result()), total=float(total))
    weights = {weight.path: weight.numpy() for weight in model.weights}
    training.finish({"weights.npz": weights, "model.keras": model, "model.weights.h5": model, "served": model})


def piped(training):
    """A pipeline that is shuffled by tf.data itself, with a seed of its epoch."""

    def make_epoch(epoch):
        samples = tf.data.Dataset.from_tensor_slices((FEATURES, TARGETS))
        return samples.shuffle(40, seed=epoch, reshuffle_each_iteration=False).batch(5)

    return training.dataset(make_epoch, batches=BATCHES)


def noisy(features, targets, seed):
    return features + 0.1 * tf.random.stateless_normal(tf.shape(features), seed), targets


def dense_model(optimizer=None, units=16, **compile_options):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    optimizer = optimizer or keras.optimizers.AdamW(0.01)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"], **compile_options)
    return model
