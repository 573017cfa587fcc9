"""Feed a training with batches: from a loader of `Training.loader`, or from a StatefulDataLoader of torchdata.

The first is a function of seed and epoch.  The second knows its own position: its state is part of the training's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeGuard

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from unbroken.errors import CheckpointError
from unbroken.training.core.position import Position
from unbroken.training.torch import random_state
from unbroken.training.torch.loader import (
    PlannedLoader,
    WorkerStart,
    end_workers,
    start_of_workers,
)
from unbroken.training.torch.random_state import own_generators, reachable
from unbroken.training.torch.samplers import InterruptibleBatchSampler, seed_from
from unbroken.training.torch.state import Stateful


@dataclass(frozen=True)
class Feed:
    """Give the batches of the current epoch; a step of all ranks goes `per_step` places further."""

    per_step: int
    length: int | None  # of the epoch, all ranks together; None if unknown
    begin: Callable[[], Iterator[Any]]  # the batches that are still to come, of this rank
    end_after: Callable[[int], int]  # how many batches are done after the step that begins at a place
    samples: Callable[[int, int], int]  # how many there are from one place to another
    has_more: bool = True  # False if no step of the epoch is left
    advance: Callable[[], None] = lambda: None  # a step is done


class StatefulLoader:
    """Wrap a StatefulDataLoader as a part of the training, on `ranks` ranks.

    It is not queried before its first epoch begins, because a query starts its worker processes.  An epoch
    begins with generators that are seeded for it alone, so that it leaves no trace in those of the training.
    """

    def __init__(self, name: str, loader: DataLoader[Any], seed: int, ranks: int) -> None:
        _check(name, loader)
        self.loader, self.ranks = loader, ranks
        self._name, self._seed = name, seed
        self._is_begun = False
        self._pending: dict[str, Any] = {}

    def prepare_workers(self) -> None:
        """Make the workers survive the signals that are meant for the training."""
        if self.loader.num_workers:
            self.loader.worker_init_fn = WorkerStart(self.loader.worker_init_fn)

    def check_used(self) -> None:
        """Raise TypeError if the script iterates it itself: then nothing says where a restart has to continue."""
        if not self._is_begun and getattr(self.loader, "_iterator", None) is not None:
            raise TypeError(
                f"Training(state={{{self._name!r}: ...}}): "
                "the StatefulDataLoader is iterated without batches(), so a restart would "
                "begin it again; allowed: one StatefulDataLoader, in batches(); type training.loader(dataset, ...) for "
                "a second loader"
            )

    def state_dict(self) -> dict[str, Any]:
        state = self.loader.state_dict() if self._is_begun else self._pending  # type: ignore[attr-defined]
        return {"ranks": self.ranks, "workers": self.loader.num_workers, "loader": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from there in the next epoch that begins; raise CheckpointError if this loader cannot."""
        for name, here in (("ranks", self.ranks), ("workers", self.loader.num_workers)):
            if state[name] != here:
                raise CheckpointError(
                    f"the state of the StatefulDataLoader {self._name!r} was made with {state[name]} {name}, now "
                    f"{here}; allowed: {state[name]}, or a loader made by Training.loader, which takes any number"
                )
        self._is_begun, self._pending = False, dict(state["loader"])

    def begin(self, position: Position) -> Iterator[Any]:
        """Return the batches of the epoch from the position on."""
        seed = seed_from(self._seed, "loader", position.epoch)
        with random_state.kept(), start_of_workers(self.loader):
            if self._pending:
                self._go_back(seed, is_at_end=position.batch == 0)
            self._is_begun = True
            random_state.seed(random_state.GLOBAL, repeat(seed))
            return iter(self.loader)

    def _go_back(self, seed: int, *, is_at_end: bool) -> None:
        """Bring the loader to where it was; at the end of an epoch, the next one then begins from there."""
        # One that says that it is finished makes an iterator and a second one at once, each with a draw of its own.
        state, self._pending = {**self._pending, "_iterator_finished": False}, {}
        self.loader.load_state_dict(state)  # type: ignore[attr-defined]
        if is_at_end:
            random_state.seed(random_state.GLOBAL, repeat(seed))
            ended = iter(self.loader)
            next(ended, None)  # a sampler that is a generator function takes its state at its first item
            if not self.loader.persistent_workers:
                end_workers(ended)


