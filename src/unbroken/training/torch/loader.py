"""Make the order and the random numbers of the data functions of (seed, epoch, index) and of nothing else.

So nothing of the data has to be saved: a restart computes the order again and begins in the middle.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, TypeVar

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    Sampler,
    StackDataset,
    Subset,
    default_collate,
    default_convert,
)

from unbroken.training.core.batch_order import EpochSteps
from unbroken.training.core.position import Position
from unbroken.training.torch import random_state
from unbroken.training.torch.random_state import GLOBAL, kept, own_generators
from unbroken.training.torch.samplers import AGAIN, EpochKey, SamplePlan, seed_from
from unbroken.training.torch.state import RandomGenerator

# How often a worker process looks for its parent where it cannot hear of its end.
PARENT_SECONDS = 1.0
_OURS = ("sampler", "batch_sampler", "generator")
Loader = TypeVar("Loader", bound=DataLoader[Any])


@dataclass(frozen=True)
class SampleKey:
    """Identify one batch that is requested from a worker process."""

    epoch: EpochKey
    numbers: tuple[int, ...]  # of `numbered`

    def samples(self) -> Iterator[tuple[int, int]]:
        """Yield each index, and how often it came before in this epoch."""
        for number in self.numbers:
            again, index = divmod(number, AGAIN) if number >= 0 else (0, number)
            yield index, again


def make_loader(
    kind: type[Loader],
    dataset: Dataset[Any],
    sampler: EpochSampler,
    options: Mapping[str, Any],
    *,
    seeded_samples: bool = True,
    collate_fn: Callable[[Any], Any] | None = None,
) -> Loader:
    """Return the DataLoader of a kind that gives the batches of a sampler; `options` are those of DataLoader."""
    if not options.get("in_order", True):
        raise TypeError(
            "loader(in_order=False): batches would come in an order that no restart can go on with; allowed: True"
        )
    if refused := [name for name in _OURS if name in options]:
        raise TypeError(f"loader() makes {', '.join(refused)} itself; for another order of the samples: order=")
    if options.get("num_workers", 0) > 0:
        options = {**options, "worker_init_fn": WorkerStart(options.get("worker_init_fn"))}
    # batch_size=None: Batches makes the batches, so that all random numbers of a batch are drawn in one place.
    # generator: without one of its own, each start of a loader draws from the global one.
    batches = Batches(dataset, collate_fn or default_collate, sampler.plan.seed if seeded_samples else None)
    generator = torch.Generator().manual_seed(sampler.plan.seed)
    return kind(batches, batch_size=None, sampler=sampler, collate_fn=_as_it_is, generator=generator, **options)


class EpochSampler(Sampler[SampleKey]):
    """Yield this rank's batches of the steps that are requested; its length is that of the position's epoch."""

    def __init__(self, position: Position, plan: SamplePlan) -> None:
        self.position, self.plan = position, plan
        self._told: tuple[EpochKey, EpochSteps] | None = None

    def __iter__(self) -> Iterator[SampleKey]:
        epoch, steps = self._told or (self.position.epoch, self.plan.steps(self.position.epoch, 0))
        return (SampleKey(epoch, batch) for batch in steps)

    def give(self, epoch: EpochKey, steps: EpochSteps) -> None:
        """Give these steps to iterations that begin from here on (a loader may begin several and use the last)."""
        self._told = epoch, steps

    def __len__(self) -> int:
        return len(self.plan.steps(self.position.epoch, 0))


class PlannedLoader(DataLoader[Any]):
    """Load the data of `Training.loader`.  A script may iterate it itself, by `begin_pass`."""

    sampler: EpochSampler
    begin_pass: Callable[[], Iterator[Any]]

    def __iter__(self) -> Any:
        return self.begin_pass()

    def begin(self, epoch: EpochKey, steps: EpochSteps, place: int) -> Iterator[Any]:
        """Begin to give these steps, which begin at a place in their epoch."""
        plan = self.sampler.plan
        # What worker processes draw without a seed of ours is never what they drew before, or on another rank.
        own = () if self.dataset.is_seeded else (plan.share.rank, place)  # type: ignore[attr-defined]
        self.generator.manual_seed(seed_from(plan.seed, "workers", epoch, *own))
        self.sampler.give(epoch, steps)
        with start_of_workers(self):
            return super().__iter__()


class Batches(Dataset[Any]):
    """Give whole batches of a dataset.  With a seed, each sample draws from generators seeded for it alone.

    Then a batch is the same wherever it is made (in this process or in any worker), and making it leaves no trace in
    this process's generators.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int | None) -> None:
        self.dataset = dataset
        self._collate, self._seed = collate, seed
        self._own: list[RandomGenerator] = []
        self._epoch: EpochKey | None = None  # in which generators of its own were looked for

    @property
    def is_seeded(self) -> bool:
        return self._seed is not None

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, key: SampleKey) -> Any:
        if self._seed is None:
            return self._collate(self._samples(key, None))
        if self._epoch == key.epoch:
            return self._drawn(key, self._seed)
        self._find_own()
        batch = self._drawn(key, self._seed)
        if self._find_own():  # made when the first sample was asked for
            batch = self._drawn(key, self._seed)
        self._epoch = key.epoch
        return batch

    def _find_own(self) -> bool:
        """Look for generators of the data set; return True if there are others than before."""
        before, self._own = [*map(id, self._own)], own_generators(self.dataset, self._collate)
        return before != [*map(id, self._own)]

    def _drawn(self, key: SampleKey, seed: int) -> Any:
        with kept([*GLOBAL, *self._own]):
            samples = self._samples(key, seed)
            self._reseed(seed_from(seed, "batch", key.epoch, *key.numbers[:1]))
            return self._collate(samples)

    def _samples(self, key: SampleKey, seed: int | None) -> list[Any]:
        """Return the samples of a batch, all at once with one seed if the data set can do so."""
        fetch = _fetch_of(self.dataset)
        if fetch is not None:
            if seed is not None:
                self._reseed(seed_from(seed, "fetch", key.epoch, *key.numbers[:1]))
            return fetch([index for index, _ in key.samples()])
        samples = []
        for index, again in key.samples():
            if seed is not None:  # a sample that comes twice is not twice the same
                self._reseed(seed_from(seed, key.epoch, index, *([again] if again else [])))
            samples.append(self.dataset[index])
        return samples

    def _reseed(self, seed: int) -> None:
        random_state.seed(GLOBAL, repeat(seed))
        random_state.seed(self._own, (seed_from(seed, "own", number) for number in count()))


