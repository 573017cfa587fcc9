"""Hold a data set in the memory of the devices, each rank its share of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

from unbroken.training.core.sharding import Epoch, shares
from unbroken.training.torch.samplers import check_same, drawn, order_of, own_share, seed_from


class DistributedShardedDataset:
    """Yield batches of this rank's share, which lies on `device` from the first batch on; no workers, no copies.

    `source` is one tensor or several with the same first dimension (they may be memory maps), or a data set whose
    samples `default_collate` can put together.  Shares are disjoint; with `overlap` each holds that fraction of the
    next rank's as well.  Shares are a function of the seed, and each epoch's order in them of seed, epoch and rank.

    Give it to `Training(data=...)` and `training.batches(data)`.  In a loop of your own: `set_epoch`, `advance` after
    each step, `state_dict` into your checkpoint, the same on all ranks.  Another number of ranks may resume from
    it: the rest of the epoch is dealt to them, and every sample comes as often as it would have.
    """

    def __init__(
        self,
        *source: torch.Tensor | Dataset[Any],
        batch_size: int,
        overlap: float = 0.0,
        device: torch.device | str | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self._source, self._device, self._drop_last = source, device, drop_last
        self.batch_size, self.overlap, self.seed, self.shuffle = batch_size, overlap, seed, shuffle
        self.size = _size_of(source)
        self.share = own_share(rank, ranks)
        if not 0 <= overlap <= 1:
            raise ValueError(f"DistributedShardedDataset(overlap={overlap!r}), allowed: from 0 to 1")
        if self.size < self.share.ranks:
            raise ValueError(f"DistributedShardedDataset: {self.size} samples for {self.share.ranks} ranks")
        self.epoch, self.done = 0, 0
        self._past: list[list[int]] = []  # of this epoch: other numbers of ranks, and the steps that they did
        self._held: tuple[list[int], list[torch.Tensor]] = ([], [])
        self._planned: tuple[object, tuple[Epoch, int]] | None = None

    @property
    def indices(self) -> list[int]:
        """Return the samples of this rank's share, by their place in the source."""
        return self._shares(self.share.ranks)[self.share.rank]

    @property
    def samples(self) -> int:
        """Return how many samples all ranks train in this epoch; more than there are if shares overlap."""
        return self._plan()[1]

    def samples_after(self, steps: int) -> int:
        """Return how many of the epoch's samples are trained once this position is `steps` steps further."""
        now, samples = self._plan()
        return samples - now.samples + now.done(self.done + steps)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of the epoch; stay at the position if it is in that epoch already."""
        if epoch != self.epoch:
            self.epoch, self.done, self._past = epoch, 0, []

    def advance(self, steps: int = 1) -> None:
        """Count steps that all ranks have trained."""
        self.done += steps

    def __len__(self) -> int:
        return max(0, self._plan()[0].steps - self.done)

    def __iter__(self) -> Iterator[Any]:
        epoch = self._plan()[0]
        tensors, places = self._on_device(list(epoch.orders[self.share.rank]))
        for step in range(self.done, epoch.steps):
            start, end = epoch.cut(self.share.rank, step)
            batch = [tensor[places[start:end]] for tensor in tensors]
            yield batch if len(batch) > 1 else batch[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the position: a few numbers, the same on all ranks."""
        return {**self._fixed(), "ranks": self.share.ranks, "epoch": self.epoch, "done": self.done, "past": self._past}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the saved position; raise ValueError if it is one in another data set."""
        check_same(state, self._fixed(), "data set")
        self.epoch, self.done = int(state["epoch"]), int(state["done"])
        self._past = [list(each) for each in state["past"]]
        if state["ranks"] != self.share.ranks and self.done:
            self._past, self.done = [*self._past, [int(state["ranks"]), self.done]], 0

    def _fixed(self) -> dict[str, Any]:
        names = ("seed", "size", "batch_size", "overlap", "shuffle")
        return {name: getattr(self, name) for name in names}

    def _shares(self, ranks: int) -> list[list[int]]:
        order = drawn(order_of(self.size, self.shuffle), seed_from(self.seed, "shares"), 0)
        return shares(order, ranks, self.overlap)

    def _plan(self) -> tuple[Epoch, int]:
        """Return the rest of the epoch, for these ranks, and how many samples it had at its beginning."""
        key = (self.epoch, [*map(tuple, self._past)])
        if self._planned is None or self._planned[0] != key:
            self._planned = (key, self._make_plan())
        return self._planned[1]

    def _make_plan(self) -> tuple[Epoch, int]:
        ranks = [count for count, _ in self._past] + [self.share.ranks]
        orders = [self._shuffled(share, rank) for rank, share in enumerate(self._shares(ranks[0]))]
        first = now = Epoch(orders, self.batch_size, self._drop_last)
        for (_, done), following in zip(self._past, ranks[1:], strict=True):
            rest = now.rest(done)
            now = Epoch([rest[rank::following] for rank in range(following)], self.batch_size, self._drop_last)
        return now, first.samples

    def _shuffled(self, share: Sequence[int], rank: int) -> list[int]:
        generator = seed_from(self.seed, "shard", rank)
        return [share[place] for place in drawn(order_of(len(share), self.shuffle), generator, self.epoch)]

    def _on_device(self, order: list[int]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the tensors that hold the samples, and the places in them in the order of the epoch."""
        # In an epoch that other ranks began, what was dealt; else the share, which stays from epoch to epoch.
        wanted = (order or self.indices[:1]) if self._past else self.indices
        if self._held[0] != wanted:
            self._held = ([], [])  # not both at once
            self._held = (wanted, _taken(self._source, wanted, self._device))
        place_of = {index: place for place, index in enumerate(wanted)}
        places = torch.tensor([place_of[index] for index in order or wanted])
        return self._held[1], places.to(self._held[1][0].device)


def _size_of(source: Sequence[Any]) -> int:
    sizes = {len(each) for each in source}
    if len(sizes) != 1:
        raise ValueError(f"DistributedShardedDataset: sources of {sorted(sizes)} samples, allowed: as many in each")
    return sizes.pop()


def _taken(source: Sequence[Any], indices: list[int], device: torch.device | str | None) -> list[torch.Tensor]:
    if all(isinstance(each, torch.Tensor) for each in source):
        return [each[torch.tensor(indices)].to(device) for each in source]
    held = [default_collate([each[index] for index in indices]) for each in source]
    flat = [item for each in held for item in (each if isinstance(each, (list, tuple)) else [each])]
    return [item.to(device) for item in flat]
