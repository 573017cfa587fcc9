"""Connect a training to the destination of its checkpoints: what each of its ranks receives and hands over."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import FileDigest
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.system.memory import available_bytes
from unbroken.training.core import once
from unbroken.training.core import point as core
from unbroken.training.core.environment import (
    WAIT_POLL_SECONDS,
    Contract,
    Outbox,
    SavePlace,
    check_thread,
    read_contract,
)
from unbroken.training.core.results import write_result
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.torch import rank_checkpoint
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.rank_checkpoint import Digests, Offer, Said, made_with
from unbroken.training.torch.serialization import save_result
from unbroken.training.torch.snapshot import NEEDED_MEMORY, SnapshotBuffer, on_this_gpu, snapshot_bytes
from unbroken.training.torch.state import tensor_bytes
from unbroken.training.torch.validation import Weights, non_finite_weight

# Before the first step nothing is known: optimizers keep about twice the model.
GUESSED_GROWTH = 3
# Launchers kill the ranks that are left after 10 s, and others may never come.
RANKS_EXIT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Point(core.Point):
    """Hold what is to be saved, and its description."""

    state: dict[str, Any]
    weights: Weights = field(default_factory=dict)  # which must be numbers, else it is no checkpoint


class TorchWriter(Connection):
    """Connect a PyTorch training.  Each rank has one; the first hands over what all have written.

    In the background the ranks agree through a connection that the training does not use.  Files that say "written"
    would do, but not that a rank has died, and a file server may show them to other nodes only after a minute.
    """

    def __init__(
        self,
        contract: Contract,
        place: SavePlace,
        saves: Saves,
        state_bytes: int,
        *,
        parts: Mapping[str, object],
        own: Collection[str] = (),
        ranks: Ranks,
    ) -> None:
        super().__init__(contract, place, saves, GUESSED_GROWTH * state_bytes)
        self._parts, self._own, self._ranks = parts, own, ranks
        self.pace.steps_ahead = int(ranks.size > 1)
        self._beside: Ranks | None = None
        self._offers: list[Offer] = []
        self._buffer = SnapshotBuffer()
        self._exit_seconds = RANKS_EXIT_SECONDS if ranks.size > 1 else None

    def fall_back(self, reason: str) -> Path | None:
        """Fall back to the checkpoint before; return None with several ranks, which end and start again from there."""
        before = super().fall_back(reason)
        return before if self._ranks.size == 1 else None

    def save(self, point: Point) -> None:
        """Hand over one checkpoint, in the background if the training continues; a kill leaves only a draft."""
        self.wait()
        began = time.monotonic()
        pieces = rank_checkpoint.pieces_of(point.state, self._own, self._ranks)
        weights = {name: self._own_weights(name, each) for name, each in point.weights.items()}
        draft = self._draft_with_room() if self._ranks.is_first else ""
        size = snapshot_bytes(pieces)
        has_memory = available_bytes() > NEEDED_MEMORY * size * int(
            os.environ.get("LOCAL_WORLD_SIZE") or self._ranks.size
        )
        self._offers = self._ranks.all_gather(Offer(draft, size, has_memory))
        point = replace(point, state=pieces, weights=weights)
        self.pace.begin_save(point.step)
        # All ranks find the same, because they ask the same offers.
        if not point.is_over and self._may_be_in_background(max(offer.size_bytes for offer in self._offers)):
            self._begin_async_save(point, began)
            return
        self.write_now(point, lambda: self._write(point))

    def _made_with(self) -> dict[str, str]:
        return made_with(self._ranks.size, self._parts)

    def _lack_of_memory(self, size_bytes: int) -> str:
        copies = "a copy" if self._ranks.size == 1 else "copies"
        return "" if all(offer.has_memory for offer in self._offers) else f"{copies} of {size_bytes / 1e6:,.0f} MB"

    def _own_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return those that this rank writes: of what all have in common that is the first."""
        is_whole = self._ranks.is_first or name in self._own
        return {key: value for key, value in weights.items() if is_whole or isinstance(value, DTensor)}

    def _draft_with_room(self) -> str:
        # Other ranks wait as well, so there is no clock to watch; unbroken takes folders as long as it lives.
        while self._ranks.size > 1 and not self.place.has_room:
            time.sleep(WAIT_POLL_SECONDS)
        return str(self.place.new_draft())

    def _begin_async_save(self, point: Point, began: float) -> None:
        if self._ranks.size > 1:
            self._beside = self._beside or self._ranks.beside()
        snapshot = self._buffer.take((point.state, point.weights))
        copy = replace(point, state=snapshot.state[0], weights=snapshot.state[1])
        stall = time.monotonic() - began

        def complete() -> float:
            snapshot.wait()
            return self._write(copy, stall)

        self.write_in_background(on_this_gpu(complete), stall)

    def _write(self, point: Point, stall_seconds: float | None = None) -> float:
        """Write, digest and hand over; return the seconds.  In the background, the training paused `stall_seconds`."""
        began, draft = time.monotonic(), Path(self._offers[0].draft)
        ranks = self._ranks if stall_seconds is None or self._beside is None else self._beside
        mine = self._written(point, draft, ranks)
        try:
            said = ranks.all_gather(mine)
        except RuntimeError as error:
            raise CheckpointError(f"a rank left before all had said that their part is written ({error})") from error
        _check(said)
        digests = {name: digest for each in said for name, digest in each.digests.items()}
        # What goes wrong with it, such as a run that was lost to another job, ends all.
        ranks.by_first(lambda: self._show(draft, digests, point, began, stall_seconds))
        return time.monotonic() - began

    def _written(self, point: Point, draft: Path, ranks: Ranks) -> Said:
        """Write what this rank has, and return the result; all ranks learn of an error."""
        try:
            non_finite = non_finite_weight(point.weights)
            if non_finite and ranks.size == 1:
                shutil.rmtree(draft)
            else:  # the ranks write the tensors that are spread over them together, whatever is in them
                digests = rank_checkpoint.write(point.state, draft, ranks)
            if non_finite:
                return Said(error=f"{non_finite}, {point.where}", is_non_finite=True)
        except Exception as error:  # (raised by all ranks, once they know)
            if ranks.size == 1:
                raise
            return Said(error=str(error) or repr(error))
        return Said(digests)

    def _show(self, draft: Path, written: Digests, point: Point, began: float, stall_seconds: float | None) -> None:
        """Add the results to a draft that was begun at the moment `began`, and hand it over."""
        digests: dict[str, FileDigest | None] = {**written}
        for name, content in (point.results or {}).items():
            digests[f"{FINAL}/{name}"] = write_result(draft / FINAL, name, content, save_result)
        known = {name: digest for name, digest in digests.items() if digest}
        if point.is_over:
            _read_back(draft, known)
        digested = {"algorithm": preferred_algorithm(), "digests": known}
        self.place.hand_over(draft, point.handover(began, stall_seconds, versions=self._made_with(), **digested))

    def _say(self, line: str) -> None:
        self._ranks.say(line)


