"""Sample in an order that is a function of seed and epoch."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from unbroken.training.core.batch_order import Batch, BatchRow, EpochSteps, Share, grouped

SHORT = np.iinfo(np.int32)
# An order draws the indices of one epoch from a generator that is seeded for that epoch.
Order = Callable[[torch.Generator], Sequence[int] | torch.Tensor]
Indices: TypeAlias = "array[int] | range"
# An epoch by its number; a further pass in it, whose order is another one, as "3.1".
EpochKey: TypeAlias = int | str
# No data set has so many samples: a number of `numbered` is index + AGAIN * (how often it came before).
AGAIN = 2**40


def seed_from(*parts: int | str) -> int:
    """Return 63 bits that differ for each sequence of parts and look random."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _compact(indices: np.ndarray[Any, Any]) -> array[int]:
    """Return the indices as an array; a list would take ten times the memory."""
    is_short = not len(indices) or (indices.min() >= SHORT.min and indices.max() <= SHORT.max)
    found = array("i" if is_short else "q")
    found.frombytes(np.ascontiguousarray(indices, dtype=SHORT.dtype if is_short else np.int64).data.cast("B"))
    return found


def numbered(indices: Indices) -> Indices:
    """Return the indices with `AGAIN` added for each time that one came before."""
    numbers = np.array(indices, dtype=np.int64)
    places = np.argsort(numbers, kind="stable")
    is_first = np.ones(len(numbers), dtype=bool)
    is_first[1:] = np.diff(numbers[places]) != 0
    if is_first.all() or numbers.min() < 0:
        return indices
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(numbers)), 0))
    numbers[places] += AGAIN * (np.arange(len(numbers)) - first)
    return _compact(numbers)


class EpochOrder:
    """Draw the indices of each epoch on demand; those of the last epoch are kept."""

    def __init__(self, size: int, seed: int, *, shuffle: bool = True, order: Order | None = None) -> None:
        self.seed, self.size, self._shuffle = seed, size, shuffle
        self.is_own = order is not None  # by the user: it may depend on more than seed and epoch
        self._order = order or self._plain
        self._known: tuple[EpochKey, Indices] = (-1, range(0))

    def draw(self, epoch: EpochKey) -> Indices:
        """Return the indices of an epoch as the order gives them now: four bytes each, eight above two billion samples.

        Raise TypeError if the order gives something other than integers, such as a mask.
        """
        indices = self._order(torch.Generator().manual_seed(seed_from(self.seed, "order", epoch)))
        if isinstance(indices, range):
            return indices
        if not isinstance(indices, torch.Tensor):
            return _compact(np.asarray(array("q", indices)))
        if indices.is_floating_point() or indices.dtype == torch.bool:
            raise TypeError(
                f"order gave a tensor of {indices.dtype}, allowed: whole numbers, such as mask.nonzero()[:, 0]"
            )
        return _compact(indices.numpy())

    def _plain(self, generator: torch.Generator) -> torch.Tensor | range:
        return torch.randperm(self.size, generator=generator) if self._shuffle else range(self.size)

    def of(self, epoch: EpochKey) -> Indices:
        """Return the indices of an epoch as they were drawn first."""
        if self._known[0] != epoch:
            self._known = (epoch, self.draw(epoch))
        return self._known[1]

    def forget(self) -> None:
        """Draw again what the user's order gives, when it is asked for next: it may give something else by then."""
        if self.is_own:
            self._known = (-1, range(0))

    def state(self, epoch: EpochKey) -> torch.Tensor | None:
        """Return the indices that the user's order gave for the epoch; None where they are a function of the seed."""
        return as_tensor(self._known[1]) if self.is_own and self._known[0] == epoch else None

    def restore(self, epoch: EpochKey, state: torch.Tensor | None) -> None:
        """Continue with what `state` returned, whatever the user's order would give now."""
        if self.is_own:
            self._known = (-1, range(0)) if state is None else (epoch, from_tensor(state))


def as_tensor(indices: Indices | array[float]) -> torch.Tensor:
    """Return indices in the form in which a state keeps them."""
    return torch.from_numpy(np.array(indices))


def from_tensor(state: torch.Tensor) -> Indices:
    """Return what `as_tensor` was given."""
    return _compact(state.numpy())


class SamplePlan:
    """Plan each epoch's batches, in a row that does not depend on the number of ranks, and this rank's steps in it."""

    def __init__(
        self,
        order: EpochOrder,
        batch_size: int,
        *,
        share: Share = Share(),  # noqa: B008, it is frozen
        drop_last: bool = False,
        groups: Sequence[object] | None = None,
    ) -> None:
        self.order, self.seed, self.share = order, order.seed, share
        self._batch_size, self._drop_last, self._groups = batch_size, drop_last, groups
        self._known: tuple[Indices | None, Sequence[Batch]] = (None, ())

    def row(self, epoch: EpochKey) -> Sequence[Batch]:
        """Return all batches of the epoch."""
        indices = self.order.of(epoch)
        if self._known[0] is not indices:
            self._known = (indices, self.cut(epoch, indices))
        return self._known[1]

    def steps(self, epoch: EpochKey, start: int) -> EpochSteps:
        """Return this rank's steps of the epoch from a place in the row on."""
        return self.steps_in(self.row(epoch), start)

    def steps_in(self, row: Sequence[Batch], start: int) -> EpochSteps:
        """Return this rank's steps from a place in a row on."""
        return EpochSteps(row, self.share, start, drop_last=self._drop_last, mixed=self._groups is None)

    def cut(self, epoch: EpochKey, indices: Indices) -> Sequence[Batch]:
        """Return the batches that the indices of an epoch make."""
        groups = None if self._groups is None else [self._groups[index] for index in indices]
        if self.order.is_own:  # then one may come twice
            indices = numbered(indices)
        if groups is None:
            return BatchRow(indices, self._batch_size, drop_last=self._drop_last)
        row = grouped(indices, groups, self._batch_size, drop_last=self._drop_last)
        # What was left of each group at the end would come together, one small batch after the other.
        mixer = torch.Generator().manual_seed(seed_from(self.seed, "groups", epoch))
        return [row[number] for number in torch.randperm(len(row), generator=mixer).tolist()]
