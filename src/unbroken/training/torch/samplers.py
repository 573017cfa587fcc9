"""Order the samples of each epoch, cut them into a row of small batches, and share the row between ranks.

All of it is a function of seed and epoch, the same for any number of ranks.  Each step takes the next batch for every
rank.  So an epoch's progress is one number, and if another number of ranks resumes from it, every sample still comes
exactly once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data.distributed import DistributedSampler

from unbroken.training.core.position import Position

SHORT = np.iinfo(np.int32)
# An order draws the indices of one epoch from a generator that is seeded for that epoch.
Order = Callable[[torch.Generator], Sequence[int] | torch.Tensor]
Indices: TypeAlias = "array[int] | range"
# An epoch by its number; a further pass in it, whose order is another one, as "3.1".
EpochKey: TypeAlias = int | str


def seed_from(*parts: int | str) -> int:
    """Return 63 bits that differ for each sequence of parts and look random."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Share:
    """Identify a rank and the number of ranks."""

    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True)
class SampleKey:
    """Identify one batch that is requested from a worker process; each sample has its own number in the epoch."""

    epoch: EpochKey
    indices: Sequence[int]
    numbers: Sequence[int]


class EpochSteps:
    """Iterate over the steps from a place in an epoch's row of batches to its end, as one rank sees them.

    Each has a batch for every rank: the places of its samples in the order of the epoch.  If fewer batches than ranks
    remain, `drop_last` leaves them out; else they are divided, so that each rank gets some samples.  If there are fewer
    samples than ranks, they join the step before; without one, some are taken twice, at most one less than there are
    ranks.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        share: Share = Share(),
        start: int = 0,
        *,
        drop_last: bool = False,
    ) -> None:
        self._samples, self._size, self._share, self._start = samples, batch_size, share, start
        whole, rest = divmod(samples, batch_size)
        self.batches = whole + (rest > 0 and not drop_last)  # of the whole epoch, all ranks together
        self.per_step = share.ranks
        self._whole, tail = divmod(max(self.batches - start, 0), share.ranks)
        self._last: list[Sequence[int]] = []
        if tail and not drop_last:
            self._last = self._shared_tail([self._batch(self.batches - tail + number) for number in range(tail)])

    def __len__(self) -> int:
        return self._whole + bool(self._last)

    def __iter__(self) -> Iterator[Sequence[int]]:
        for step in range(self._whole):
            yield self._batch(self._start + step * self._share.ranks + self._share.rank)
        if self._last:
            yield self._last[self._share.rank]

    @property
    def has_more(self) -> bool:
        return len(self) > 0

    def end_after(self, place: int) -> int:
        """Return where in the row the step from `place` on ends; the last step takes the remaining batches too."""
        last = self._start + (len(self) - 1) * self._share.ranks
        return self.batches if place >= last else place + self._share.ranks

    def place_after(self, steps: int) -> int:
        """Return where in the row the place lies that is so many of these steps after the first one's begin."""
        return self.batches if steps >= len(self) else max(self._start + steps * self._share.ranks, 0)

    def samples(self, start: int, end: int) -> int:
        """Return how many samples the row has from `start` to `end`."""
        return min(end * self._size, self._samples) - start * self._size

    def _batch(self, number: int) -> range:
        return range(number * self._size, min((number + 1) * self._size, self._samples))

    def _shared_tail(self, tail: list[range]) -> list[Sequence[int]]:
        ranks, places = self._share.ranks, [place for batch in tail for place in batch]
        if len(places) >= ranks:
            return _divided(tail, ranks)
        if not self._whole or self._size == 1:
            return [[places[rank % len(places)]] for rank in range(ranks)]
        self._whole -= 1
        first = self._start + self._whole * ranks
        return [[*self._batch(first + rank), *places[rank : rank + 1]] for rank in range(ranks)]