def linked(
    folder: str | os.PathLike[str] | None,
    saves: Saves,
    state: Callable[[], object],
    *,
    parts: Mapping[str, object],
    own: Collection[str],
    ranks: Ranks,
) -> TorchWriter | None:
    """Return this rank's connection; None if there is nowhere to save."""
    found = connect(folder, saves) if ranks.size == 1 else connect_all(folder, saves, ranks)
    return TorchWriter(*found, saves, tensor_bytes(state()), parts=parts, own=own, ranks=ranks) if found else None


def connect_all(folder: str | os.PathLike[str] | None, saves: Saves, ranks: Ranks) -> tuple[Contract, SavePlace] | None:
    """Connect every rank: the workflow passes a contract to each; the first opens and locks a folder of one's own."""
    if told := read_contract():
        check_thread()
        once.check_run(told)
        return told, Outbox(told.save) if ranks.is_first else SavePlace()
    opened: list[tuple[Contract, SavePlace]] = []

    def open_folder() -> Contract | None:
        opened.extend(filter(None, [connect(folder, saves)]))
        return opened[0][0] if opened else None

    contract = ranks.by_first(open_folder)
    if contract is None or opened:
        return opened[0] if opened else None
    # The deadline is on the clock of the first rank's node, and one rank that knows it is enough.
    return replace(contract, deadline=math.inf), SavePlace()


def _check(said: list[Said]) -> None:
    """Raise what went wrong on a rank, on each of them."""
    for rank, each in enumerate(said):
        if each.is_non_finite:
            raise core.NonFiniteState(each.error)
        if each.error:
            raise CheckpointError(f"rank {rank} could not save: {each.error}")


def _read_back(draft: Path, digests: Mapping[str, FileDigest]) -> None:
    """Check that the written files read back unchanged, before a segment reports that it is paused or finished."""
    for name, made in digests.items():
        if digest_file(draft / name, preferred_algorithm()) != made.digest:
            raise CheckpointError(f"{draft / name}: reads back differently from what was written; check the disk")
