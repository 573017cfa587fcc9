"""Make a StatefulDataLoader of torchdata a part of a training, whose state then holds the position in its data."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeGuard

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from unbroken.errors import CheckpointError
from unbroken.training.core.position import Position
from unbroken.training.torch import random_state
from unbroken.training.torch.loader import WorkerStart, end_workers, start_of_workers
from unbroken.training.torch.put_back import are_same
from unbroken.training.torch.random_state import reachable
from unbroken.training.torch.samplers import NO_END, EpochSteps, seed_from
from unbroken.training.torch.samples import SeededSamples, seed_samples
from unbroken.training.torch.state import Stateful
from unbroken.training.torch.streams import ResumableStream

STREAM = "StatefulDataLoader(ResumableStream(dataset), ...)"
# What the state_dict of datasets does not hold, or (5.2, with worker processes) cannot load.
UNRESUMABLE = {
    "BufferShuffledExamplesIterable": "shuffle",
    "VerticallyConcatenatedMultiSourcesExamplesIterable": "concatenate_datasets",
}


class StatefulLoader:
    """Wrap a StatefulDataLoader, on `ranks` ranks; it gives passes by their numbers, such as epochs.

    It is not queried before its first pass begins, because a query starts its worker processes.  A pass begins with
    generators that are seeded for it alone, so that it leaves no trace in those of the training.
    """

    def __init__(self, name: str, loader: DataLoader[Any], seed: int, ranks: int) -> None:
        self._name, self.loader, self._ranks = name, loader, ranks
        self._seed = seed_from(seed, "loader", name)
        self._seeded: SeededSamples | None = None
        self._number, self._is_begun = 0, False  # of the pass
        self._saved: Mapping[str, Any] = {}  # where the next one resumes
        self._unread: dict[str, tuple[object, Any]] = {}  # of workers that gave nothing since: state now, state then
        self._endless: Iterator[Any] | None = None
        for problem in _problems(loader):
            raise TypeError(f"{self._where}: {problem}")
        if isinstance(loader.dataset, ResumableStream):
            loader.dataset.seed = self._seed
        elif not isinstance(loader.dataset, Stateful):
            self._seeded = seed_samples(loader, self._seed)
        if loader.num_workers:
            if _is_of_datasets(loader.dataset):
                loader.collate_fn = check = DrawCheck(loader, self._where)
                loader.worker_init_fn = check.begin
            loader.worker_init_fn = WorkerStart(loader.worker_init_fn)

    @property
    def _where(self) -> str:
        return f"Training(state={{{self._name!r}: ...}})"

    def check_used(self) -> None:
        """Raise TypeError if the script iterates it itself: then nothing says where a restart has to continue."""
        if not self._is_begun and getattr(self.loader, "_iterator", None) is not None:
            raise TypeError(
                f"{self._where}: the StatefulDataLoader is iterated without batches(), so a restart would begin it "
                "again; type training.endless(loader) in its place, in a loop of your own loaders.loader(dataset)"
            )

    def state_dict(self) -> dict[str, Any]:
        state = self._state() if self._is_begun else self._saved
        return {"ranks": self._ranks, "workers": self.loader.num_workers, "pass": self._number, "loader": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from there in the next pass that begins; raise CheckpointError if this loader cannot."""
        for name, here in (("ranks", self._ranks), ("workers", self.loader.num_workers)):
            if state[name] != here:
                raise CheckpointError(
                    f"the state of the StatefulDataLoader {self._name!r} was made with {state[name]} {name}, now "
                    f"{here}; allowed: {state[name]}, or a loader made by Training.loader, which takes any number"
                )
        self._is_begun, self._number, self._saved = False, state["pass"], state["loader"]

    def enter_epoch(self, at: Position) -> EpochSteps:
        """Return the steps that are left; raise TypeError if the batches are drawn elsewhere."""
        if self._endless is not None:
            raise TypeError("batches(): the StatefulDataLoader is in endless() already; type one loader for each")
        is_stream, size = isinstance(self.loader.dataset, IterableDataset), self.loader.batch_size or 1
        batches = NO_END if is_stream else len(self.loader) * self._ranks
        return EpochSteps(batches * size, size, at.batch, ranks=self._ranks)

    def begin_epoch(self, number: int) -> Iterator[Any]:
        """Return the batches of a pass that are still to come."""
        saved, self._saved = self._saved, {}
        with random_state.kept(), start_of_workers(self.loader):
            if saved and number != self._number:
                self._end_pass(saved)
                saved = {}
            elif saved:
                self._load(saved)
            self._number, self._is_begun = number, True
            iterator = self._iterate()
            state: Mapping[str, Any] = self.loader.state_dict()  # type: ignore[attr-defined]
        if isinstance(self.loader.dataset, IterableDataset) and not _has_stream(state):
            raise TypeError(
                f"{self._where}: the stream ({type(self.loader.dataset).__name__}) has no state, so a restart would "
                f"give other samples; allowed: a data set with state_dict and load_state_dict; type {STREAM}"
            )
        then = _worker_states(saved)
        self._unread = {name: (copy.deepcopy(now), then[name]) for name, now in _worker_states(state).items() if then}
        return iterator

    def endless(self, check: Callable[[], None]) -> Iterator[Any]:
        """Return the iterator over pass after pass, of which there is one; `check` is called before each batch."""
        if self._endless is None:
            self._endless = self._passes(check)
        return self._endless

    def _passes(self, check: Callable[[], None]) -> Iterator[Any]:
        number, is_new = self._number, not self._saved
        while True:
            is_empty = True
            check()
            for batch in self.begin_epoch(number):
                is_empty = False
                yield batch
                check()
            if is_empty and is_new:
                raise ValueError(f"{self._where}: endless() got no batch in a whole pass; allowed: one or more")
            number, is_new = number + 1, True

    def _iterate(self) -> Iterator[Any]:
        """Begin the pass that is the loader's now, by its number."""
        if self._seeded:
            self._seeded.epoch.fill_(self._number)
        parts: list[Any] = [self.loader.dataset, self.loader.sampler, self.loader.batch_sampler]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(self._number)
        random_state.seed(random_state.GLOBAL, repeat(seed_from(self._seed, self._number)))
        return iter(self.loader)

    def _load(self, saved: Mapping[str, Any]) -> None:
        # One that says that it is finished makes an iterator and a second one at once, each with a draw of its own.
        self.loader.load_state_dict({**saved, "_iterator_finished": False})  # type: ignore[attr-defined]

    def _end_pass(self, saved: Mapping[str, Any]) -> None:
        """Bring the loader to the end of the pass that was saved, from where the next one begins."""
        if isinstance(self.loader.dataset, ResumableStream):
            return  # its passes do not depend on each other, and it would read this one again
        self._load(saved)
        ended = self._iterate()
        if not isinstance(self.loader.dataset, IterableDataset):
            next(ended, None)  # a sampler that is a generator function takes its state at its first item
        if not self.loader.persistent_workers:
            end_workers(ended)

    def _state(self) -> dict[str, Any]:
        """Return the loader's state, in which a worker that gave nothing since the restart has that of before."""
        state: dict[str, Any] = self.loader.state_dict()  # type: ignore[attr-defined]
        workers = _worker_states(state)
        unread = {name: then for name, (now, then) in self._unread.items() if are_same(workers[name], now)}
        if not unread:
            return state
        return {**state, "_snapshot": {**state["_snapshot"], "_worker_snapshots": {**workers, **unread}}}


