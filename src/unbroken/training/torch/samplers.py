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
from typing import TypeAlias

import numpy as np
import torch
from torch.utils.data.distributed import DistributedSampler

from unbroken.training.core.position import Position

SHORT = torch.iinfo(torch.int32)
# An order draws the indices of one epoch from a generator that is seeded for that epoch.
Order = Callable[[torch.Generator], Sequence[int] | torch.Tensor]
Indices: TypeAlias = torch.Tensor | range
# An epoch by its number; a further pass in it, whose order is another one, as "3.1".
EpochKey: TypeAlias = int | str

# More batches than any epoch has: how long it is is unknown.
NO_END = 2**40


def seed_from(*parts: int | str) -> int:
    """Return 63 bits that differ for each sequence of parts and look random."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class SampleKey:
    """Identify one batch that is requested from a worker process; each sample has its own number in the epoch."""

    epoch: EpochKey
    indices: Sequence[int]
    numbers: Sequence[int]


class EpochSteps:
    """Iterate over the steps from a place in an epoch's row of batches to its end, as one rank sees them.

    Each has a batch for every rank: the places of its samples in the order of the epoch.  If fewer batches than ranks
    remain, `drop_last` leaves them out; else the ranks share their samples evenly.  If there are fewer samples than
    ranks, the step before takes them too; without one, or with batches of one sample, some are taken twice.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        start: int = 0,
        *,
        rank: int = 0,
        ranks: int = 1,
        drop_last: bool = False,
    ) -> None:
        self._samples, self._size, self._start = samples, batch_size, start
        self._rank, self._ranks = rank, ranks
        whole, rest = divmod(samples, batch_size)
        self.batches = whole + (rest > 0 and not drop_last)  # of the whole epoch, all ranks together
        self._whole, tail = divmod(max(self.batches - start, 0), ranks)
        self._last = range(0)  # what all ranks share in the last step
        if tail and not drop_last:
            is_little = self.samples(self.batches - tail, self.batches) < ranks
            self._whole -= is_little and self._whole > 0 and batch_size > 1
            self._last = range((start + self._whole * ranks) * batch_size, samples)

    def __len__(self) -> int:
        return self._whole + bool(self._last)

    def __iter__(self) -> Iterator[range]:
        rank, ranks, size = self._rank, self._ranks, self._size
        for step in range(self._whole):
            first = (self._start + step * ranks + rank) * size
            yield range(first, min(first + size, self._samples))
        count = len(self._last)
        if count >= ranks:
            yield self._last[rank * count // ranks : (rank + 1) * count // ranks]
        elif count:
            yield self._last[rank % count : rank % count + 1]

    def place_after(self, steps: int) -> int:
        """Return where in the row so many of these steps end; the last one takes the remaining batches too."""
        return self.batches if steps >= len(self) else self._start + steps * self._ranks

    def end_after(self, place: int) -> int:
        """Return where in the row the step from `place` on ends."""
        return self.place_after((place - self._start) // self._ranks + 1)

    def samples(self, start: int, end: int) -> int:
        """Return how many samples the row has from `start` to `end`."""
        return min(end * self._size, self._samples) - start * self._size


class PlannedSampler(DistributedSampler[SampleKey]):
    """Draw the order of each epoch on demand, and give this rank's batches of the steps that are requested.

    The order of the last epoch is kept.  The length is that of the position's epoch.  It is called a
    DistributedSampler, because Lightning puts one of its own in the place of any other on several ranks.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
    ) -> None:
        self.seed, self.position, self.rank, self.ranks = seed, Position(), 0, 1
        self.is_own = order is not None  # by the user: it may depend on more than seed and epoch
        self._size, self._batch_size, self._drop_last = size, batch_size, drop_last
        self._shuffle, self._order = shuffle, order or self._plain
        self._known: tuple[EpochKey, Indices] = (-1, range(0))
        # For iterations that begin from here on: a loader may begin several, and use the last.
        self.requested: tuple[EpochKey, Indices, EpochSteps] | None = None

    def __iter__(self) -> Iterator[SampleKey]:
        epoch = self.position.epoch  # unless steps were requested, by the time that an iteration begins
        return self._keys(*self.requested or (epoch, self.of(epoch), self.steps(self.of(epoch))))

    def _keys(self, key: EpochKey, indices: Indices, steps: EpochSteps) -> Iterator[SampleKey]:
        for places in steps:
            part = indices[places.start : places.stop]
            chosen = part if isinstance(part, range) else part.tolist()
            # In the user's order a sample may come again, and then it is not twice the same.
            yield SampleKey(key, chosen, places if self.is_own else chosen)

    def __len__(self) -> int:
        return len(self.steps(self.of(self.position.epoch)))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of the epoch; stay at the position if it is in that epoch already."""
        if epoch != self.position.epoch:
            self.position = Position(epoch)

    def steps(self, indices: Indices, start: int = 0) -> EpochSteps:
        """Return this rank's steps of an epoch with these indices, from a place in its row on."""
        count, drop_last = len(indices), self._drop_last
        return EpochSteps(count, self._batch_size, start, rank=self.rank, ranks=self.ranks, drop_last=drop_last)

    def draw(self, epoch: EpochKey) -> Indices:
        """Return the indices of an epoch as the order gives them now: four bytes each, eight above two billion samples.

        Raise TypeError if the order gives something other than integers, such as a mask.
        """
        indices = self._order(torch.Generator().manual_seed(seed_from(self.seed, "order", epoch)))
        if isinstance(indices, range) and not self.is_own:
            return indices
        if not isinstance(indices, torch.Tensor):
            indices = torch.from_numpy(np.asarray(array("q", indices)))
        if indices.is_floating_point() or indices.dtype == torch.bool:
            raise TypeError(
                f"order gave a tensor of {indices.dtype}, allowed: whole numbers, such as mask.nonzero()[:, 0]"
            )
        is_short = not len(indices) or (indices.min() >= SHORT.min and indices.max() <= SHORT.max)
        return indices.to("cpu", torch.int32 if is_short else torch.int64, copy=True)

    def _plain(self, generator: torch.Generator) -> torch.Tensor | range:
        return torch.randperm(self._size, generator=generator) if self._shuffle else range(self._size)

    def of(self, epoch: EpochKey) -> Indices:
        """Return the indices of an epoch as they were drawn first."""
        if self._known[0] != epoch:
            self._known = (epoch, self.draw(epoch))
        return self._known[1]

    def state(self, epoch: EpochKey) -> Indices | None:
        """Return the indices that the user's order gave for the epoch; None where they are a function of the seed."""
        return self._known[1] if self.is_own and self._known[0] == epoch else None

    def restore(self, epoch: EpochKey, state: Indices | None) -> None:
        """Continue with what `state` returned, whatever the user's order would give now; with None it draws again."""
        if self.is_own:  # a copy, because a state may lie in a file
            self._known = (-1, range(0)) if state is None else (epoch, torch.as_tensor(state).clone())
