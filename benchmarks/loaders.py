"""What it costs that a loader can begin in the middle: unbroken's samplers against torchdata's StatefulDataLoader.

The samples cost next to nothing, so what is seen is the loader alone.  Every way is asked after each batch where it is,
as for a save; *go on* is from a new loader to its first batch, with the last hundredth of an epoch left.
"""

import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from support.measure import in_turns, machine, options, publish, spread, table
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from unbroken.training.core.position import Position
from unbroken.training.torch import InterruptibleSampler, RandomKept
from unbroken.training.torch.batch_source import StatefulLoader
from unbroken.training.torch.loader import end_workers

BATCH = 64

# What a way of loading is: the batches from a state on (None: the beginning), and what says the state after each.
Opened = tuple[Iterator[Any], Callable[[], Any]]


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def plain(data: Dataset, workers: int, state: Any) -> Opened:
    return iter(DataLoader(data, BATCH, shuffle=True, num_workers=workers)), lambda: None


def by_sampler(data: Dataset, workers: int, state: Any) -> Opened:
    sampler = InterruptibleSampler(data)
    if state:
        sampler.load_state_dict(state)

    def advanced() -> Any:
        sampler.advance(BATCH)
        return sampler.state_dict()

    return iter(DataLoader(data, BATCH, sampler=sampler, num_workers=workers)), advanced


def stateful(data: Dataset, workers: int, state: Any) -> Opened:
    part = StatefulLoader("loader", StatefulDataLoader(data, BATCH, shuffle=True, num_workers=workers), 0, 1)
    if state:
        part.load_state_dict(state)
    return part.begin(Position(batch=1)), part.state_dict


def with_random(data: Dataset, workers: int, state: Any) -> Opened:
    return stateful(RandomKept(data), workers, state)


WAYS = {
    "DataLoader, which cannot": plain,
    "InterruptibleSampler": by_sampler,
    "StatefulDataLoader": stateful,
    "StatefulDataLoader of RandomKept": with_random,
}


def measured(way: Callable[..., Opened], workers: int, samples: int) -> tuple[float, float, int]:
    """Microseconds a batch, seconds to go on near the end, bytes of a state."""
    data, last = Numbers(samples), int(samples / BATCH * 0.99)
    iterator, where = way(data, workers, None)
    next(iterator)
    state, began = where(), time.perf_counter()
    for _ in range(1, last):
        next(iterator)
        state = where()
    micros = (time.perf_counter() - began) / max(1, last - 1) * 1e6
    end_workers(iterator)
    stored = pickle.dumps(state)  # read back, as from a file
    began = time.perf_counter()
    iterator, _ = way(data, workers, pickle.loads(stored))
    next(iterator)
    seconds = time.perf_counter() - began
    end_workers(iterator)
    return micros, seconds, len(stored)


def main() -> None:
    given = options(__doc__, samples=(int, 500_000, "samples of an epoch"), rounds=(int, 3, "rounds"))
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")
    head = machine("torch", "torchdata")
    torch.set_num_threads(1)
    rows = []
    for workers in (0, 2):
        ways = {name: partial(measured, way, workers, given.samples) for name, way in WAYS.items()}
        for name, found in in_turns(ways, given.rounds).items():
            micros, seconds, sizes = zip(*found, strict=True)
            cannot = name.startswith("DataLoader")
            more = ["none", "none"] if cannot else [spread(seconds), f"{max(sizes):,}"]
            rows.append([name, str(workers), spread(micros, 0), *more])
    header = ["loader", "workers", "microseconds a batch", "seconds to go on", "bytes of a state"]
    text = f"{head} {given.samples:,} samples in batches of {BATCH}, rounds: {given.rounds}"
    publish("loaders", f"{text}\n\n{table(header, rows)}", given.write)


if __name__ == "__main__":
    main()
