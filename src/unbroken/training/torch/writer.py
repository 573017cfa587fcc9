"""A training's connection to the place where its checkpoints go: what it is told, and what it hands over."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import torch

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.runs.progress import FileDigest, Handover, Progress
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.core.environment import Contract, SavePlace
from unbroken.training.core.results import write_result
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.session import Connection
from unbroken.training.torch.async_save import TorchAsyncSave
from unbroken.training.torch.provenance import made_with
from unbroken.training.torch.serialization import save_verified
from unbroken.training.torch.snapshot import SnapshotBuffer, has_memory_for, optimizer_storages, snapshot_bytes
from unbroken.training.torch.state import STATE_FILE, canonical
from unbroken.training.torch.validation import NonFiniteState, Weights, non_finite_weight

# In `finish`, the name of a file in that format.
SAFETENSORS = ".safetensors"
# Before the first step nothing is known: optimizers keep about twice the model.
GUESSED_GROWTH = 3


@dataclass(frozen=True)
class Point:
    """What is to be saved, and what is said of it."""

    state: object
    progress: Progress
    step: int
    is_best: bool
    is_last: bool = False  # the process leaves after it
    weights: Weights = field(default_factory=dict)  # which must be numbers, else it is no checkpoint
    where: str = ""  # in the training
    results: Mapping[str, object] | None = None  # of a training that is finished

    @property
    def is_over(self) -> bool:
        return self.is_last or self.results is not None


class TorchWriter(Connection):
    """That of a PyTorch training."""

    ranks_count = 1
    exit_seconds: float | None = None  # for a save that is on its way when the training ends by an error

    def __init__(
        self, contract: Contract, place: SavePlace, saves: Saves, state_bytes: int, parts: Mapping[str, object]
    ) -> None:
        super().__init__(contract, place, saves, GUESSED_GROWTH * state_bytes)
        self._parts = parts
        self._buffer = SnapshotBuffer()
        self._async_save: TorchAsyncSave | None = None
        self._waited_seconds = 0.0  # what ranks stood still for before they save
        self._may_leave_it_for_later = True
        self.give_up: Callable[[str], NoReturn] = sys.exit  # ends the training whose state must not be saved

    def save(self, point: Point, following: Phase | None = None) -> None:
        """Hands over one checkpoint, beside the training if that may go on; a kill inside leaves a draft, no more.

        `following` is what the training does next, if it goes on.
        """
        self.wait()
        self.pace.begin_save(point.step)
        if not point.is_over and self._may_be_in_background(snapshot_bytes(point.state)):
            self._begin_async_save(point, is_step_next=following is Phase.BATCH)
            return
        with self._giving_up():
            self._note_saved(self._write(point))
        if point.is_over:
            self.close_place(is_paused=point.is_last)

    def poll(self, following: Phase) -> None:
        if self._async_save and not self._async_save.is_running_before(is_step_next=following is Phase.BATCH):
            self.wait()

    def wait(self) -> None:
        with self._giving_up():
            self._end_async_save()

    def _end_async_save(self, patience_seconds: float | None = None) -> None:
        save, self._async_save, self.pace.is_saving = self._async_save, None, False
        if save is None:
            return
        save.wait(patience_seconds)
        if save.is_dropped:
            self._may_leave_it_for_later = False
            self.pace.forget_save()
            self._say(
                "something changed a parameter before the optimizer's step: this save is made anew, copied at once"
            )
        else:
            self._note_saved(save.seconds, save.stall_seconds)

    def _made_with(self) -> dict[str, str]:
        return made_with(self.ranks_count, self._parts)

    def _lack_of_memory(self, size_bytes: int) -> str:
        return "" if has_memory_for(size_bytes) else f"a copy of {size_bytes / 1e6:,.0f} MB"

    def _begin_async_save(self, point: Point, is_step_next: bool) -> None:
        began = time.monotonic()
        optimizers = [part for part in self._parts.values() if isinstance(part, torch.optim.Optimizer)]
        # A best value is saved now or never.
        may_wait = is_step_next and self._may_leave_it_for_later and not point.is_best
        later = optimizer_storages(optimizers) if may_wait else set()
        snapshot = self._buffer.take((point.state, point.weights), later)
        copy = replace(point, state=snapshot.state[0], weights=snapshot.state[1])
        stall = self._waited_seconds + time.monotonic() - began
        self._async_save = TorchAsyncSave(snapshot, lambda save: self._write(copy, save), optimizers, stall)
        self.pace.is_saving = True

    def _write(self, point: Point, save: TorchAsyncSave | None = None) -> float:
        """Writes, digests and hands over; returns the seconds.  A save beside the training has the last word."""
        began = time.monotonic()
        check_weights(point)
        draft = self.place.new_draft()
        written = {STATE_FILE: save_verified(point.state, draft / STATE_FILE)}
        self._show(draft, written, point, began, save, save.stall_seconds if save else None)
        return time.monotonic() - began

    def _show(
        self,
        draft: Path,
        written: Mapping[str, FileDigest | None],
        point: Point,
        began: float,
        save: TorchAsyncSave | None = None,
        stall_seconds: float | None = None,
    ) -> None:
        """Adds the results to a draft that was begun at the moment `began`, and hands it over."""
        digests = dict(written)
        for name, content in (point.results or {}).items():
            digests[f"{FINAL}/{name}"] = write_result(draft / FINAL, name, content, _save_result)
        known = {name: digest for name, digest in digests.items() if digest}
        handover = replace(
            _handover(point, time.monotonic() - began, known, self._made_with()), stall_seconds=stall_seconds
        )
        if point.is_over:
            _read_back(draft, known)
        if save and not save.may_be_shown():
            shutil.rmtree(draft)
        else:
            self.place.hand_over(draft, handover)

    def _wait_at_exit(self) -> None:
        self._end_async_save(self.exit_seconds)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except NonFiniteState as non_finite:
            self.give_up(str(non_finite))


def check_weights(point: Point) -> None:
    """NonFiniteState if one of the weights is no number."""
    if non_finite := non_finite_weight(point.weights):
        raise NonFiniteState(f"{non_finite}, {point.where}")


def _handover(point: Point, seconds: float, digests: Mapping[str, FileDigest], versions: Mapping[str, str]) -> Handover:
    return Handover(
        point.progress,
        is_best=point.is_best,
        is_finished=point.results is not None,
        versions=versions,
        save_seconds=round(seconds, 3),
        algorithm=preferred_algorithm(),
        digests=digests,
    )


def _read_back(draft: Path, digests: Mapping[str, FileDigest]) -> None:
    """Before a segment says that it is paused or finished: what was written is what lies there."""
    for name, made in digests.items():
        if digest_file(draft / name, preferred_algorithm()) != made.digest:
            raise CheckpointError(f"{draft / name}: reads back differently from what was written; check the disk")


def _save_result(path: Path, content: object) -> FileDigest | None:
    if path.suffix == SAFETENSORS:
        _save_safetensors(path, content)
        return None
    with suppress(CheckpointError):  # it is the user's own file: what torch.save can write is good enough
        content = canonical(content, path.name)
    return save_verified(content, path, zip_checksums=True)


def _save_safetensors(path: Path, content: object) -> None:
    """CheckpointError if it is not a dictionary of tensors that do not share memory, or the package is missing."""
    try:
        from safetensors.torch import save_file

        save_file({name: value.detach().cpu().contiguous() for name, value in dict(content).items()}, path)  # type: ignore[call-overload]
    except ImportError as error:
        raise CheckpointError(f"finish(): {path.name} needs a package; type pip install safetensors") from error
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        found = str(error).strip().splitlines()[0]
        raise CheckpointError(f"finish(): {path.name}: {found}; allowed: a dictionary of tensors by name") from error
