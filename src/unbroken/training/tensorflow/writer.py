"""Connect a TensorFlow training to the destination of its checkpoints, and write its `final/`."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.program.memory import available_bytes
from unbroken.runs.progress import Handover, Progress
from unbroken.training.core.environment import Contract, Outbox, SavePlace
from unbroken.training.core.results import write_result
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import AsyncSave, Connection
from unbroken.training.tensorflow import rank_checkpoint
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.rank_checkpoint import KerasState, own_folder
from unbroken.training.tensorflow.workers import Workers

# The values at the moment of the save, and what belongs to them until they are written.
NEEDED_MEMORY = 2


class KerasWriter(Connection):
    """Connect a TensorFlow training; `last` is what `write_last` wrote, with the seconds that it took."""

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, state_bytes: int, workers: Workers) -> None:
        super().__init__(contract, place, saves, state_bytes)
        self._workers, self._state_bytes = workers, state_bytes
        self.last: tuple[Path, float] | None = None

    def save(self, state: KerasState, progress: Progress, step: int, *, is_best: bool, is_last: bool) -> None:
        """Hand over one checkpoint, in the background if the training continues; a kill inside leaves only a draft."""
        self.wait()
        self.pace.begin_save(step)
        began = time.monotonic()
        if is_last or not self._may_be_in_background(self._state_bytes):
            draft = self._write(state, is_last=is_last)
            seconds = time.monotonic() - began
            self._hand_over(draft, progress, seconds, is_best=is_best)
            self._note_saved(seconds)
            if is_last:
                self.close_place(is_paused=True)
            return
        # By all workers, while they pause: to read a variable may take all of them.
        frozen, draft = state.frozen(), self._new_draft()
        rank_checkpoint.write_own(frozen, draft, self._workers)
        if not self._workers.is_first:
            return
        stall = time.monotonic() - began

        def complete() -> float:
            """Write what the first worker writes without the other workers."""
            began = time.monotonic()
            rank_checkpoint.write(frozen, draft, Workers())
            self._hand_over(draft, progress, time.monotonic() - began, is_best=is_best, stall_seconds=stall)
            return time.monotonic() - began

        self._async_save = AsyncSave(complete, stall)
        self.pace.is_saving = True

    def write_last(self, state: KerasState) -> None:
        """Write the state of a training that is over; `finish` hands it over."""
        self.wait()
        began = time.monotonic()
        self.last = self._write(state, is_last=True), time.monotonic() - began

    def finish(self, progress: Progress, is_best: bool, results: Mapping[str, object]) -> None:
        """Hand over what `write_last` wrote, with the results in its folder `final`."""
        if self.last is None:
            raise RuntimeError("finish() without a state; this is a mistake of unbroken")
        draft, seconds = self.last
        with own_folder(draft, self._workers) as folder:
            for name, content in results.items():
                write_result(folder / FINAL, name, content, _write_other)
        self._workers.meet()
        self._hand_over(draft, progress, seconds, is_best=is_best, is_finished=True)
        self.close_place(is_paused=False)

    def _may_be_in_background(self, size_bytes: int) -> bool:
        may = self._workers.is_first and super()._may_be_in_background(size_bytes)
        return bool(self._workers.number_of_first(int(may)))  # the values of its moment are kept by the first alone

    def _lack_of_memory(self, size_bytes: int) -> str:
        return "" if available_bytes() > NEEDED_MEMORY * size_bytes else f"{size_bytes / 1e6:,.0f} MB more"

    def _made_with(self) -> dict[str, str]:
        return {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "workers": str(self._workers.size),
            "threads": str(tf.config.threading.get_intra_op_parallelism_threads() or "all"),
            "gpus": str(len(tf.config.list_physical_devices("GPU"))),
        }

    def _say(self, line: str) -> None:
        self._workers.say(line)

    def _write(self, state: KerasState, *, is_last: bool) -> Path:
        """Write into a new draft; the last of a process is read again: then no other process can rewrite it."""
        draft = self._new_draft()
        rank_checkpoint.write(state, draft, self._workers)
        if is_last and self._workers.is_first:
            tensorflow_state.read_back(draft)
        return draft

    def _new_draft(self) -> Path:
        """Return one draft for all workers; the first makes it."""
        if self._workers.size == 1:
            return self.place.new_draft()
        number = int(self.place.new_draft().name.rpartition("-")[2]) if self._workers.is_first else 0
        return Outbox(self.contract.save).draft(self._workers.number_of_first(number))

    def _hand_over(self, draft: Path, progress: Progress, seconds: float, **said: Any) -> None:
        if self._workers.is_first:
            handover = Handover(progress, versions=self._made_with(), save_seconds=round(seconds, 3), **said)
            self.place.hand_over(draft, handover)


def _write_other(path: Path, content: object) -> None:
    """Write what is neither text nor a file; of a model, the name says how: `.keras`, `.weights.h5`, or a folder."""
    if isinstance(content, Mapping):
        arrays: dict[str, Any] = {str(key): np.asarray(array) for key, array in content.items()}
        np.savez(path, **arrays)
    elif not isinstance(content, keras.Model):
        raise CheckpointError(
            f"finish(): {path.name!r} is a {type(content).__name__}, allowed: a Keras model, text, bytes, a Path to "
            "copy, or a dictionary of arrays"
        )
    elif path.suffix == ".keras":
        content.save(path)
    elif path.name.endswith(".weights.h5"):
        content.save_weights(path)
    elif not path.suffix:
        content.export(path, verbose=False)
    else:
        raise CheckpointError(
            f"finish(): a model as {path.name!r}, allowed: name.keras, name.weights.h5, or a name without a suffix"
        )