def _fetch_of(dataset: Dataset[Any]) -> Callable[[list[int]], list[Any]] | None:
    """Return a data set's `__getitems__`; None if it only asks for one sample after the other, as torch's own do."""
    inner: Any = dataset
    while isinstance(inner, Subset):
        inner = inner.dataset
    is_stack = isinstance(inner, StackDataset)
    parts = [*inner.datasets.values()] if is_stack and isinstance(inner.datasets, dict) else is_stack and inner.datasets
    is_fetching = any(map(_fetch_of, parts)) if parts else hasattr(inner, "__getitems__")
    return dataset.__getitems__ if is_fetching else None  # type: ignore[attr-defined]


class WorkerStart:
    """Prepare a worker process for signals that reach all processes of a job, then call the user's function.

    A worker that dies of one ends the training before it could save.  TERM from the parent ends the worker; from
    any other process it is meant for the parent, which gets it by itself.
    """

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker_id: int) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_leave_when_told, args=(os.getppid(),), daemon=True).start()
        if self._then:
            self._then(worker_id)


@contextmanager
def start_of_workers(loader: DataLoader[Any]) -> Iterator[None]:
    """Protect worker processes that start inside from a TERM until `WorkerStart` has prepared them."""
    held = {signal.SIGTERM} if isinstance(loader.worker_init_fn, WorkerStart) else set()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)  # which they inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_workers(iterator: object) -> None:
    """End the worker processes of a DataLoader's iterator now; without this, an exit may wait for them forever."""
    # Not public, but what the iterator's own __del__ calls, which comes too late while a traceback holds the iterator.
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down:
        shut_down()


def _leave_when_told(parent: int) -> None:
    if not hasattr(signal, "sigwaitinfo"):  # the sender of TERM is unknown: it may be meant for all of the job
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(0)
    while True:
        if signal.sigwaitinfo({signal.SIGTERM}).si_pid == parent:
            os._exit(0)


def _as_it_is(batch: Any) -> Any:
    return batch


def alone(convert: Callable[[Any], Any] | None) -> Callable[[list[Any]], Any]:
    """Return the `collate_fn` of batch_size=None, where each sample is a batch already, as in DataLoader."""
    return functools.partial(_converted, convert or default_convert)


def _converted(convert: Callable[[Any], Any], samples: list[Any]) -> Any:
    return convert(samples[0])