def is_stateful_loader(part: object) -> TypeGuard[DataLoader[Any]]:
    """Return True for the DataLoader of torchdata, which is not imported for it."""
    return isinstance(part, DataLoader) and isinstance(part, Stateful)


def feed_of(loader: DataLoader[Any], position: Position, parts: Mapping[str, object]) -> Feed:
    """Return the batches of the position's epoch; raise TypeError if the loader cannot begin in the middle of it."""
    if isinstance(loader, PlannedLoader):
        return _planned_feed(loader, position)
    for part in parts.values():
        if isinstance(part, StatefulLoader) and part.loader is loader:
            return _stateful_feed(part, position)
    if is_stateful_loader(loader):
        raise TypeError(
            "batches(): the StatefulDataLoader is no part of the training; type Training(state={'loader': loader}, ...)"
        )
    raise TypeError(
        f"batches() was given a {type(loader).__name__}, which cannot begin in the middle of an epoch; it needs a "
        "loader made by Training.loader, or a StatefulDataLoader of torchdata that is given to Training"
    )


def _planned_feed(loader: PlannedLoader, position: Position) -> Feed:
    plan, epoch, place = loader.sampler.plan, position.epoch, position.batch
    steps = plan.steps(epoch, place)
    return Feed(
        per_step=plan.share.ranks,
        length=len(plan.row(epoch)),
        begin=lambda: loader.begin(epoch, steps, place),
        end_after=steps.end_after,
        samples=steps.samples,
        has_more=len(steps) > 0,
    )


def _stateful_feed(part: StatefulLoader, position: Position) -> Feed:
    loader, ranks = part.loader, part.ranks
    return Feed(
        per_step=ranks,
        length=None if isinstance(loader.dataset, IterableDataset) else len(loader) * ranks,
        begin=lambda: part.begin(position),
        end_after=lambda place: place + ranks,
        samples=lambda start, end: (end - start) * (loader.batch_size or 1),
    )


def _check_data(name: str, data: object) -> None:
    """Raise TypeError if a data set moves on by itself and has no state that shows it."""
    if isinstance(data, Stateful):
        return
    if own := own_generators(data):
        raise TypeError(
            f"Training(state={{{name!r}: ...}}): "
            f"the data set has a random generator of its own ({type(own[0]).__name__}), which is "
            f"in no state; type RandomKept(dataset), or give the data set state_dict and load_state_dict"
        )
    parts = reachable(data) if isinstance(data, IterableDataset) else ()
    counting = (part for part in parts if isinstance(getattr(part, "epoch", None), int))
    if (part := next((part for part in counting if not hasattr(part, "set_epoch")), None)) is not None:
        raise TypeError(
            f"Training(state={{{name!r}: ...}}): "
            f"the data set counts its passes itself ({type(part).__name__}.epoch), and a restart "
            "would give it those of the first pass again; type a shuffle that draws from torch's generator, or give "
            "the data set state_dict and load_state_dict"
        )


def _check(name: str, loader: DataLoader[Any]) -> None:
    """Raise TypeError if torchdata would silently resume with other samples."""
    if not getattr(loader, "in_order", True):
        raise TypeError(f"Training(state={{{name!r}: ...}}): the StatefulDataLoader has in_order=False; allowed: True")
    if loader.generator is not None:
        raise TypeError(
            f"Training(state={{{name!r}: ...}}): "
            "the StatefulDataLoader has a generator of its own, which moves on when an epoch "
            "begins; allowed: none (unbroken seeds each epoch)"
        )
    _check_data(name, loader.dataset)
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)):
        raise TypeError(
            f"Training(state={{{name!r}: ...}}): "
            f"torchdata cannot go on with the order of a {type(sampler).__name__} of torch; "
            "allowed: shuffle=True, a sampler with state_dict, or Training.loader(order=...)"
        )
    if isinstance(loader.batch_sampler, InterruptibleBatchSampler):
        raise TypeError(
            f"Training(state={{{name!r}: ...}}): "
            "an InterruptibleBatchSampler moves by advance() alone, and a StatefulDataLoader by "
            "itself; allowed: one of them (a plain DataLoader for this sampler)"
        )
