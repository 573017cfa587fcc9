"""Run TensorFlow and Keras trainings that can be stopped after any batch and resume bit for bit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras

from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.contract import Kind
from unbroken.store.progress import Metric
from unbroken.training.core.environment import read_contract
from unbroken.training.core.guard import Guard
from unbroken.training.core.loop import Loop
from unbroken.training.core.position import Course
from unbroken.training.core.run_directory import connect
from unbroken.training.core.run_log import Book
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import together
from unbroken.training.core.validation import Validate
from unbroken.training.loggers import Logger
from unbroken.training.tensorflow import keras_callbacks
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.data import Data, MakeEpoch, array_data
from unbroken.training.tensorflow.variables import KerasValidation
from unbroken.training.tensorflow.workers import Workers
from unbroken.training.tensorflow.writer import KerasState, KerasWriter, read_notes

NORMAL, OFTEN = Guard(), Saves()
FORMAT = 1


class Training(Loop):
    """Manage the whole state of a training; if there is a checkpoint, it is restored here.

    `model` is a built Keras model, with the optimizer that it was compiled with; each keyword is a further part of the
    state: a model, an optimizer, a metric, a random generator or a variable; `state` is for more of them, under names
    of your own, which may be those of options too.  `seed` fixes the order of the data; `best` names the metric whose
    best value so far is worth a checkpoint, and says whether "max" or "min" is best.  `guard` says what of the metrics
    ends the training early; `validate` is a prediction by which a loaded checkpoint is checked.  Of several workers
    (`multi_worker`) all make one.

    Started by hand, without unbroken's workflow, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it trains from start to end and saves nothing.  `saves` says how often.
    `loggers` get the metrics of each step once (`unbroken.training.loggers`).
    """

    _ranks: Workers
    _link: KerasWriter | None = None
    _loading = 'model.load_weights(training.imported)  # / "latest.weights.h5" of a folder of BackupAndRestore'
    _callbacks: Sequence[Any] = ()
    _origin: Path | None = None  # the checkpoint that was restored,
    _notes: dict[str, Any] | None = None  # and its notes, until the training resumes
    _running: Mapping[str, Any] = MappingProxyType({})  # metrics of the epoch that is in work

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
        loggers: Sequence[Logger] = (),
        state: Mapping[str, Any] = MappingProxyType({}),
        **parts: Any,
    ) -> None:
        self.model, self._seed, self._parts = model, seed, together(parts, state)
        tensorflow_state.check_built(model, self._parts)
        self._course, self._ranks = Course(), Workers.of(model)
        self._book = Book(guard, best, self._ranks, loggers)
        self._trust = KerasValidation(validate, model)
        size_bytes = tensorflow_state.size_bytes(self._groups())  # what cannot be saved is known here
        size, told = self._ranks.size, read_contract()
        if size > 1 and not told and (folder or os.environ.get("UNBROKEN_FOLDER")):
            raise SegmentError(
                f"{size} workers cannot keep a folder of their own; start them by a workflow "
                "(docs/engines/tensorflow.md), or without a folder"
            )
        if (found := connect(folder, saves)) is None:
            self._ranks.say("started by hand without a folder, so nothing is saved")
            self._book.open(0)
            return
        self._link = KerasWriter(*found, saves, size_bytes, self._ranks)
        self._resume(self._link)

    def data(
        self,
        *arrays: Any,
        batch_size: int = 32,
        shuffle: bool = True,
        drop_last: bool = False,
        augment: Callable[..., Any] | None = None,
    ) -> Data:
        """Return batches of arrays of one length (inputs, or inputs and targets) in an order by seed and epoch.

        Several workers share each batch; `batch_size` is that of all.
        `augment` is given the tensors of a batch and `seed=`, for tf.random.stateless_*; it returns what takes their
        place.
        """
        return array_data(
            arrays, batch_size, self._seed, shuffle=shuffle, drop_last=drop_last, augment=augment, workers=self._ranks
        )

    def dataset(self, make_epoch: MakeEpoch, batches: int) -> Data:
        """Return batches of a `tf.data.Dataset` that `make_epoch` makes from the number of an epoch, a scalar tensor.

        It has to make the same one each time; of a broken epoch it skips what was trained.
        """
        return Data(make_epoch, batches, share=self._ranks.share)

    def fit(
        self,
        data: Data,
        *,
        epochs: float | None = None,
        unit: str | None = None,
        callbacks: Sequence[Any] = (),
        **options: Any,
    ) -> Any:
        """Train by `model.fit(..., **options)`, from where the checkpoint was made, and return its History.

        `epochs` in `unit` ("epochs" or "steps") is for starts by hand: what the configuration says comes first.
        """
        keras_callbacks.check(self.model, data, callbacks, self._ranks)
        course, at = self._course, self._course.position
        self._aim(epochs, unit)
        course.begin(data.batches, "the data have")
        history = keras.callbacks.History()
        self._callbacks = [*callbacks, history]
        if course.is_over:
            self.restore_callbacks()
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
        """Yield the batches of this epoch that are still to be trained; may save or leave between any two of them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        course = self._course
        self._check_once()
        course.begin(data.batches, "the data have")
        self.enter(with_metrics=True)
        yield from self._train(iter(data.stream(course.position.epoch, course.position.batch, epochs=1)), data)

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint, with what the user came for in its folder `final/`.

        That is metrics.csv, metrics.json and `files`, by their names: a Keras model (`model.keras`, `model.weights.h5`,
        or a folder's name for a SavedModel), a dictionary of arrays (`.npz`), text, bytes, or a Path to copy.
        """
        self._course.count_batch()
        self._book.finish(self._course.position.step)
        if self._link is None:
            self._book.published(self._course.position.step)
            return
        results = {**(files or {}), **self._book.results(self._course)}
        if self._link.last is None:
            self.write_last()
        self._link.finish(self._progress(self._course.done), is_best=self._book.watch.is_new_best, results=results)

    # --- for the callbacks of fit ---

    def enter(self, *, with_metrics: bool = False) -> None:
        """Put back what fit, or the script's own beginning, has changed since the checkpoint was read."""
        notes, self._notes = self._notes, None
        if notes is None or self._origin is None:
            return
        for group, variables in self._groups().items():
            if group != "metrics" or with_metrics:
                tensorflow_state.put_back(group, variables, notes, self._origin)
        tensorflow_state.restore_random(notes["random"])

    def restore_callbacks(self) -> None:
        """Let the callbacks remember what they knew; say so if they are others than before."""
        notes = self._notes
        if notes is not None and not keras_callbacks.restore_callbacks(self._callbacks, notes["callbacks"]):
            self._ranks.say("fit() is given other callbacks than before, which begin anew")

    def write_last(self) -> None:
        """Write the state that the training ends with."""
        if self._link:
            self._link.write_last(self._state())

    # --- what the loop asks for ---

    def _restore(self, folder: Path) -> str:
        notes = read_notes(folder, self._ranks)
        if notes.get("format") != FORMAT:
            raise CheckpointError(f"{folder}: state format {notes.get('format')!r}, allowed here: {FORMAT}")
        if notes["seed"] != self._seed:
            raise CheckpointError(f"{folder}: made with seed={notes['seed']}, and Training(...) is given {self._seed}")
        for group, variables in self._groups().items():
            if group != "metrics":  # fit makes them later
                tensorflow_state.put_back(group, variables, notes, folder)
        self._course.restore(notes["position"])
        self._book.watch.restore(notes["watch"])
        self._book.metrics.restore(**notes["metrics"])
        self._origin, self._notes = folder, notes
        return self._trust.validation_error(notes["trust"])

    @property
    def _is_repeating(self) -> bool:
        return self._notes is not None

    def _put_back(self) -> None:
        self.enter()

    def _save(self, done: float, *, is_best: bool, is_last: bool) -> None:
        if self._link:
            step = self._course.position.step
            self._link.save(self._state(), self._progress(done), step, is_best=is_best, is_last=is_last)

    def _figures(self) -> dict[str, Metric]:
        return {**super()._figures(), **{name: float(value) for name, value in self._running.items()}}

    def _groups(self) -> dict[str, list[Any]]:
        groups = tensorflow_state.model_groups(self.model)
        groups["metrics"] = list(self.model.metrics_variables)
        for name, part in self._parts.items():
            try:
                groups[f"part_{name}"] = tensorflow_state.variables_of(part)
            except TypeError as error:
                raise TypeError(f"Training({name}=...) {error}") from None
        return groups

    def _state(self) -> KerasState:
        trust, metrics, watch = self._trust.state(), self._book.metrics, self._book.watch
        if watch.guard.finite and (diverged := self._trust.divergence(trust) or watch.non_finite(self._running)):
            self._give_up(Kind.HOPELESS, diverged)
        notes = {
            "format": FORMAT,
            "seed": self._seed,
            "position": vars(self._course.position),
            "watch": watch.state(),
            "trust": trust,
            "metrics": {"names": metrics.names, **{key: list(own) for key, own in metrics.arrays().items()}},
            "random": tensorflow_state.random_state(),
            "callbacks": keras_callbacks.callback_states(self._callbacks),
        }
        return KerasState(self._groups(), notes)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's, TensorFlow's and Keras's generators; call it before the model is made."""
    keras.utils.set_random_seed(seed)
