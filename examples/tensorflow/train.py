"""Trains a small network to read handwritten digits (8 x 8 pixels, they come with scikit-learn).

Plain Keras but for the lines with `unbroken`: through them the training can be stopped after any batch and goes on in
the next segment as if nothing had happened.  `python train.py` trains without unbroken.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything

EPOCHS = 12  # the goal where no configuration gives one


class Pause(keras.callbacks.Callback):
    """Leaves time to watch, and to interrupt."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)


def read_digits():
    """Images and labels from scikit-learn's own file: to load all of scikit-learn takes longer than an epoch."""
    folder = Path(find_spec("sklearn").submodule_search_locations[0], "datasets", "data")
    rows = np.loadtxt(folder / "digits.csv.gz", delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)


def load():
    images, digits = read_digits()
    pixels = images[..., None].astype("float32") / 16
    return (pixels[:1437], digits[:1437]), (pixels[1437:], digits[1437:])


def make_model(learning_rate):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            *(layers.Conv2D(16, 3, padding="same", activation="relu"), layers.Conv2D(32, 3, activation="relu")),
            *(layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.2)),
            *(layers.Dense(64, activation="relu"), layers.Dropout(0.2), layers.Dense(10)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(learning_rate), loss, metrics=["accuracy"])
    return model


def blurred(images, labels, seed):
    """A function of its seed alone, so that a restart blurs in the same way."""
    return images + 0.1 * tf.random.stateless_normal(tf.shape(images), seed), labels


def main(options):
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.experimental.enable_op_determinism()
    seed_everything(options.seed)
    train_set, test_set = load()
    model = make_model(options.lr)

    unbroken = UnbrokenCallback(seed=options.seed, best=("val_accuracy", "max"))
    model.fit(
        unbroken.data(*train_set, batch_size=options.batch_size, augment=blurred),
        epochs=unbroken.goal or EPOCHS,
        validation_data=test_set,
        callbacks=[keras.callbacks.ReduceLROnPlateau("val_loss", patience=2), Pause(options.pause_seconds), unbroken],
        verbose=2,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each batch, to have time to watch")
    main(parser.parse_args())
