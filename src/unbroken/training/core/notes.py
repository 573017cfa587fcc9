"""Run trainings whose checkpoints are arrays, as their framework writes them, and notes on them in JSON."""

from __future__ import annotations

import json
import platform
import random
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError
from unbroken.store.layout import Format
from unbroken.training.core.loop import Loop
from unbroken.training.core.point import Point
from unbroken.training.core.session import Connection

FILE_NAME, FORMAT = "state.json", Format(3)
WORDS = 625  # of the state of Python's generator


@dataclass(frozen=True, kw_only=True)
class NotedPoint(Point):
    """Hold what is to be saved: the state, in a form of the framework's, and the notes."""

    state: Any
    notes: Mapping[str, Any]


class NotedConnection(Connection):
    """Connect a training of arrays and notes; a framework defines how its arrays are written and checked."""

    @abstractmethod
    def _write_state(self, folder: Path, point: NotedPoint) -> None:
        """Write the state into a folder; if the point `is_over`, raise CheckpointError if it does not read back."""

    @abstractmethod
    def _write_result(self, path: Path, content: Any) -> None:
        """Write a result that is neither text, bytes nor a file."""

    @contextmanager
    def _own_folder(self, point: NotedPoint) -> Iterator[Path]:
        """Yield the folder into which this process writes."""
        yield point.draft

    def save(self, point: NotedPoint) -> None:
        """Hand over one checkpoint; a kill inside leaves only a draft."""
        self.complete(self.begin(point), self._fill)

    def write(self, point: NotedPoint) -> None:
        """Write all but the results."""
        with self._own_folder(point) as folder:
            self._write_state(folder, point)
            notes = {FORMAT.key: FORMAT.newest, **point.notes}
            text = json.dumps(notes, indent=1, default=lambda number: number.item())  # of numpy
            (folder / FILE_NAME).write_text(text + "\n")

    def publish(self, point: NotedPoint) -> None:
        """Write the results, and hand over what is complete."""
        with self._own_folder(point) as folder:
            replace(point, draft=folder).write_results(self._write_result)
        self.ranks.meet()
        if self.ranks.is_first:
            self.hand_over(point)

    def _fill(self, point: NotedPoint) -> None:
        self.write(point)
        self.publish(point)


class NotedTraining(Loop):
    """Share what these trainings have in common; a framework defines what its state is, and how it is put back."""

    _link: NotedConnection | None
    _seed: int
    _notes: dict[str, Any] | None = None  # of the checkpoint that was restored, until the training resumes

    @abstractmethod
    def _state_and_notes(self) -> tuple[Any, dict[str, Any]]:
        """Return the state as it is saved, and what the notes of this framework hold in addition."""

    @abstractmethod
    def _restore_state(self, folder: Path, notes: Mapping[str, Any]) -> str:
        """Take over the state; return why it is not to be trusted, empty if it is."""

    @abstractmethod
    def _restore_again(self, folder: Path, notes: Mapping[str, Any]) -> None:
        """Take over what the script's own beginning may have changed since."""

    # --- what the loop asks for ---

    def _resume(self) -> None:
        if self._link is None:
            self._ranks.say("started by hand without a folder, so nothing is saved")
        super()._resume()

    def _restore(self, folder: Path) -> str:
        notes = read_notes(folder, self._seed, self._ranks.size)
        self._notes = {**notes, "folder": folder}
        self._restore_common(notes)
        return self._restore_state(folder, notes)

    @property
    def _is_repeating(self) -> bool:
        return self._notes is not None

    def _put_back(self) -> None:
        notes, self._notes = self._notes, None
        if notes is not None:
            self._restore_again(notes["folder"], notes)
            restore_random(notes["random"][self._ranks.rank])

    def _save(self, done: float, *, is_best: bool, **more: Any) -> None:
        if self._link:
            self._link.save(self._point(done, is_best=is_best, **more))

    def _point(self, done: float, **more: Any) -> NotedPoint:
        state, own = self._state_and_notes()
        common = {"seed": self._seed, **self._common_state(), "random": self._ranks.all_gather(random_state())}
        step = self._course.position.step
        return NotedPoint(progress=self._progress(done), step=step, state=state, notes={**common, **own}, **more)


def read_notes(folder: Path, seed: int, processes: int) -> dict[str, Any]:
    """Return the notes of a checkpoint; raise CheckpointError if they are damaged, or of another training."""
    path = folder / FILE_NAME
    try:
        notes = FORMAT.read(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if (made_by := len(notes["random"])) != processes:
        raise CheckpointError(f"{folder}: made by {made_by} workers, and there are {processes}; allowed: as many")
    if notes["seed"] != seed:
        raise CheckpointError(f"{folder}: made with seed={notes['seed']}, and the script has {seed}")
    return notes


def random_state() -> list[float]:
    """Return the state of Python's and numpy's global generators."""
    import numpy as np  # no other module of this room needs more than the standard library

    _, words, gauss = random.getstate()
    twister: Any = np.random.get_state()
    return [*words, gauss is not None, gauss or 0.0, *twister[1].tolist(), *twister[2:]]


def restore_random(state: Sequence[float]) -> None:
    """Put back what `random_state` returned."""
    import numpy as np

    has_gauss, gauss, *key, at, has_normal, normal = state[WORDS:]
    random.setstate((3, tuple(map(int, state[:WORDS])), gauss if has_gauss else None))
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), int(at), int(has_normal), normal))


def versions_of(*modules: str) -> dict[str, str]:
    """Return the versions of Python and of those modules that are loaded."""
    loaded = {name: sys.modules[name] for name in modules if name in sys.modules}
    found = {name: str(getattr(module, "__version__", "unknown")) for name, module in loaded.items()}
    return {"python": platform.python_version(), **found}
