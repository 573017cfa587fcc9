"""Feed a training with batches: from a loader of `Training.loader`, or from a StatefulDataLoader of torchdata.

The first is a function of seed and epoch.  The second knows its own position: its state is part of the training's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unbroken.training.core.position import Position
from unbroken.training.torch.loader import PlannedLoader
from unbroken.training.torch.stateful_loader import STREAM, StatefulLoader, is_stateful_loader


@dataclass(frozen=True)
class Feed:
    """Give the batches of the current epoch; a step of all ranks goes `per_step` places further."""

    per_step: int
    length: int | None  # of the epoch, all ranks together; None if unknown
    begin: Callable[[], Iterator[Any]]  # the batches that are still to come, of this rank
    end_after: Callable[[int], int]  # how many batches are done after the step that begins at a place
    samples: Callable[[int, int], int]  # how many there are from one place to another
    has_more: bool = True  # False if no step of the epoch is left


def feed_of(loader: DataLoader[Any], position: Position, parts: Mapping[str, object]) -> Feed:
    """Return the batches of the position's epoch; raise TypeError if the loader cannot begin in the middle of it."""
    if isinstance(loader, PlannedLoader):
        return _planned_feed(loader, position)
    if (part := part_of(loader, parts)) is not None:
        return _stateful_feed(part, position)
    if is_stateful_loader(loader):
        raise TypeError(
            "batches(): the StatefulDataLoader is no part of the training; type Training(state={'loader': loader}, ...)"
        )
    raise TypeError(
        f"batches() was given a {type(loader).__name__}, which cannot begin in the middle of an epoch; allowed: a "
        "loader of training.loader(dataset, ...), or a StatefulDataLoader of torchdata that is a part of the training; "
        f"type for a stream: loader = {STREAM} and Training(state={{'loader': loader}}, ...)"
    )


def part_of(loader: object, parts: Mapping[str, object]) -> StatefulLoader | None:
    """Return the part that a StatefulDataLoader is, if it is one."""
    stateful = (part for part in parts.values() if isinstance(part, StatefulLoader))
    return next((part for part in stateful if part.loader is loader), None)


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
    if part.is_endless:
        raise TypeError("batches(): the StatefulDataLoader is in endless() already; type one loader for each")
    return Feed(
        per_step=ranks,
        length=None if isinstance(loader.dataset, IterableDataset) else len(loader) * ranks,
        begin=lambda: part.begin(position.epoch),
        end_after=lambda place: place + ranks,
        samples=lambda start, end: (end - start) * (loader.batch_size or 1),
    )
