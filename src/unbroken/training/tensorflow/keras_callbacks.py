"""The callbacks through which `model.fit` saves, leaves and goes on between any two batches.

`fit` has no way to begin in the middle of an epoch, so the first epoch is cut short: the stream of batches begins where
the checkpoint was made, and `stop_training`, which ends an epoch and the training, is taken back at the epoch's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import keras

from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.timers import STEP

if TYPE_CHECKING:
    from unbroken.training.tensorflow.base import Core
    from unbroken.training.tensorflow.data import Data
    from unbroken.training.tensorflow.workers import Workers


class First(keras.callbacks.Callback):  # type: ignore[misc]
    """Comes before the user's callbacks: puts the state back that `fit` resets, and takes `stop_training` back."""

    def __init__(self, training: Core) -> None:
        super().__init__()
        self._training = training
        self.is_cut = False
        self._is_first = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._training.course.position.is_closed = False
        if self._is_first:
            self._is_first = False
            self._training.enter(with_metrics=self._training.course.position.batch > 0)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.is_cut:
            self.is_cut = self.model.stop_training = False


class Last(keras.callbacks.Callback):  # type: ignore[misc]
    """Comes after the user's callbacks: counts, saves and leaves when all that belongs to a step is done."""

    def __init__(self, training: Core, first: First, others: Sequence[Any], data: Data) -> None:
        super().__init__()
        self._training, self._first, self._others, self._data = training, first, others, data
        self._phase = Phase.START
        self._timed: AbstractContextManager[None] = nullcontext()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._training.restore_callbacks(self._others)
        if self._training.course.is_epoch_over:
            self._skip_one_step()
        self._training.begin_step()
        self._training.book.show_steps(self._training.course)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._phase = Phase.START

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        course = self._training.course
        course.is_in_batch = not course.is_epoch_over
        self._timed = self._training.timer(STEP) if course.is_in_batch else nullcontext()
        self._timed.__enter__()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        training, course = self._training, self._training.course
        was_trained = course.is_in_batch
        self._timed.__exit__(None, None, None)
        for _ in range(self.model.steps_per_execution if was_trained else 0):
            training.book.timers.samples += self._data.size_of(course.position.batch)
            course.is_in_batch = True
            course.count_batch()
        is_over = course.is_epoch_over
        training.book.show_steps(course)
        training.note_running(logs or {})
        if self.model.stop_training:
            return
        if is_over and batch + 1 < self._data.batches:
            self._first.is_cut = self.model.stop_training = True
        if was_trained:
            training.after_step(self._phase, Phase.END if is_over else Phase.BATCH)
        self._phase = Phase.BATCH

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        training, course = self._training, self._training.course
        training.note_running({})  # it is the epoch's end that counts now
        training.log(**{name: float(value) for name, value in (logs or {}).items()})
        is_stopped = bool(self.model.stop_training)
        if course.is_epoch_over:
            course.close_epoch()
        if course.is_over or is_stopped:
            self.model.stop_training = True
            training.write_last()  # now: at its end, fit puts averaged weights in the place of the trained ones
        else:
            training.after_step(Phase.END, Phase.START)

    def _skip_one_step(self) -> None:
        """All batches of the epoch are done, and fit runs one at least: it gets the results of those that were."""
        model = self.model
        train_function = model.train_function

        def skip(iterator: Any) -> Any:
            model.train_function = train_function
            return model.get_metrics_result()

        model.train_function = skip


def around(training: Core, callbacks: Sequence[Any], data: Data) -> list[Any]:
    """The user's callbacks between ours."""
    first = First(training)
    return [first, *callbacks, Last(training, first, callbacks, data)]


def check(model: Any, data: Data, callbacks: Sequence[Any], workers: Workers) -> None:
    """ValueError for a callback whose memory cannot be saved, or that does what is done here, and for odd steps."""
    if workers.size > 1:
        raise ValueError(
            f"fit(): {workers.size} workers, and fit of Keras {keras.__version__} fails with more than one; allowed: a "
            "loop of your own over training.epochs() and training.batches(data)"
        )
    if data.batches % model.steps_per_execution:
        raise ValueError(
            f"fit(): steps_per_execution is {model.steps_per_execution} with {data.batches} batches an epoch, allowed: "
            "a divisor of them"
        )
    for callback in callbacks:
        if getattr(callback, "restore_best_weights", False):
            raise ValueError(
                f"fit(): {type(callback).__name__}(restore_best_weights=True) keeps weights in memory alone, allowed: "
                "False; give Training best=(metric, 'max' or 'min'), and take the checkpoint `best`"
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError("fit(): BackupAndRestore begins a broken epoch anew; leave it out, Training saves")
