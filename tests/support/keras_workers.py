"""A training of several TensorFlow workers, small enough for a test, with Dropout and random numbers of all kinds."""

import argparse
import os
import random
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from support.keras_pieces import FEATURES, TARGETS, dense_model, noisy

from unbroken.training.tensorflow import Saves, Training, multi_worker, seed_everything


def main(options):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = multi_worker()
    seed_everything(3)
    with strategy.scope():
        model, optimizer = dense_model(), keras.optimizers.Adam(0.01)
    saves = Saves(steps=options.saves_every) if options.saves_every else Saves()
    training = Training({"model": model, "optimizer": optimizer}, seed=3, best=("score", "max"), saves=saves)
    data = training.data(FEATURES, TARGETS, batch_size=5, augment=noisy)
    rank, size = training._ranks.rank, training._ranks.size
    random.seed(rank)

    @tf.function
    def step(features, targets, noise):
        def one(features, targets, noise):
            with tf.GradientTape() as tape:
                outputs = model(features + noise, training=True)
                losses = keras.losses.binary_crossentropy(targets, outputs)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=5)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        return strategy.reduce("SUM", strategy.run(one, args=(features, targets, noise)), axis=None)

    for epoch in training.epochs():
        for features, targets in training.batches(data):
            noise = tf.constant(0.01 * (random.random() + np.random.rand()), tf.float32)
            training.log(loss=float(step(features, targets, noise)))
            number = training._course.position.step + 1
            if number in options.signals and rank == size - 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            if number == options.dies_at and rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        training.log(score=epoch)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    training.finish({"weights.npz": weights, "model.keras": model})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", type=int, nargs="*", default=[])
    parser.add_argument("--dies-at", type=int, default=-1)
    parser.add_argument("--saves-every", type=int)
    main(parser.parse_args())
