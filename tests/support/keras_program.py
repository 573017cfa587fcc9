"""A small Keras training as a program of its own, with Dropout, and slow enough to be killed where that is wanted."""

import argparse
import os
import signal
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from support.keras_pieces import FEATURES, TARGETS, dense_model, noisy

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything


def main(options):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    seed_everything(3)
    model = dense_model()
    unbroken = UnbrokenCallback(seed=3)
    if options.dies_in_save:
        die_in_save(options.dies_in_save)
    data = unbroken.data(FEATURES, TARGETS, batch_size=5, augment=noisy)
    pause = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(options.pause))
    model.fit(data, epochs=unbroken.goal, callbacks=[pause, unbroken], verbose=0)


def die_in_save(number):
    """The kill comes when TensorFlow has written its files, and ours are not written yet."""
    write, count = tf.train.Checkpoint.write, 0

    def write_and_die(self, *arguments, **options):
        nonlocal count
        count += 1
        written = write(self, *arguments, **options)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    tf.train.Checkpoint.write = write_and_die


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--dies-in-save", type=int, default=0)
    main(parser.parse_args())
