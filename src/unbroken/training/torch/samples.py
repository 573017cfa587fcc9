"""Make what is drawn for a sample a function of seed, epoch and index, in this process or in any worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, StackDataset, Subset, TensorDataset

from unbroken.training.torch import random_state
from unbroken.training.torch.random_state import GLOBAL, kept, own_generators
from unbroken.training.torch.samplers import EpochKey, SampleKey, seed_from
from unbroken.training.torch.state import RandomGenerator

DRAW_NOTHING = (TensorDataset, range)


class Batches(Dataset[Any]):
    """Give whole batches of a data set; each sample draws from generators that are seeded for it alone.

    So a batch is the same wherever it is made, and making it leaves no trace in this process's generators.
    """

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[Any], Any], seed: int, *, has_batches: bool = False
    ) -> None:
        self.dataset, self._collate, self._seed = dataset, collate, seed
        self._has_batches = has_batches  # each sample is one already
        self._own: list[RandomGenerator] = []
        self._epoch: EpochKey | None = None  # in which generators of its own were looked for

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        if self._epoch == key.epoch:
            return self._drawn(key)
        self._find_own()
        batch = self._drawn(key)
        if self._find_own():  # made when the first sample was asked for
            batch = self._drawn(key)
        self._epoch = key.epoch
        return batch

    def _find_own(self) -> bool:
        """Look for generators of the data set; return True if there are others than before."""
        before, self._own = [*map(id, self._own)], own_generators(self.dataset, self._collate)
        return before != [*map(id, self._own)]

    def _drawn(self, key: SampleKey) -> Any:
        with kept([*GLOBAL, *self._own]):
            samples = self._samples(key)
            self._reseed("batch", key.epoch, *key.numbers[:1])
            return self._collate(samples[0] if self._has_batches else samples)

    def _samples(self, key: SampleKey) -> list[Any]:
        """Return the samples of a batch, all at once with one seed if the data set can do so."""
        fetch = _fetch_of(self.dataset)
        if fetch is not None:
            self._reseed("fetch", key.epoch, *key.numbers[:1])
            return fetch([*key.indices])
        samples = []
        for index, number in zip(key.indices, key.numbers, strict=True):
            self._reseed(key.epoch, number)
            samples.append(self.dataset[index])
        return samples

    def _reseed(self, *what: EpochKey) -> None:
        seed = seed_from(self._seed, *what)
        random_state.seed(GLOBAL, repeat(seed))
        random_state.seed(self._own, (seed_from(seed, "own", number) for number in count()))


def _fetch_of(dataset: Dataset[Any]) -> Callable[[list[int]], list[Any]] | None:
    """Return a data set's `__getitems__`; None if it only asks for one sample after the other, as torch's own do."""
    inner: Any = dataset
    while isinstance(inner, Subset):
        inner = inner.dataset
    if type(inner) in DRAW_NOTHING:  # to seed them for each sample would take longer than to read them
        return lambda indices: [dataset[index] for index in indices]
    is_stack = isinstance(inner, StackDataset)
    parts = [*inner.datasets.values()] if is_stack and isinstance(inner.datasets, dict) else is_stack and inner.datasets
    is_fetching = any(map(_fetch_of, parts)) if parts else hasattr(inner, "__getitems__")
    return dataset.__getitems__ if is_fetching else None  # type: ignore[attr-defined]


class SeededSamples(Batches):
    """Stand for a data set in a loader that is not ours: it gives keys, of which `collate` makes the batches.

    In all else it is the data set.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int, sampler: Any) -> None:
        super().__init__(dataset, collate, seed)
        self._sampler = sampler
        self.epoch = torch.zeros((), dtype=torch.int64)
        self.epoch.share_memory_()  # type: ignore[no-untyped-call]  # which workers that stay see too

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        if all(isinstance(index, int) for index in indices):
            return SampleKey(int(self.epoch), indices, indices)
        return [self.dataset[index] for index in indices]

    def begin(self, epoch: int) -> None:
        """Go to an epoch; a sampler that draws from a generator gets one for the epoch, the same on all ranks."""
        self.epoch.fill_(epoch)
        if hasattr(self._sampler, "generator") and not hasattr(self._sampler, "initial_seed"):
            self._sampler.generator = torch.Generator().manual_seed(seed_from(self._seed, "sampler", epoch))

    def collate(self, found: Any) -> Any:
        """Return the batch of a key."""
        return super().__getitem__(found) if isinstance(found, SampleKey) else self._collate(found)


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
