"""Run Keras's `model.fit` in segments: save, leave and resume between any two batches.

Keras gives a callback neither the data nor the other callbacks, and begins no epoch in its middle.  So this one reaches
for the variables of the `fit` that calls it, and sets how many batches of the first epoch are left.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import numpy as np
from keras.callbacks import Callback

from unbroken.store.progress import Metric
from unbroken.training.core.metrics_log import STEP
from unbroken.training.core.notes import NotedPoint
from unbroken.training.core.position import UNITS
from unbroken.training.core.save_schedule import Phase
from unbroken.training.launch.rendezvous import worker_place
from unbroken.training.tensorflow.data import Data
from unbroken.training.tensorflow.training import Training

# What `fit` does not apply to the data of `unbroken.data`, and what each is if it is not given.
WITHOUT_EFFECT = {"y": None, "sample_weight": None, "class_weight": None, "batch_size": None, "shuffle": True}
SET_HERE = {"steps_per_epoch": None, "initial_epoch": 0}
# The variables of `fit` and of its iterator that are used here.
OF_FIT = {"x", "epochs", "callbacks", "epoch_iterator", *WITHOUT_EFFECT, *SET_HERE}
OF_ITERATOR = {"steps_per_epoch", "_current_iterator", "_num_batches"}


class UnbrokenCallback(Training, Callback):  # type: ignore[misc]
    """Save through unbroken and leave in time; Keras calls it as the last of the callbacks.

    `model.fit(unbroken.data(images, labels, batch_size=64), epochs=unbroken.goal or 10, callbacks=[unbroken])`.  The
    model is in `final/model.keras` of a run that is finished, or in `model.weights.h5` if its class has no
    `get_config`.  The options are those of `Training`: `folder`, `saves`, `best`, `guard`, `validate` and `loggers`.
    """

    _callbacks: Sequence[Any] = ()
    _is_begun = False
    _last: NotedPoint | None = None  # the one that the training ends with, whose state is written before `finish`
    _timed: AbstractContextManager[None]

    def __init__(self, seed: int = 0, **options: Any) -> None:
        Callback.__init__(self)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(f"Keras runs on {keras.backend.backend()}, allowed: KERAS_BACKEND=tensorflow")
        if (workers := worker_place()[1]) > 1:
            raise ValueError(
                f"TF_CONFIG names {workers} workers, and fit of Keras {keras.__version__} fails with more "
                "than one; allowed: a loop of your own over training.epochs() and training.batches(data)"
            )
        Training.__init__(self, {}, seed=seed, **options)

    @property
    def resume(self) -> str | None:
        """Return the checkpoint from which `fit` resumes."""
        return str(self._link.contract.resume) if self._link and self.resumed else None

    @property
    def goal(self) -> int | None:
        """Return the goal of the configuration, for `fit(epochs=...)`; None if started by hand.

        If it is in steps, that is more epochs than it takes, and `fit` ends after so many steps.
        """
        goal = self._link.contract.goal if self._link else None
        return None if goal is None else math.ceil(goal)

    # --- what Keras calls ---

    def set_model(self, model: Any) -> None:
        """Become the last of the callbacks: what the others do after a step belongs to it."""
        super().set_model(model)
        caller = sys._getframe(1).f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            # Not in the list itself: Keras is going through it.
            caller.callbacks = [*(each for each in caller.callbacks if each is not self), self]

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Restore the state; raise ValueError for a `fit` that could not resume exactly."""
        fit, model = _fit_around(), self.model
        if self._is_begun:
            raise ValueError("fit() is called twice with the same UnbrokenCallback, allowed: one for each fit")
        others = [each for each in fit["callbacks"].callbacks if each is not self]
        check_fit(fit, others, model)
        self._is_begun, self._data, self._iterator = True, fit["x"], fit["epoch_iterator"]
        self._callbacks = [each for each in others if not isinstance(each, keras.callbacks.ProgbarLogger)]
        # Else Keras makes the metrics, and a model without an Input, in the middle of the first step.
        model._symbolic_build(data_batch=self._data.get_tf_dataset().element_spec)
        super()._take({"model": model}, self._validate)
        self._aim(fit["epochs"], None)
        self._begin(fit["epochs"])

    def _begin(self, epochs: int) -> None:
        """Let `fit` begin where the checkpoint was made."""
        course, at, data, model = self._course, self._course.position, self._data, self.model
        needed = course.goal if course.unit == UNITS[0] else course.goal / data.num_batches
        if needed > epochs:
            raise ValueError(f"fit(epochs={epochs}), and the goal takes {needed:g}; type epochs=unbroken.goal")
        course.begin(data.num_batches, "the data have")
        if at.batch == 0 or course.is_over:
            self._put_back()
        if course.is_over:
            self._write_last()
        model._initial_epoch = epochs if course.is_over else at.epoch
        stream = model.distribute_strategy.experimental_distribute_dataset(data.stream(at.epoch, at.batch))
        self._iterator._current_iterator = iter(stream)
        self._iterator._num_batches = None  # else Keras would begin the data anew after so many
        if self._link:
            self._link.pace.begin_step()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Restore what `fit` and the callbacks have changed before the first batch."""
        at = self._course.position
        self._put_back()
        at.is_closed, self._phase = False, Phase.START
        self._iterator.steps_per_epoch = self._data.num_batches - at.batch

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Measure the step."""
        self._timed = self.timer(STEP)
        self._timed.__enter__()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Count the step, or the several of one execution; save or leave, but for an epoch's last step."""
        course, at, size = self._course, self._course.position, self.model.steps_per_execution
        self._timed.__exit__(None, None, None)
        for _ in range(size):
            course.is_in_batch = True
            course.count_batch()
        self._log.timers.samples += self._data.samples(at.batch - size, at.batch)
        self._running = logs or {}
        if course.is_at_goal:
            self.model.stop_training = True
        if not course.is_epoch_over and not self.model.stop_training:
            is_last = at.batch + size == self._data.num_batches
            self._tick(self._phase, Phase.END if is_last else Phase.BATCH)
        self._phase = Phase.BATCH

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the metrics of the epoch; save or leave, or write the last state."""
        self._running = {}  # it is the epoch's end that counts now
        self.log(**{name: float(value) for name, value in (logs or {}).items()})
        if self._course.is_epoch_over:
            self._course.close_epoch()
        if self._course.is_over or self.model.stop_training:
            self.model.stop_training = True
            self._write_last()  # now: at its end, fit puts averaged weights in the place of the trained ones
        else:
            self._tick(Phase.END, Phase.START)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Hand over the last checkpoint, with the model in its folder `final/`."""
        self.model._initial_epoch = None
        self.finish({_file_name(self.model): self.model})

    def _write_last(self) -> None:
        """Write the state that the training ends with."""
        if self._link:
            self._last = self._link.begin(self._point(self._course.done, is_read_back=True))
            self._link.write(self._last)

    # --- what Training asks for ---

    def _take(self, parts: Mapping[str, Any], validate: Any) -> None:
        self._validate = validate  # until `fit` says what is trained

    def _restore_again(self, folder: Path, notes: Mapping[str, Any]) -> None:
        super()._restore_again(folder, notes)
        saved = notes["callbacks"]
        if [name for name, _ in saved] != [type(each).__name__ for each in self._callbacks]:
            self._ranks.say("fit() is given other callbacks than before, which begin anew")
            return
        for callback, (_, memory) in zip(self._callbacks, saved, strict=True):
            vars(callback).update(memory)

    def _figures(self) -> dict[str, Metric]:
        return {**super()._figures(), **{name: float(value) for name, value in self._running.items()}}

    def _groups(self) -> dict[str, list[Any]]:
        return {**super()._groups(), "metrics of fit": list(self.model.metrics_variables)}

    def _state_and_notes(self) -> tuple[Any, dict[str, Any]]:
        groups, notes = super()._state_and_notes()
        return groups, {**notes, "callbacks": [(type(each).__name__, _memory(each)) for each in self._callbacks]}

    def _save(self, done: float, *, is_best: bool, **more: Any) -> None:
        if self._link and self._last:
            self._link.complete(replace(self._last, is_best=is_best, **more), self._link.publish)
        else:
            super()._save(done, is_best=is_best, **more)