class DrawCheck:
    """Collate batches in a worker; raise TypeError if something draws from its generators, which are in no state."""

    def __init__(self, loader: DataLoader[Any], where: str) -> None:
        self._begin, self._collate, self._where = loader.worker_init_fn, loader.collate_fn, where
        self._before: object = None

    def begin(self, worker_id: int) -> None:
        """Begin a worker process."""
        if self._begin:
            self._begin(worker_id)
        self._before = _drawn()

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        if self._before != _drawn():
            raise TypeError(
                f"{self._where}: the stream or the collate_fn draws random numbers in a worker process, and a restart "
                f"would draw others; allowed: num_workers=0; type {STREAM}"
            )
        return batch


def _drawn() -> object:
    """Return what changes when something is drawn from a global generator."""
    numbers: Any = np.random.get_state()
    return random.getstate(), numbers[1].tobytes(), numbers[2], torch.get_rng_state().numpy().tobytes()


def not_resumable(loader: object) -> TypeError:
    """Return the error for a loader that cannot begin in the middle of an epoch."""
    if is_stateful_loader(loader):
        return TypeError(
            "batches(): the StatefulDataLoader is no part of the training; type Training(state={'loader': loader}, ...)"
        )
    return TypeError(
        f"batches() was given a {type(loader).__name__}, which cannot begin in the middle of an epoch; allowed: a "
        "loader of training.loader(dataset, ...), or a StatefulDataLoader of torchdata that is a part of the training; "
        f"type for a stream: loader = {STREAM} and Training(state={{'loader': loader}}, ...)"
    )


