"""A TensorFlow training's connection to the unbroken process that started it."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from unbroken.program.contract import FINAL
from unbroken.program.memory import available_bytes
from unbroken.runs.progress import Handover, Progress
from unbroken.training.core.environment import Contract, Outbox, SavePlace
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.session import AsyncSave, Connection
from unbroken.training.tensorflow import rank_checkpoint
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.export import write_result
from unbroken.training.tensorflow.rank_checkpoint import KerasState, own_folder
from unbroken.training.tensorflow.workers import Workers

# The values of the moment of the save, and what lies beside them until they are written.
NEEDED_MEMORY = 2


class KerasWriter(Connection):
    """That of a TensorFlow training."""

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, state_bytes: int, workers: Workers) -> None:
        super().__init__(contract, place, saves, state_bytes)
        self._workers, self._alone, self._state_bytes = workers, Workers(), state_bytes
        self._async_save: AsyncSave | None = None
        self._last: tuple[Path, float] | None = None

    def save(self, state: KerasState, progress: Progress, step: int, is_best: bool, is_last: bool) -> None:
        """Hands over one checkpoint, beside the training if that goes on; a kill inside leaves a draft, no more."""
        self.wait()
        self.pace.begin_save(step)
        if is_last or not self._may_be_in_background(self._state_bytes):
            self._note_saved(self._save(state, progress, is_best, is_last))
            if is_last:
                self.close_place(is_paused=True)
            return
        began = time.monotonic()
        # By all workers, as long as they stand still: to read a variable may take all of them.
        frozen, draft = state.frozen(), self._new_draft()
        rank_checkpoint.write_own(frozen, draft, self._workers)
        if self._workers.is_first:
            stall = time.monotonic() - began
            self._async_save = AsyncSave(lambda: self._complete(draft, frozen, progress, is_best, stall), stall)
            self.pace.is_saving = True

    def poll(self, following: Phase) -> None:
        if self._async_save and not self._async_save.is_running:
            self.wait()

    def wait(self) -> None:
        save, self._async_save, self.pace.is_saving = self._async_save, None, False
        if save:
            save.wait()
            self._note_saved(save.seconds, save.stall_seconds)

    def write_last(self, state: KerasState) -> None:
        """Writes the state of a training that is over; `finish` hands it over."""
        self.wait()
        began = time.monotonic()
        draft = self._write(state, is_last=True)
        self._last = draft, time.monotonic() - began

    def finish(self, progress: Progress, is_best: bool, results: Mapping[str, object]) -> None:
        """Hands over what `write_last` wrote, with the results in its folder `final`."""
        if self._last is None:
            raise RuntimeError("finish() without a state; this is a mistake of unbroken")
        draft, seconds = self._last
        with own_folder(draft, self._workers) as folder:
            for name, content in results.items():
                write_result(folder / FINAL, name, content)
        self._workers.meet()
        self._hand_over(draft, progress, is_best, True, seconds)
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

    def _save(self, state: KerasState, progress: Progress, is_best: bool, is_last: bool = False) -> float:
        began = time.monotonic()
        draft = self._write(state, is_last)
        seconds = time.monotonic() - began
        self._hand_over(draft, progress, is_best, False, seconds)
        return seconds

    def _complete(self, draft: Path, state: KerasState, progress: Progress, is_best: bool, stall: float) -> float:
        """Beside the training: what the first worker writes, who asks nobody for it; how many seconds it took."""
        began = time.monotonic()
        rank_checkpoint.write(state, draft, self._alone)
        self._hand_over(draft, progress, is_best, False, time.monotonic() - began, stall)
        return time.monotonic() - began

    def _write(self, state: KerasState, is_last: bool) -> Path:
        """Writes into a new draft; the last of a process is read again: then nobody else can write it anew."""
        draft = self._new_draft()
        rank_checkpoint.write(state, draft, self._workers)
        if is_last and self._workers.is_first:
            tensorflow_state.read_back(draft)
        return draft

    @property
    def has_last(self) -> bool:
        return self._last is not None

    def _new_draft(self) -> Path:
        """One for all workers; the first makes it."""
        if self._workers.size == 1:
            return self.place.new_draft()
        outbox = Outbox(self.contract.save)
        number = 0
        if self._workers.is_first:
            number = int(self.place.new_draft().name.rpartition("-")[2])
        return outbox.draft(self._workers.number_of_first(number))

    def _hand_over(
        self,
        draft: Path,
        progress: Progress,
        is_best: bool,
        is_finished: bool,
        seconds: float,
        stall_seconds: float | None = None,
    ) -> None:
        if not self._workers.is_first:
            return
        handover = Handover(
            progress,
            is_best=is_best,
            is_finished=is_finished,
            versions=self._made_with(),
            save_seconds=round(seconds, 3),
            stall_seconds=stall_seconds,
        )
        self.place.hand_over(draft, handover)
