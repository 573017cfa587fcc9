"""Connect a training to the destination of its checkpoints: what each of its ranks receives and hands over."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from unbroken.errors import CheckpointError
from unbroken.store.progress import FileDigest
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.core import point as core
from unbroken.training.core.environment import (
    Contract,
    SavePlace,
)
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.torch import rank_checkpoint
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.rank_checkpoint import Digests, Said, made_with
from unbroken.training.torch.serialization import save_result
from unbroken.training.torch.snapshot import Snapshot, SnapshotBuffer, on_this_gpu, snapshot_bytes
from unbroken.training.torch.state import tensor_bytes
from unbroken.training.torch.validation import Weights, non_finite_weight

# Before the first step nothing is known: optimizers keep about twice the model.
GUESSED_GROWTH = 3


@dataclass(frozen=True, kw_only=True)
class Point(core.Point):
    """Hold what is to be saved, and its description."""

    state: dict[str, Any]
    weights: Weights = field(default_factory=dict)  # which must be numbers, else it is no checkpoint
    snapshot: Snapshot | None = None  # which holds both while the training continues


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
        super().__init__(contract, place, saves, GUESSED_GROWTH * state_bytes, ranks)
        self._parts, self._own, self._ranks = parts, own, ranks
        self.pace.steps_ahead = int(ranks.size > 1)
        self._beside: Ranks | None = None
        self._buffer = SnapshotBuffer()

    def save(self, point: Point) -> None:
        """Hand over one checkpoint, in the background if the training continues; a kill leaves only a draft."""
        point = self.begin(point)
        pieces = rank_checkpoint.pieces_of(point.state, self._own, self._ranks)
        weights = {name: self._own_weights(name, each) for name, each in point.weights.items()}
        point = replace(point, state=pieces, weights=weights)
        self.complete(point, on_this_gpu(self._write), self._held, snapshot_bytes(pieces))

    def _made_with(self) -> dict[str, str]:
        return made_with(self._ranks.size, self._parts)

    def _own_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return those that this rank writes: of what all have in common that is the first."""
        is_whole = self._ranks.is_first or name in self._own
        return {key: value for key, value in weights.items() if is_whole or isinstance(value, DTensor)}

    def _held(self, point: Point) -> Point:
        if self._ranks.size > 1:
            self._beside = self._beside or self._ranks.beside()
        snapshot = self._buffer.take((point.state, point.weights))
        return replace(point, state=snapshot.state[0], weights=snapshot.state[1], snapshot=snapshot)

    def _write(self, point: Point) -> None:
        """Write, digest and hand over."""
        ranks = self._ranks
        if point.snapshot:
            point.snapshot.wait()
            ranks = self._beside or ranks
        mine = self._written_here(point, ranks)
        try:
            said = ranks.all_gather(mine)
        except RuntimeError as error:
            raise CheckpointError(f"a rank left before all had said that their part is written ({error})") from error
        _check(said)
        digests = {name: digest for each in said for name, digest in each.digests.items()}
        # What goes wrong with it, such as a run that was lost to another job, ends all.
        ranks.by_first(lambda: self._show(point, digests))

    def _written_here(self, point: Point, ranks: Ranks) -> Said:
        """Write what this rank has, and return the result; all ranks learn of an error."""
        try:
            non_finite = non_finite_weight(point.weights)
            if not non_finite or ranks.size > 1:  # ranks write what is spread over them together, whatever is in it
                digests = rank_checkpoint.write(point.state, point.draft, ranks)
            if non_finite:
                return Said(error=f"{non_finite}, {point.where}", is_non_finite=True)
        except Exception as error:  # (raised by all ranks, once they know)
            if ranks.size == 1:
                raise
            return Said(error=str(error) or repr(error))
        return Said(digests)

    def _show(self, point: Point, written: Digests) -> None:
        """Add the results to a draft, and hand it over."""
        digests = {**written, **point.write_results(save_result)}
        known = {name: digest for name, digest in digests.items() if digest}
        if point.is_over:
            _read_back(point.draft, known)
        self.hand_over(point, algorithm=preferred_algorithm(), digests=known)


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
    found = connect(folder, saves, ranks)
    return TorchWriter(*found, saves, tensor_bytes(state()), parts=parts, own=own, ranks=ranks) if found else None


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
