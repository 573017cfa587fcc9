"""What lies under a TensorFlow training: its state, its notes, and what is done between two steps."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.verdict import Kind
from unbroken.runs.progress import Metric
from unbroken.training.core.environment import Contract, SavePlace, read_contract
from unbroken.training.core.loop import Loop
from unbroken.training.core.position import Course
from unbroken.training.core.run_directory import connect
from unbroken.training.core.run_log import Book
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.validation import Validate
from unbroken.training.tensorflow import callback_states, rank_checkpoint
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.rank_checkpoint import KerasState
from unbroken.training.tensorflow.validation import KerasValidation
from unbroken.training.tensorflow.workers import Workers
from unbroken.training.tensorflow.writer import KerasWriter

FORMAT = 1


class Core(Loop):
    """The part of `Training` that its loops and the callbacks of `fit` share."""

    _link: KerasWriter | None
    _loading = 'model.load_weights(training.imported)  # / "latest.weights.h5" of a folder of BackupAndRestore'

    def __init__(
        self,
        model: Any,
        seed: int,
        new_book: Callable[[Workers], Book],
        validate: Validate | Callable[[], Any] | None,
        folder: str | os.PathLike[str] | None,
        saves: Saves,
        parts: Mapping[str, Any],
    ) -> None:
        tensorflow_state.check_built(model, parts)
        self.model = model
        self.course, self.workers = Course(), Workers.of(model)
        self.book = new_book(self.workers)
        self._book, self._course, self._ranks = self.book, self.course, self.workers  # as the loop calls them
        self._seed, self._parts, self._trust = seed, parts, KerasValidation(validate, model)
        self._running: Mapping[str, Any] = {}
        self._origin: Path | None = None  # the checkpoint that was restored,
        self._notes: dict[str, Any] | None = None  # and its notes, until the training goes on
        self._callbacks: Sequence[Any] = ()
        self._link = None
        size_bytes = tensorflow_state.size_bytes(self._groups())  # what cannot be saved is known here
        if (found := self._connect(folder, saves)) is None:
            self.workers.say("started by hand without a folder, so nothing is saved")
            return
        contract, place = found
        self._link = KerasWriter(contract, place, saves, size_bytes, self.workers)
        self._resume(self._link)

    # --- for the callbacks of tensorflow_fit ---

    def enter(self, with_metrics: bool = False) -> None:
        """Puts back what fit, or the script's own beginning, has changed since the checkpoint was read."""
        notes, self._notes = self._notes, None
        if notes is None or self._origin is None:
            return
        for group, variables in self._groups().items():
            if group != "metrics" or with_metrics:
                tensorflow_state.put_back(group, variables, notes, self._origin)
        tensorflow_state.restore_random(notes["random"])

    def restore_callbacks(self, callbacks: Sequence[Any]) -> None:
        """Lets the callbacks remember what they knew; says so if they are others than before."""
        if self._notes is not None and not callback_states.restore_callbacks(callbacks, self._notes["callbacks"]):
            self.workers.say("fit() is given other callbacks than before, which begin anew")

    def note_running(self, values: Mapping[str, Any]) -> None:
        """What to show of the epoch that is in work."""
        self._running = values

    def begin_step(self) -> None:
        """A step begins, for the clock."""
        if self._link:
            self._link.pace.begin_step()

    def after_step(self, ended: Phase, following: Phase) -> None:
        """Between two steps: saves if it is time to, and leaves if it must."""
        self._tick(ended, following)

    def write_last(self) -> None:
        """Writes the state that the training ends with."""
        self.book.forget_end(self.course)
        if self._link:
            self._link.write_last(self._state())

    # --- what the loop asks for ---

    def _restore(self, folder: Path) -> str:
        notes = rank_checkpoint.read_notes(folder, self.workers)
        if notes.get("format") != FORMAT:
            raise CheckpointError(f"{folder}: state format {notes.get('format')!r}, allowed here: {FORMAT}")
        if notes["seed"] != self._seed:
            raise CheckpointError(f"{folder}: made with seed={notes['seed']}, and Training(...) is given {self._seed}")
        for group, variables in self._groups().items():
            if group != "metrics":  # fit makes them later
                tensorflow_state.put_back(group, variables, notes, folder)
        self.course.restore(notes["position"])
        self.book.watch.restore(notes["watch"])
        self.book.metrics.restore(**notes["metrics"])
        self._origin, self._notes = folder, notes
        return self._trust.validation_error(notes["trust"])

    @property
    def _is_repeating(self) -> bool:
        return self._notes is not None

    def _put_back(self) -> None:
        self.enter()

    def _save(self, done: float, is_best: bool, following: Phase, *, is_last: bool) -> None:
        if self._link:
            self._link.save(self._state(), self._progress(done), self.course.position.step, is_best, is_last)

    def _clean_up(self) -> None:
        """Keras ends its threads by itself."""

    def _figures(self) -> dict[str, Metric]:
        return {**super()._figures(), **{name: float(value) for name, value in self._running.items()}}

    # --- its own ---

    def _connect(self, folder: str | os.PathLike[str] | None, saves: Saves) -> tuple[Contract, SavePlace] | None:
        found = connect(folder, saves) if self.workers.size == 1 or read_contract() else None
        if found is None and self.workers.size > 1 and (folder or os.environ.get("UNBROKEN_FOLDER")):
            raise SegmentError(
                f"{self.workers.size} workers cannot keep a folder of their own; start them by a workflow "
                "(docs/engines/tensorflow.md), or without a folder"
            )
        return found

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
        trust, metrics = self._trust.state(), self.book.metrics
        names = self.book.watch.guard.finite
        if names and (non_finite := self._trust.divergence(trust) or _not_finite(self._running, names)):
            self._give_up(Kind.HOPELESS, non_finite)
        notes = {
            "format": FORMAT,
            "seed": self._seed,
            "position": vars(self.course.position),
            "watch": self.book.watch.state(),
            "trust": trust,
            "metrics": {"names": metrics.names, **{key: list(own) for key, own in metrics.arrays().items()}},
            "random": tensorflow_state.random_state(),
            "callbacks": callback_states.callback_states(self._callbacks),
        }
        return rank_checkpoint.state_of(self._groups(), notes, self.workers)


def _not_finite(values: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        if name in values and not math.isfinite(value := float(values[name])):
            return f"{name} is {value}, allowed: a finite number (Guard.finite)"
    return ""
