"""Let `model.fit` save, leave and resume between any two batches, by callbacks.

`fit` has no way to begin in the middle of an epoch, so the first epoch is cut short: the stream of batches begins where
the checkpoint was made, and `stop_training`, which ends an epoch and the training, is taken back at the epoch's end.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.timers import STEP

if TYPE_CHECKING:
    from unbroken.training.tensorflow.data import Data
    from unbroken.training.tensorflow.workers import Workers


class First(keras.callbacks.Callback):  # type: ignore[misc]
    """Run before the user's callbacks: restore the state that `fit` resets, and take `stop_training` back."""

    def __init__(self, training: Any) -> None:  # a `Training`, whose module imports this one
        super().__init__()
        self._training, self._course = training, training._course
        self.is_cut = False
        self._is_first = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._course.position.is_closed = False
        if self._is_first:
            self._is_first = False
            self._training.enter(with_metrics=self._course.position.batch > 0)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.is_cut:
            self.is_cut = self.model.stop_training = False


class Last(keras.callbacks.Callback):  # type: ignore[misc]
    """Run after the user's callbacks: count, save and leave when all that belongs to a step is done."""

    def __init__(self, training: Any, first: First, data: Data) -> None:
        super().__init__()
        self._training, self._first, self._data = training, first, data
        self._course, self._book = training._course, training._book
        self._phase = Phase.START
        self._timed: AbstractContextManager[None] = nullcontext()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._training.restore_callbacks()
        if self._course.is_epoch_over:
            self._skip_one_step()
        if self._training._link:
            self._training._link.pace.begin_step()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._phase = Phase.START

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._course.is_in_batch = not self._course.is_epoch_over
        self._timed = self._training.timer(STEP) if self._course.is_in_batch else nullcontext()
        self._timed.__enter__()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        course, was_trained = self._course, self._course.is_in_batch
        self._timed.__exit__(None, None, None)
        before = course.position.batch
        for _ in range(self.model.steps_per_execution if was_trained else 0):
            course.is_in_batch = True
            course.count_batch()
        self._book.timers.samples += self._data.samples(before, course.position.batch)
        is_over = course.is_epoch_over
        self._training._running = logs or {}
        if self.model.stop_training:
            return
        if is_over and batch + 1 < self._data.batches:
            self._first.is_cut = self.model.stop_training = True
        if was_trained:
            self._training._tick(self._phase, Phase.END if is_over else Phase.BATCH)
        self._phase = Phase.BATCH

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        training = self._training
        training._running = {}  # it is the epoch's end that counts now
        training.log(**{name: float(value) for name, value in (logs or {}).items()})
        is_stopped = bool(self.model.stop_training)
        if self._course.is_epoch_over:
            self._course.close_epoch()
        if self._course.is_over or is_stopped:
            self.model.stop_training = True
            training.write_last()  # now: at its end, fit puts averaged weights in the place of the trained ones
        else:
            training._tick(Phase.END, Phase.START)

    def _skip_one_step(self) -> None:
        """Give fit the results of the epoch's batches, which are all done, for the one that it runs at least."""
        model = self.model
        train_function = model.train_function

        def skip(iterator: Any) -> Any:
            model.train_function = train_function
            return model.get_metrics_result()

        model.train_function = skip


def around(training: Any, callbacks: Sequence[Any], data: Data) -> list[Any]:
    """Return the user's callbacks between ours."""
    first = First(training)
    return [first, *callbacks, Last(training, first, data)]


def check(model: Any, data: Data, callbacks: Sequence[Any], workers: Workers) -> None:
    """Raise ValueError for a callback whose memory cannot be saved, or that does what is done here, and odd steps."""
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


# --- what callbacks remember ---


def callback_states(callbacks: Sequence[Any]) -> list[list[Any]]:
    """Return what the callbacks remember in numbers, text, and lists and dictionaries of them.

    What they are made with is left out: Keras turns the sign of `min_delta` when the training begins.
    """
    return [[type(callback).__name__, _memory(callback)] for callback in callbacks]


def restore_callbacks(callbacks: Sequence[Any], states: Sequence[Sequence[Any]]) -> bool:
    """Put back what `callback_states` returned; return False if the callbacks are others."""
    if [type(callback).__name__ for callback in callbacks] != [name for name, _ in states]:
        return False
    for callback, (_, items) in zip(callbacks, states, strict=True):
        vars(callback).update(items)
    return True


def _memory(callback: Any) -> dict[str, Any]:
    settings = {"params", "_params", *inspect.signature(type(callback)).parameters}
    found: dict[str, Any] = {}
    for name, value in vars(callback).items():
        if name not in settings:
            try:
                found[name] = _plain(value)
            except TypeError:
                continue  # it has no form in JSON
    return found


def _plain(value: Any) -> Any:
    """Return the value in JSON's terms; raise TypeError if it has no such form."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} in a callback")
