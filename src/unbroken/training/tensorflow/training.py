"""TensorFlow and Keras trainings that can be stopped after any batch and go on bit for bit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import keras

from unbroken.training.core.environment import keep_what_is_loaded
from unbroken.training.core.guard import Guard
from unbroken.training.core.loop import together
from unbroken.training.core.run_log import Book
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.timers import DATA, STEP
from unbroken.training.core.validation import Validate
from unbroken.training.tensorflow import keras_callbacks
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.base import Core
from unbroken.training.tensorflow.data import Data, MakeEpoch, array_data
from unbroken.training.tensorflow.workers import multi_worker

__all__ = ["Guard", "Saves", "Training", "Validate", "multi_worker", "seed_everything"]

NORMAL, OFTEN = Guard(), Saves()


class Training(Core):
    """Everything that a training is, under unbroken's care; if there is a checkpoint, it is restored here.

    `model` is a built Keras model, with the optimizer that it was compiled with; each keyword is a further part of the
    state: a model, an optimizer, a metric, a random generator or a variable; `state` is for more of them, under names
    of your own, which may be those of options too.  `seed` fixes the order of the data; `best` names the metric whose
    best value so far is worth a checkpoint, and says whether "max" or "min" is best.  `guard` says what of the metrics
    ends the training early; `validate` is a prediction by which a loaded checkpoint is checked.  Of several workers
    (`multi_worker`) all make one.

    Started by hand, without unbroken's workflow, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and goes
    on from there; without one it trains from start to end and saves nothing.  `saves` says how often.
    """

    def __init__(
        self,
        model: Any,
        *,
        seed: int = 0,
        best: tuple[str, str] | None = None,
        guard: Guard = NORMAL,
        validate: Validate | Callable[[], Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        state: Mapping[str, Any] = MappingProxyType({}),
        **parts: Any,
    ) -> None:
        book = partial(Book, guard, best)
        super().__init__(model, seed, book, validate, folder, saves, together(parts, state))

    def data(
        self,
        *arrays: Any,
        batch_size: int = 32,
        shuffle: bool = True,
        drop_last: bool = False,
        augment: Callable[..., Any] | None = None,
    ) -> Data:
        """Batches of arrays of one length (inputs, or inputs and targets) in an order by seed and epoch.

        Several workers share each batch; `batch_size` is that of all.
        `augment` is given the tensors of a batch and `seed=`, for tf.random.stateless_*; it returns what takes their
        place.
        """
        return array_data(arrays, batch_size, self._seed, shuffle, drop_last, augment, self.workers)

    def dataset(self, make_epoch: MakeEpoch, batches: int) -> Data:
        """Batches of a `tf.data.Dataset` that `make_epoch` makes from the number of an epoch, a scalar tensor.

        It has to make the same one each time; of a broken epoch it skips what was trained.
        """
        return Data(make_epoch, batches, share=self.workers.share)

    def fit(
        self,
        data: Data,
        *,
        epochs: float | None = None,
        unit: str | None = None,
        callbacks: Sequence[Any] = (),
        **options: Any,
    ) -> Any:
        """Trains by `model.fit(..., **options)`, from where the checkpoint was made, and returns its History.

        `epochs` in `unit` ("epochs" or "steps") is for starts by hand: what the configuration says comes first.
        """
        keras_callbacks.check(self.model, data, callbacks, self.workers)
        course, at = self.course, self.course.position
        self._aim(epochs, unit)
        course.begin(data.batches, "the data have")
        history = keras.callbacks.History()
        self._callbacks = [*callbacks, history]
        if course.is_over:
            self.restore_callbacks(self._callbacks)
            return history
        is_at_end = at.batch == data.batches
        stream = data.stream(at.epoch + is_at_end, 0 if is_at_end else at.batch)
        tensorflow_state.build_metrics(self.model, stream.element_spec)
        return self.model.fit(
            stream,
            shuffle=False,  # the stream is in order already
            steps_per_epoch=data.batches,
            initial_epoch=at.epoch,
            epochs=math.ceil(course.goal if course.unit == "epochs" else course.goal / data.batches),
            callbacks=keras_callbacks.around(self, self._callbacks, data),
            **options,
        )

    def batches(self, data: Data) -> Iterator[Any]:
        """The batches of this epoch that are still to be trained; may save or leave between any two of them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        course, timers = self.course, self.book.timers
        self._check_once()
        course.begin(data.batches, "the data have")
        self.enter(with_metrics=True)
        phase, is_over = Phase.START, course.is_epoch_over
        stream = iter(data.stream(course.position.epoch, course.position.batch, epochs=1))
        self.book.show_steps(course)
        while not is_over:
            with timers.timed(DATA):
                batch = next(stream)
            course.is_in_batch = True
            with timers.timed(STEP):
                yield batch
            course.count_batch()
            self.book.show_steps(course)
            timers.samples += data.size_of(course.position.batch - 1)
            self.after_step(phase, Phase.END if course.is_epoch_over else Phase.BATCH)
            phase, is_over = Phase.BATCH, course.is_epoch_over  # asked again: the workers may have agreed to end

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hands over the last checkpoint, with what the user came for in its folder `final/`.

        That is metrics.csv, metrics.json and `files`, by their names: a Keras model (`model.keras`, `model.weights.h5`,
        or a folder's name for a SavedModel), a dictionary of arrays (`.npz`), text, bytes, or a Path to copy.
        """
        self.course.count_batch()
        self.book.close(self.course.position.step)
        if self._link is None:
            return
        results = {**(files or {}), **self.book.results(self.course)}
        if not self._link.has_last:
            self.write_last()
        self._link.finish(self._progress(self.course.done), self.book.watch.is_new_best, results)


def seed_everything(seed: int) -> None:
    """Seeds Python's, numpy's, TensorFlow's and Keras's generators; call it before the model is made."""
    keras.utils.set_random_seed(seed)


keep_what_is_loaded()
