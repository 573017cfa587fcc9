"""Run TensorFlow and Keras trainings that can be stopped after any batch and resume bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras

from unbroken.program.contract import Kind
from unbroken.training.core.guard import Guard
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.core.notes import NotedTraining
from unbroken.training.core.position import Course
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import together
from unbroken.training.core.validation import Validate, Validation
from unbroken.training.loggers import Logger
from unbroken.training.tensorflow import checkpoint
from unbroken.training.tensorflow.data import Data, MakeEpoch, array_data
from unbroken.training.tensorflow.workers import Workers

NORMAL, OFTEN = Guard(), Saves()


class Training(NotedTraining):
    """Manage the whole state of a training; if there is a checkpoint, it is restored here.

    `state` names the parts of the state: models (built, with the optimizer that each was compiled with), layers,
    optimizers, metrics, random generators and variables.  `seed` fixes the order of the data; `best` names the metric
    whose best value so far is worth a checkpoint, and says whether "max" or "min" is best.  `guard` says what of the
    metrics ends the training early; `validate` is a prediction by which a loaded checkpoint is checked.  Of several
    workers (`multi_worker`) all make one.  For `model.fit`: `unbroken.training.keras`.

    Started by hand, without unbroken's workflow, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it trains from start to end and saves nothing.  `saves` says how often.
    `loggers` get the metrics of each step once (`unbroken.training.loggers`).
    """

    _ranks: Workers
    _link: checkpoint.Checkpoints | None
    _loading = 'model.load_weights(training.imported)  # / "latest.weights.h5" of a folder of BackupAndRestore'
    _running: Mapping[str, Any] = MappingProxyType({})  # metrics of the epoch that is in work

    def __init__(
        self,
        state: Mapping[str, Any],
        *,
        seed: int = 0,
        best: tuple[str, str] | None = None,
        guard: Guard = NORMAL,
        validate: Validate | Callable[[], Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        parts = together(state, {})
        checkpoint.groups_of(parts)  # what cannot be saved is known here
        self._course, self._seed, self._ranks = Course(), seed, Workers.of(checkpoint.models_of(parts))
        self._log = MetricsLog(loggers, guard, best)
        self._link = checkpoint.Checkpoints.of(folder, saves, self._ranks)
        self._take(parts, validate)

    def data(self, *arrays: Any, **options: Any) -> Data:
        """Return batches of arrays of one length (inputs, or inputs and targets) in an order by seed and epoch.

        The options are `batch_size=32`, `shuffle=True`, `drop_last=False` and `augment`, which is given the tensors of
        a batch and `seed=`, for tf.random.stateless_*, and returns what takes their place.  Several workers share each
        batch; `batch_size` is that of all.
        """
        return array_data(arrays, self._seed, self._ranks, **options)

    def dataset(self, make_epoch: MakeEpoch, batches: int) -> Data:
        """Return batches of a `tf.data.Dataset` that `make_epoch` makes from the number of an epoch, a scalar tensor.

        It has to make the same one each time; of a broken epoch it skips what was trained.
        """
        return Data(make_epoch, batches, share=self._ranks.share)

    def batches(self, data: Data) -> Iterator[Any]:
        """Yield the batches of this epoch that are still to be trained; may save or leave between any two of them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        course = self._course
        self._check_once()
        course.begin(data.num_batches, "the data have")
        self._put_back()
        yield from self._train(iter(data.stream(course.position.epoch, course.position.batch, epochs=1)), data.samples)

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint, with what the user came for in its folder `final/`.

        That is metrics.csv, metrics.json and `files`, by their names: a Keras model (`model.keras`, `model.weights.h5`,
        or a folder's name for a SavedModel), a dictionary of arrays (`.npz`), text, bytes, or a Path to copy.
        """
        self._finish(files or {})

    # --- what the notes ask for ---

    def _take(self, parts: Mapping[str, Any], validate: Validate | Callable[[], Any] | None) -> None:
        checkpoint.build_optimizers(parts)
        self._parts, self._trust = parts, Validation(validate, checkpoint.predicted)
        self._resume()

    def _groups(self) -> dict[str, list[Any]]:
        return checkpoint.groups_of(self._parts)

    def _state_and_notes(self) -> tuple[Any, dict[str, Any]]:
        trust, watch = self._trust.state(), self._log.watch
        diverged = checkpoint.non_finite_weight(checkpoint.models_of(self._parts))
        diverged = diverged or self._trust.non_finite_prediction(trust) or watch.non_finite(self._running)
        if watch.guard.finite and diverged:
            self._give_up(Kind.HOPELESS, diverged)
        return self._groups(), {"trust": trust}

    def _restore_state(self, folder: Path, notes: Mapping[str, Any]) -> str:
        checkpoint.put_back(self._groups(), folder)
        return self._trust.validation_error(notes["trust"])

    def _restore_again(self, folder: Path, notes: Mapping[str, Any]) -> None:
        checkpoint.put_back(self._groups(), folder)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's, TensorFlow's and Keras's generators; call it before the model is made."""
    keras.utils.set_random_seed(seed)