def check_fit(fit: Mapping[str, Any], callbacks: Sequence[Any], model: Any) -> None:
    """Raise ValueError for what could not resume exactly, or would be without effect."""
    data = fit["x"]
    if not isinstance(data, Data):
        raise ValueError(f"fit() is given a {type(data).__name__}, allowed: unbroken.data(images, labels)")
    for name, default in {**WITHOUT_EFFECT, **SET_HERE}.items():
        if fit[name] is not default:
            where = "UnbrokenCallback sets it" if name in SET_HERE else "give it to unbroken.data(...)"
            raise ValueError(f"fit({name}=...) is without effect here; leave it out, {where}")
    if (devices := model.distribute_strategy.num_replicas_in_sync) > 1:
        raise ValueError(f"fit(): the model is made for {devices} devices, allowed: one")
    if data.num_batches % model.steps_per_execution:
        raise ValueError(
            f"fit(): steps_per_execution is {model.steps_per_execution} with {data.num_batches} batches an epoch, "
            "allowed: a divisor of them"
        )
    for callback in callbacks:
        if getattr(callback, "restore_best_weights", False):
            raise ValueError(
                f"fit(): {type(callback).__name__}(restore_best_weights=True) keeps weights in memory alone, allowed: "
                "False; type UnbrokenCallback(best=(metric, 'max' or 'min')), and take the checkpoint `best`"
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError("fit(): BackupAndRestore begins a broken epoch anew; leave it out, UnbrokenCallback saves")


def _file_name(model: Any) -> str:
    """Return the name for what Keras can save: the weights alone of a model whose class lacks `get_config`."""
    try:
        keras.saving.serialize_keras_object(model)
    except (NotImplementedError, TypeError, ValueError):
        return "model.weights.h5"
    return "model.keras"


def _fit_around() -> Mapping[str, Any]:
    """Return the variables of the `fit` that calls."""
    frame: FrameType | None = sys._getframe(1)
    while frame and "epoch_iterator" not in frame.f_locals:
        frame = frame.f_back
    fit = frame.f_locals if frame else {}
    is_known = fit.keys() >= OF_FIT and vars(fit["epoch_iterator"]).keys() >= OF_ITERATOR
    if not is_known or not isinstance(fit["callbacks"].callbacks[-1], UnbrokenCallback):
        raise RuntimeError(f"fit of Keras {keras.__version__} is not known; type: pip install 'keras>=3.10,<=3.15'")
    return fit


def _memory(callback: Any) -> dict[str, Any]:
    """Return what a callback remembers in numbers, text, and lists and dictionaries of them.

    What it is made with is left out: Keras turns the sign of `min_delta` when the training begins.
    """
    settings = {"params", "_params", *inspect.signature(type(callback)).parameters}
    return {name: value for name, value in vars(callback).items() if name not in settings and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    """Return True for what has a form in JSON."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.bool_, np.integer, np.floating))