def is_stateful_loader(part: object) -> TypeGuard[DataLoader[Any]]:
    """Return True for a DataLoader with a state, such as that of torchdata, which is not imported for it."""
    return isinstance(part, DataLoader) and isinstance(part, Stateful)


def _worker_states(state: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = state.get("_snapshot", {}).get("_worker_snapshots", {})
    return found


def _has_stream(state: object) -> bool:
    """Return True if a loader's state has one of its data set in it."""
    if not isinstance(state, Mapping):
        return False
    own = (state.get(name) for name in ("dataset_state", "dataset_iter_state"))
    return any(each is not None for each in own) or any(map(_has_stream, state.values()))


def _problems(loader: DataLoader[Any]) -> Iterator[str]:
    """Yield why torchdata would silently resume with other samples."""
    data, is_stream = loader.dataset, isinstance(loader.dataset, IterableDataset)
    if not any(kind.__module__.startswith("torchdata.") for kind in type(loader).__mro__):
        yield f"a {type(loader).__name__} is no StatefulDataLoader of torchdata; allowed: that one; type {STREAM}"
    if not getattr(loader, "in_order", True):
        yield "the StatefulDataLoader has in_order=False; allowed: True"
    if loader.generator is not None:
        yield (
            "the StatefulDataLoader has a generator of its own, which moves on when an epoch begins; allowed: none "
            "(unbroken seeds each epoch)"
        )
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)):
        yield (
            f"torchdata cannot go on with the order of a {type(sampler).__name__} of torch; allowed: shuffle=True, a "
            "sampler with state_dict, or Training.loader(order=...)"
        )
    if loader.batch_size is None and loader.batch_sampler is None and not is_stream:
        yield "the StatefulDataLoader has batch_size=None; allowed: a number, or training.loader(batch_size=None)"
    hears = isinstance(data, ResumableStream) or _is_of_datasets(data) or not hasattr(data, "set_epoch")
    if loader.persistent_workers and not hears:
        yield "with persistent_workers=True no worker hears of the data set's set_epoch; allowed: False"
    for part in filter(_is_of_datasets, reachable(data) if is_stream else ()):
        generator, what = getattr(part, "generator", None), UNRESUMABLE.get(type(part).__name__)
        if isinstance(generator, np.random.Generator) and _is_unseeded(generator):
            yield "the data set is shuffled or mixed without a seed, so each start has another order; type seed=0 there"
        if what and not isinstance(data, ResumableStream):
            yield f"datasets cannot resume what {what} gives, whatever its state_dict says; type {STREAM}"


def _is_of_datasets(part: object) -> bool:
    return type(part).__module__.startswith("datasets.")


def _is_unseeded(generator: np.random.Generator) -> bool:
    entropy = getattr(generator.bit_generator.seed_seq, "entropy", 0)
    return isinstance(entropy, int) and entropy.bit_length() > 64
