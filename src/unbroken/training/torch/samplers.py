"""Samplers whose order is a function of seed and epoch, for a loop of your own and for `Training.loader`.

What is done of an epoch is said by `advance`, after a batch was trained: what worker processes have read ahead does not
count.  A state is three numbers, and the same for all ranks.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed
from torch.utils.data import Sampler

from unbroken.training.core.batch_order import Batch, BatchRow, EpochSteps, Share, grouped

SHORT = np.iinfo(np.int32)
# An order draws the indices of one epoch from a generator that is seeded for that epoch.
Order = Callable[[torch.Generator], Sequence[int] | torch.Tensor]
Indices: TypeAlias = "array[int] | range"
Tail = Literal["repeat", "drop", "uneven"]
Item = TypeVar("Item", covariant=True)


def seed_from(*parts: int | str) -> int:
    """63 bits that differ for each sequence of parts and look random."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def drawn(order: Order, seed: int, epoch: int) -> Indices:
    """The indices of one epoch, four bytes each; eight where there are more than two thousand million samples.

    TypeError if the order gives other than whole numbers, such as a mask.
    """
    indices = order(torch.Generator().manual_seed(seed_from(seed, "order", epoch)))
    if isinstance(indices, torch.Tensor):
        if indices.is_floating_point() or indices.dtype == torch.bool:
            raise TypeError(
                f"order gave a tensor of {indices.dtype}, allowed: whole numbers, such as mask.nonzero()[:, 0]"
            )
        return _compact(indices.numpy())
    return indices if isinstance(indices, range) else _compact(np.asarray(array("q", indices)))


def _compact(indices: np.ndarray[Any, Any]) -> array[int]:
    """A list of them would take ten times the memory."""
    is_short = not len(indices) or (indices.min() >= SHORT.min and indices.max() <= SHORT.max)
    found = array("i" if is_short else "q")
    found.frombytes(np.ascontiguousarray(indices, dtype=SHORT.dtype if is_short else np.int64).data.cast("B"))
    return found


def numbered(indices: Indices) -> tuple[Indices, int]:
    """The indices with `stride` added for each time that one came before, and that stride; 0 if all come once."""
    numbers = np.array(indices, dtype=np.int64)
    places = np.argsort(numbers, kind="stable")
    is_first = np.ones(len(numbers), dtype=bool)
    is_first[1:] = np.diff(numbers[places]) != 0
    if is_first.all() or numbers.min() < 0:
        return indices, 0
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(numbers)), 0))
    stride = int(numbers.max()) + 1
    numbers[places] += stride * (np.arange(len(numbers)) - first)
    return _compact(numbers), stride


def order_of(size: int, shuffle: bool) -> Order:
    """All indices, once each."""

    def shuffled(generator: torch.Generator) -> torch.Tensor:
        return torch.randperm(size, generator=generator)

    return shuffled if shuffle else lambda generator: range(size)


def check_same(state: Mapping[str, Any], own: Mapping[str, object], what: str) -> None:
    """ValueError if a state was made by a sampler or data set that differs from this one."""
    for name, value in own.items():
        if state[name] != value:
            raise ValueError(f"the state was made with {name} {state[name]}, and this {what} has {value}")


