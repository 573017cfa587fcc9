"""Load data for other frameworks' loops: the order is a function of seed and epoch, the start is any batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from unbroken.training.core.batch_order import Share
from unbroken.training.core.position import Position
from unbroken.training.torch.loader import Batches, EpochSampler, PlannedLoader, SampleKey, make_loader
from unbroken.training.torch.samplers import EpochOrder, Order, SamplePlan, seed_from


class PlaceSampler(EpochSampler, DistributedSampler[SampleKey]):
    """Hold the place where the next iteration begins, which counts the batches of one rank.

    It is called a DistributedSampler, because Lightning puts one of its own in the place of any other on several ranks.
    """

    def __init__(self, plan: SamplePlan) -> None:
        super().__init__(Position(), plan)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of the epoch; stay at the position if it is in that epoch already."""
        if epoch != self.position.epoch:
            self.position.epoch, self.position.batch = epoch, 0


class ResumableLoader(PlannedLoader):
    """Load data with a place as state: seed, epoch and batch.  The length is that of a whole epoch."""

    sampler: PlaceSampler

    def __iter__(self) -> Any:
        plan, at = self.sampler.plan, self.sampler.position
        place = at.batch * plan.share.ranks
        return self.begin(at.epoch, plan.steps(at.epoch, place), place)

    def share_with(self, share: Share) -> None:
        """Restrict batches and length to those of one of several ranks."""
        self.sampler.plan.share = share

    def go_to(self, epoch: int, batch: int) -> None:
        """Let the next iteration begin there; one that has begun continues as it was."""
        self.sampler.position.epoch, self.sampler.position.batch = epoch, batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position that was set, and the order of a begun epoch if it is no function of seed and epoch."""
        place, plan = self.sampler.position, self.sampler.plan
        state = {"seed": plan.seed, "epoch": place.epoch, "batch": place.batch, "batches": len(self)}
        order = plan.order.state(place.epoch) if place.batch else None
        return state if order is None else {**state, "order": order}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to the saved position; raise ValueError if it is one in other data."""
        for name, own in (("seed", self.sampler.plan.seed), ("batches", len(self))):
            if state_dict[name] != own:
                raise ValueError(
                    f"the checkpoint was made with {name} = {state_dict[name]}, and the loader has {own}; "
                    "take the same data, batch size and seed as before"
                )
        self.go_to(state_dict["epoch"], state_dict["batch"])
        self.sampler.plan.order.restore(state_dict["epoch"], state_dict.get("order"))


def resumable_loader(
    dataset: Dataset[Any],
    batch_size: int,
    seed: int,
    *,
    shuffle: bool = True,
    order: Order | None = None,
    drop_last: bool = False,
    seeded_samples: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> ResumableLoader:
    """Return a loader like that of `Training.loader`, of one process until `share_with` says otherwise."""
    drawn = EpochOrder(len(dataset), seed, shuffle=shuffle, order=order)  # type: ignore[arg-type]
    sampler = PlaceSampler(SamplePlan(drawn, batch_size, drop_last=drop_last))
    return make_loader(ResumableLoader, dataset, sampler, options, seeded_samples=seeded_samples, collate_fn=collate_fn)


class SeededSamples(Dataset[Any]):
    """Stand in a framework's own loader for a data set, so that what is drawn is a function of seed, epoch and index.

    It gives keys in the place of samples, of which `collate` makes the batch; in all else it is the data set.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int, sampler: Any) -> None:
        self.dataset, self._seed, self._sampler = dataset, seed, sampler
        self._collate, self._batches = collate, Batches(dataset, collate, seed)
        self.epoch = torch.zeros((), dtype=torch.int64)
        self.epoch.share_memory_()  # type: ignore[no-untyped-call]  # which workers that stay see too

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        if all(isinstance(index, int) for index in indices):
            return SampleKey(int(self.epoch), tuple(indices))
        return [self.dataset[index] for index in indices]

    def begin(self, epoch: int) -> None:
        """Go to an epoch; a sampler that draws from a generator gets one for the epoch, the same on all ranks."""
        self.epoch.fill_(epoch)
        if hasattr(self._sampler, "generator") and not hasattr(self._sampler, "initial_seed"):
            self._sampler.generator = torch.Generator().manual_seed(seed_from(self._seed, "sampler", epoch))

    def collate(self, found: Any) -> Any:
        """Return the batch of a key."""
        return self._batches[found] if isinstance(found, SampleKey) else self._collate(found)


def seed_samples(loader: Any, seed: int) -> SeededSamples | None:
    """Let a loader that Accelerate has prepared draw by `SeededSamples`; return that.

    Return None, and change nothing, for a stream: its samples have no index.
    """
    inner = getattr(loader, "base_dataloader", loader)
    if not isinstance(inner, DataLoader) or inner.batch_sampler is None or isinstance(inner.dataset, IterableDataset):
        return None
    if isinstance(inner.dataset, SeededSamples):
        return inner.dataset
    batches = inner.batch_sampler
    sampler = getattr(getattr(batches, "batch_sampler", batches), "sampler", None)  # of several ranks, in a shard
    seeded = SeededSamples(inner.dataset, inner.collate_fn, seed, sampler)
    inner.collate_fn = seeded.collate
    vars(inner)["dataset"] = seeded  # torch forbids to set it, so that its samplers stay right: they do
    return seeded