def _divided(batches: Sequence[Sequence[int]], count: int) -> list[Sequence[int]]:
    """Split the batches into `count` non-empty ones of the same samples, by halving the largest again and again."""
    found = list(batches)
    while len(found) < count:
        at = max(range(len(found)), key=lambda number: len(found[number]))
        half = (len(found[at]) + 1) // 2
        found[at : at + 1] = [found[at][:half], found[at][half:]]
    return found


class PlannedSampler(DistributedSampler[SampleKey]):
    """Draw the order of each epoch on demand, and give this rank's batches of the steps that are requested.

    The order of the last epoch is kept.  The length is that of the position's epoch.  It is called a
    DistributedSampler, because Lightning puts one of its own in the place of any other on several ranks.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        batch_size: int | None,  # None: each sample is a batch already
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
    ) -> None:
        self.seed, self.position, self.share = seed, Position(), Share()
        self.is_own = order is not None  # by the user: it may depend on more than seed and epoch
        self.batch_size, self._size, self._drop_last = batch_size, size, drop_last
        self._shuffle, self._order = shuffle, order or self._plain
        self._known: tuple[EpochKey, Indices] = (-1, range(0))
        self._requested: tuple[EpochKey, Indices, EpochSteps] | None = None

    def __iter__(self) -> Iterator[SampleKey]:
        epoch = self.position.epoch  # unless steps were requested, by the time that an iteration begins
        return self._keys(*self._requested or (epoch, self.of(epoch), self.steps(self.of(epoch))))

    def _keys(self, key: EpochKey, indices: Indices, steps: EpochSteps) -> Iterator[SampleKey]:
        for places in steps:
            chosen = [indices[place] for place in places]
            # In the user's order a sample may come again, and then it is not twice the same.
            yield SampleKey(key, chosen, places if self.is_own else chosen)

    def __len__(self) -> int:
        return len(self.steps(self.of(self.position.epoch)))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of the epoch; stay at the position if it is in that epoch already."""
        if epoch != self.position.epoch:
            self.position = Position(epoch)

    def request(self, key: EpochKey, indices: Indices, steps: EpochSteps) -> None:
        """Give these steps to iterations that begin from here on (a loader may begin several and use the last)."""
        self._requested = key, indices, steps

    def steps(self, indices: Indices, start: int = 0) -> EpochSteps:
        """Return this rank's steps of an epoch with these indices, from a place in its row on."""
        size = 1 if self.batch_size is None else self.batch_size
        return EpochSteps(len(indices), size, self.share, start, drop_last=self._drop_last)

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
        return torch.randperm(self._size, generator=generator) if self._shuffle else range(self._size)

    def of(self, epoch: EpochKey) -> Indices:
        """Return the indices of an epoch as they were drawn first."""
        if self._known[0] != epoch:
            self._known = (epoch, self.draw(epoch))
        return self._known[1]

    def state(self, epoch: EpochKey) -> torch.Tensor | None:
        """Return the indices that the user's order gave for the epoch; None where they are a function of the seed."""
        return as_tensor(self._known[1]) if self.is_own and self._known[0] == epoch else None

    def restore(self, epoch: EpochKey, state: torch.Tensor | None) -> None:
        """Continue with what `state` returned, whatever the user's order would give now; with None it draws again."""
        if self.is_own:
            self._known = (-1, range(0)) if state is None else (epoch, from_tensor(state))


def _compact(indices: np.ndarray[Any, Any]) -> array[int]:
    """Return the indices as an array; a list would take ten times the memory."""
    is_short = not len(indices) or (indices.min() >= SHORT.min and indices.max() <= SHORT.max)
    found = array("i" if is_short else "q")
    found.frombytes(np.ascontiguousarray(indices, dtype=SHORT.dtype if is_short else np.int64).data.cast("B"))
    return found


def as_tensor(indices: Indices | array[float]) -> torch.Tensor:
    """Return indices in the form in which a state keeps them."""
    return torch.from_numpy(np.array(indices))


def from_tensor(state: torch.Tensor) -> Indices:
    """Return what `as_tensor` was given."""
    return _compact(state.numpy())
