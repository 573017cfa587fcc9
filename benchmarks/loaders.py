"""What it costs that a loader can begin in the middle: unbroken's loaders against torchdata's StatefulDataLoader.

The samples cost next to nothing, so what is seen is the loader alone.  Every way is asked after each batch where it is,
as for a save; *go on* is from a new loader to its first batch, with the last hundredth of an epoch left.

And of very many samples, from the middle of an epoch: seconds to go on, and the memory that the order takes.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from support.measure import in_turns, machine, options, publish, spread, table
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from unbroken.training.torch import Loaders
from unbroken.training.torch.loader import end_workers
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.stateful_loader import StatefulLoader

BATCH = 64
RANKS = 4

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


def by_loaders(data: Dataset, workers: int, state: Any, *, ranks: int = 1) -> Opened:
    loaders = Loaders(ranks=Ranks(ranks - 1, ranks))
    loader = loaders.loader(data, BATCH, num_workers=workers)
    loaders.load_state_dict(state)
    return iter(loader), loaders.state_dict


def stateful(data: Dataset, workers: int, state: Any) -> Opened:
    part = StatefulLoader("loader", StatefulDataLoader(data, BATCH, shuffle=True, num_workers=workers), 0, 1)
    if state:
        part.load_state_dict(state)
    return part.begin_epoch(0), part.state_dict


WAYS = {
    "DataLoader, which cannot": plain,
    "Loaders": by_loaders,
    "StatefulDataLoader": stateful,
}
LARGE = {
    "DataLoader, which cannot": plain,
    "Loaders": by_loaders,
    f"Loaders, one of {RANKS} ranks": partial(by_loaders, ranks=RANKS),
    "StatefulDataLoader": stateful,
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


def make_state(name: str, samples: int, path: Path) -> None:
    """Half an epoch, and the state after it."""
    iterator, where = LARGE[name](Numbers(samples), 0, None)
    ranks = RANKS if "rank" in name else 1
    for _ in range(samples // 2 // BATCH // ranks):
        next(iterator)
        state = where()
    path.write_bytes(pickle.dumps(state))


def gone_on(name: str, samples: int, path: Path) -> dict[str, float]:
    """Seconds from a new loader to its first batch, and MB more than before, at that batch and at most."""
    next(LARGE[name](Numbers(BATCH * RANKS), 0, None)[0])  # what is imported at the first use
    state, before = pickle.loads(path.read_bytes()), _megabytes()
    began = time.perf_counter()
    iterator, _ = LARGE[name](Numbers(samples), 0, state)
    next(iterator)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "mb": _megabytes() - before, "peak_mb": max(0.0, peak - before)}


def _megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def of_many(samples: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory() as base:

        def part(what: str, name: str) -> dict[str, float]:
            path = Path(base, str(list(LARGE).index(name)))
            command = [sys.executable, __file__, f"--large={samples}", f"--one={what}:{name}:{path}"]
            return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)

        for name in LARGE:
            part("make", name)
        found = in_turns({name: partial(part, "go", name) for name in LARGE}, rounds)
    rows = [
        [name, spread([row["seconds"] for row in rows])]
        + [f"{median(row[key] for row in rows):,.0f}" for key in ("mb", "peak_mb")]
        for name, rows in found.items()
    ]
    header = ["loader", "seconds to its first batch", "MB more then", "MB more at most"]
    return f"**{samples:,} samples**, from the middle of an epoch; rounds: {rounds}\n\n{table(header, rows)}"


def main() -> None:
    given = options(
        __doc__,
        samples=(int, 500_000, "samples of an epoch"),
        rounds=(int, 3, "rounds"),
        large=(int, 100_000_000, "samples of the large epoch; 0: none"),
        one=(str, "", "for its own use"),
    )
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")
    torch.set_num_threads(1)
    if given.one:
        what, name, path = given.one.split(":")
        print(json.dumps((make_state if what == "make" else gone_on)(name, given.large, Path(path))))
        return
    head = machine("torch", "torchdata")
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
    large = f"\n\n{of_many(given.large, given.rounds)}" if given.large else ""
    publish("loaders", f"{text}\n\n{table(header, rows)}{large}", given.write)


if __name__ == "__main__":
    main()
