"""A Keras training on made-up data; it asks to be stopped after `--segment-steps` steps, so that a chain has as many
segments as wanted on any machine.  With `--plain` it is `model.fit` and nothing else.
"""

import argparse
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything

BATCHES, BATCH_SIZE = 100, 64


def dense_model(width: int) -> keras.Model:
    """About 8 * width^2 bytes of weights, and three times that with the moments of its optimizer."""
    layers = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((width,)), *layers, keras.layers.Dropout(0.2), keras.layers.Dense(10)])
    model.compile(keras.optimizers.AdamW(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Stop(keras.callbacks.Callback):
    """Says after some steps that the time is up."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGUSR1)


def main(options: argparse.Namespace) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    seed_everything(0)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(BATCHES * BATCH_SIZE, options.width)).astype("float32")
    labels = random.integers(0, 10, BATCHES * BATCH_SIZE)
    model = dense_model(options.width)
    if options.plain:
        model.fit(inputs, labels, batch_size=BATCH_SIZE, epochs=options.epochs, verbose=0)
        model.save("plain.keras")
        return
    unbroken = UnbrokenCallback()
    data = unbroken.data(inputs, labels, batch_size=BATCH_SIZE)
    model.fit(data, epochs=unbroken.goal, callbacks=[Stop(options.segment_steps), unbroken], verbose=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segment-steps", type=int, default=0, help="0: to the goal")
    parser.add_argument("--epochs", type=int, default=1, help="of a plain fit")
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--plain", action="store_true")
    main(parser.parse_args())