def own_share(rank: int | None = None, ranks: int | None = None) -> Share:
    """This rank among the ranks; what is not given is asked of torch.distributed."""
    if rank is not None and ranks is not None:
        return Share(rank, ranks)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Share(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return Share()


class SamplePlan:
    """The batches of each epoch, in a row that does not depend on the number of ranks, and this rank's steps in it."""

    def __init__(
        self,
        order: Order,
        seed: int,
        batch_size: int,
        *,
        share: Share = Share(),  # noqa: B008, it is frozen
        drop_last: bool = False,
        groups: Sequence[object] | None = None,
        may_repeat: bool = False,
    ) -> None:
        self.seed, self.share = seed, share
        self.stride = 0  # where it is not 0, what stands in the batches is index + stride * (how often before)
        self._may_repeat = may_repeat
        self._order, self._batch_size = order, batch_size
        self._drop_last, self._groups = drop_last, groups
        self._known: tuple[int, Sequence[Batch]] = (-1, ())

    @property
    def ranks(self) -> int:
        return self.share.ranks

    def row(self, epoch: int) -> Sequence[Batch]:
        """All batches of the epoch."""
        if self._known[0] != epoch:
            self._known = (epoch, self._draw(epoch))
        return self._known[1]

    def steps(self, epoch: int, start: int) -> EpochSteps:
        """This rank's steps of the epoch from a place in the row on."""
        return EpochSteps(self.row(epoch), self.share, start, self._drop_last, mixed=self._groups is None)

    def _draw(self, epoch: int) -> Sequence[Batch]:
        indices = drawn(self._order, self.seed, epoch)
        groups = None if self._groups is None else [self._groups[index] for index in indices]
        if self._may_repeat:
            indices, self.stride = numbered(indices)
        if groups is None:
            return BatchRow(indices, self._batch_size, self._drop_last)
        row = grouped(indices, groups, self._batch_size, self._drop_last)
        # What was left of each group at the end would come together, one small batch after the other.
        mixer = torch.Generator().manual_seed(seed_from(self.seed, "groups", epoch))
        return [row[number] for number in torch.randperm(len(row), generator=mixer).tolist()]


class _Interruptible(Sampler[Item]):
    """A position in an epoch that moves by `advance`, and only by it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch, self.done = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of the epoch; stays where it is if it is in that epoch already."""
        if epoch != self.epoch:
            self.epoch, self.done = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """The position: the same on all ranks, so that any number of ranks can go on from it."""
        return {"seed": self.seed, "epoch": self.epoch, "done": self.done, "size": self._size()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the position; ValueError if it is one in another order."""
        check_same(state, {"seed": self.seed, "size": self._size()}, "sampler")
        self.epoch, self.done = int(state["epoch"]), int(state["done"])

    def _size(self) -> int:
        raise NotImplementedError


class InterruptibleSampler(_Interruptible[int]):
    """Indices of a data set in an order that is a function of seed and epoch; begins where `advance` has come to.

    For `DataLoader(sampler=...)` in a loop of your own; `set_epoch` at the beginning of each epoch, `advance` after
    each batch, `state_dict` into your checkpoint.
    """

    def __init__(self, data: Sized | int, *, seed: int = 0, shuffle: bool = True, order: Order | None = None) -> None:
        super().__init__(seed)
        self._count = data if isinstance(data, int) else len(data)
        self._order = order or order_of(self._count, shuffle)
        self._known: tuple[int, Indices] = (-1, range(0))

    def __iter__(self) -> Iterator[int]:
        return self._from(range(self.done, len(self._indices())))

    def __len__(self) -> int:
        return len(self._indices()) - self.done

    def advance(self, samples: int) -> None:
        """Counts samples that were trained."""
        self.done = min(self.done + samples, len(self._indices()))

    def _from(self, places: range) -> Iterator[int]:
        """What stands there, looked up as it is asked for; beyond the end it begins again at what is left."""
        indices, done = self._indices(), self.done
        left = len(indices) - done
        return (indices[done + (place - done) % left] for place in places)

    def _indices(self) -> Indices:
        if self._known[0] != self.epoch:
            self._known = (self.epoch, drawn(self._order, self.seed, self.epoch))
        return self._known[1]

    def _size(self) -> int:
        return self._count


class InterruptibleDistributedSampler(InterruptibleSampler):
    """The same for several ranks: each takes every n-th of what is left, and other ranks may go on from it.

    All ranks advance by as many samples.  What does not divide by the number of ranks is filled up with at most
    ranks - 1 samples taken twice (`tail="repeat"`), left out ("drop"), or leaves some ranks with one sample less
    ("uneven", for evaluation or `torch.distributed.algorithms.Join`).  `InterruptibleBatchSampler` needs none of it.
    """

    def __init__(
        self,
        data: Sized | int,
        *,
        rank: int | None = None,
        ranks: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        order: Order | None = None,
        tail: Tail = "repeat",
    ) -> None:
        super().__init__(data, seed=seed, shuffle=shuffle, order=order)
        self._share, self._tail = own_share(rank, ranks), tail

    def __iter__(self) -> Iterator[int]:
        first = self.done + self._share.rank
        return self._from(range(first, first + len(self) * self._share.ranks, self._share.ranks))

    def __len__(self) -> int:
        whole, rest = divmod(len(self._indices()) - self.done, self._share.ranks)
        return whole + {"drop": 0, "repeat": rest > 0, "uneven": self._share.rank < rest}[self._tail]

    def advance(self, samples: int) -> None:
        """Counts the samples that this rank has trained, and as many on each of the others."""
        super().advance(samples * self._share.ranks)


class InterruptibleBatchSampler(_Interruptible[list[int]]):
    """Batches for `DataLoader(batch_sampler=...)`, every sample exactly once an epoch on any number of ranks.

    `batch_size` is that of one rank.  With `groups`, the kind of each sample (a length, an aspect ratio), the samples
    of a batch are of one kind.  The last step may have smaller batches; with `drop_last` it is left out.
    """

    def __init__(
        self,
        data: Sized | int,
        batch_size: int,
        *,
        groups: Sequence[object] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__(seed)
        self._count = data if isinstance(data, int) else len(data)
        order = order or order_of(self._count, shuffle)
        share = own_share(rank, ranks)
        self._plan = SamplePlan(order, seed, batch_size, share=share, drop_last=drop_last, groups=groups)

    def __iter__(self) -> Iterator[list[int]]:
        return map(list, self._steps())

    def __len__(self) -> int:
        return len(self._steps())

    def advance(self, steps: int = 1) -> None:
        """Counts steps: batches that this rank has trained, and one at the same time on each of the others."""
        for _ in range(steps):
            self.done = self._steps().end_after(self.done)

    def _steps(self) -> EpochSteps:
        return self._plan.steps(self.epoch, self.done)

    def _size(self) -> int:
        return len(self._plan.row(self.epoch))
