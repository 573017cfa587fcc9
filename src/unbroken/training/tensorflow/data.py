"""Make the batches of a training a function of (seed, epoch, batch) and of nothing else.

So nothing of the data has to be saved: a restart computes the order again and begins in the middle.  The state of a
`tf.data` iterator can be saved, but one of `shuffle().batch().repeat()` that is restored at the end of an epoch
continues in another order than it would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from unbroken.training.tensorflow.workers import Workers

# From the epoch, a scalar tensor, to the batches of that epoch.
MakeEpoch = Callable[[Any], Any]
# The part of a batch that is trained here.
Share = Callable[[Any], Any]


class Data(DataAdapter):  # type: ignore[misc]
    """Give the batches of every epoch, to a loop or to Keras; `samples` and `batch_size` are 0 if unknown."""

    # What Keras asks for.
    num_batches: int = 0
    batch_size: int | None = None
    has_partial_batch = partial_batch_size = None

    def __init__(
        self, make_epoch: MakeEpoch, batches: int, samples: int = 0, batch_size: int = 0, share: Share | None = None
    ) -> None:
        if batches < 1:
            raise ValueError(f"data: {batches} batches an epoch, allowed: 1 or more")
        self.num_batches = batches
        self.batch_size = batch_size or None
        self._make_epoch, self._samples, self._share = make_epoch, samples, share

    def get_tf_dataset(self) -> Any:
        """Return one epoch, for Keras to evaluate."""
        return self.stream(0, 0, epochs=1)

    def samples(self, start: int, end: int) -> int:
        """Return how many samples there are from one place to another; 0 if unknown."""
        size = self.batch_size or 0
        return min(end * size, self._samples) - start * size

    def stream(self, epoch: int, batch: int, epochs: int | None = None) -> Any:
        """Return a `tf.data.Dataset` that begins with this batch of this epoch; it ends after `epochs`, or never."""

        def rest_of(number: Any) -> Any:
            whole = self._make_epoch(number).apply(tf.data.experimental.assert_cardinality(self.num_batches))
            return whole.skip(tf.where(number == epoch, tf.constant(batch, tf.int64), tf.constant(0, tf.int64)))

        batches = tf.data.Dataset.range(epoch, tf.int64.max if epochs is None else epoch + epochs).flat_map(rest_of)
        if share := self._share:
            batches = batches.map(lambda *batch: share(batch if len(batch) > 1 else batch[0]))
        return batches.prefetch(tf.data.AUTOTUNE)


def array_data(
    arrays: tuple[Any, ...],
    seed: int,
    workers: Workers,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    drop_last: bool = False,
    augment: Callable[..., Any] | None = None,
) -> Data:
    """Return batches of arrays of one length, in a new order for each epoch; each worker gets its share."""
    tensors = tuple(tf.convert_to_tensor(array) for array in arrays)
    sizes = sorted({int(tensor.shape[0]) for tensor in tensors})
    if len(sizes) != 1:
        raise ValueError(f"data: arrays of {' and '.join(map(str, sizes))} samples, allowed: one length")
    batches = sizes[0] // batch_size if drop_last else math.ceil(sizes[0] / batch_size)

    def make_epoch(epoch: Any) -> Any:
        indices = tf.range(sizes[0], dtype=tf.int64)
        if shuffle:
            indices = tf.random.experimental.stateless_shuffle(indices, _pair(seed, epoch), alg="philox")
        groups = tf.data.Dataset.from_tensor_slices(indices).batch(batch_size, drop_remainder=drop_last).enumerate()
        return groups.map(lambda number, group: take(epoch, number, group), num_parallel_calls=tf.data.AUTOTUNE)

    def take(epoch: Any, number: Any, group: Any) -> Any:
        batch = tuple(tf.gather(tensor, group) for tensor in tensors)
        if augment is not None:
            # Of two numbers, so the epoch and the batch have to share one.
            batch = augment(*batch, seed=_pair(seed, -1 - (epoch * batches + number)))
        return batch[0] if len(tensors) == 1 and isinstance(batch, tuple) else batch

    last = batch_size if drop_last else sizes[0] - (batches - 1) * batch_size
    if last < workers.size:
        raise ValueError(
            f"data: the last batch of an epoch has {last} samples for {workers.size} workers, allowed: one for each at "
            "least; type drop_last=True, or take another batch_size"
        )
    return Data(make_epoch, batches, sizes[0], batch_size, workers.share)


def _pair(seed: int, number: Any) -> Any:
    """Return a seed for the stateless random operations."""
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])
