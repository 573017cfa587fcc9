"""Run JAX trainings that can be stopped after any step and resume bit for bit."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from unbroken.errors import SegmentError
from unbroken.training.core.guard import Guard
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.core.notes import NotedTraining
from unbroken.training.core.position import UNITS, Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.jax import state as jax_state
from unbroken.training.jax.position import Positions
from unbroken.training.loggers import Logger

NORMAL, OFTEN = Guard(), Saves()


class Training(NotedTraining):
    """Manage the whole state of a training; if there is a checkpoint, it is restored here.

    `state` is a pytree of arrays, such as a TrainState, `nnx.state(...)` or a dictionary of parameters, optimizer state
    and PRNG keys, which `update` replaces after each step; or NNX objects, such as a model and its optimizer, which
    change in place.  `data` is the iterator from which the loop draws, a random generator, or a dictionary of several.
    `seed` is that of the data: a checkpoint of another seed is refused.  `best` names the metric whose best value so
    far is worth a checkpoint, and says whether "max" or "min" is best.  `guard` says what of the metrics ends the
    training early; as long as it names any that must be finite, NaN in the state does so too.
    `loggers` get the metrics of each step once (`unbroken.training.loggers`).

    Started by hand, without unbroken's workflow, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it trains from start to end and saves nothing.  `saves` says how often.
    """

    _restored: Any = None
    _loading = (
        "loaded = ocp.StandardCheckpointer().restore(training.imported / 'default', nnx.state(model)); "
        "nnx.update(model, loaded)"
    )

    def __init__(
        self,
        state: Any,
        *,
        data: Any = None,
        seed: int = 0,
        best: tuple[str, str] | None = None,
        guard: Guard = NORMAL,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        if (count := jax.process_count()) > 1:
            raise SegmentError(
                f"Training(): {count} processes of JAX, allowed: one, which may use all devices of its node; start the "
                "script once, without jax.distributed.initialize"
            )
        self._state, self._data = jax_state.State(state), Positions(data)
        self._is_updated = self._state.is_in_place
        self._seed, self._course, self._ranks = seed, Course(), Processes()
        self._log = MetricsLog(loggers, guard, best)
        found = connect(folder, saves)
        size_bytes = jax_state.size_bytes(self._state.tree)
        self._link = jax_state.Writer(*found, saves, size_bytes, is_finite=bool(guard.finite)) if found else None
        self._resume()

    @property
    def state(self) -> Any:
        """Return the state: of the checkpoint, if there is one, and what `update` was given last."""
        return self._state.given

    def update(self, state: Any) -> None:
        """Take over the state that a step returned."""
        if self._state.is_in_place:
            raise TypeError("update(): Training was given NNX objects, which change in place; leave update() out")
        self._state.replace(state)
        self._is_updated = True

    def steps(self, goal: float | None = None) -> Iterator[int]:
        """Yield the numbers, from 0, of the steps still to be trained; it may save or leave between any two of them.

        `goal` is for starts by hand: the configuration takes precedence.
        """
        self._aim(goal, UNITS[1])
        if self._course.unit != UNITS[1]:
            raise ValueError(f"steps(): the goal is in {self._course.unit}, allowed: goal_unit: {UNITS[1]}")
        self._put_back()
        if self._link:
            self._link.pace.begin_step()
        for _ in self._train(itertools.repeat(None)):
            yield self.step
            if not self._is_updated:
                raise RuntimeError(
                    f"steps(): step {self.step} has ended without training.update(state), so its result would not be "
                    "saved; type training.update(state) in the loop, or give NNX objects to Training"
                )
            self._is_updated = self._state.is_in_place

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint, with the results in its folder `final/`.

        The results are metrics.csv, metrics.json and `files`, by their names: text, bytes, a Path to copy, or a pytree
        or NNX objects, of which a folder of Orbax is made.
        """
        self._finish(files or {})

    # --- what the notes ask for ---

    def _state_and_notes(self) -> tuple[Any, dict[str, Any]]:
        return self._state.tree, {"leaves": self._state.table(), "data": self._data.state()}

    def _restore_state(self, folder: Path, notes: Mapping[str, Any]) -> str:
        rows, tree = jax_state.matched(notes["leaves"], self._state.table(), str(folder)), self._state.tree
        leaves, structure = jax.tree.flatten(tree)
        triples = zip(jax_state.read_tree(folder, rows, tree), rows, leaves, strict=True)
        self._restored = jax.tree.unflatten(structure, [jax_state.restored(*each) for each in triples])
        self._state.replace(self._restored)
        self._data.restore(notes["data"], str(folder))
        return ""

    def _restore_again(self, folder: Path, notes: Mapping[str, Any]) -> None:
        if self._state.is_in_place:
            self._state.replace(self._restored)
        self._restored = None
        self._data.restore(notes["data"], str(folder))
