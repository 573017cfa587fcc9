"""Give a stream without a state a position: all that it gives is a function of seed and epoch, and is read again."""

from __future__ import annotations

import marshal
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from itertools import count, repeat
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from unbroken.errors import CheckpointError
from unbroken.training.core.loop import NO_MORE
from unbroken.training.torch import random_state
from unbroken.training.torch.process_group import here
from unbroken.training.torch.random_state import GLOBAL, kept, own_generators, reachable
from unbroken.training.torch.samplers import seed_from


class ResumableStream(IterableDataset[Any]):
    """Wrap a stream for a StatefulDataLoader so that a restart gives the samples that would have come.

    In each epoch, all that is drawn in the stream is a function of seed and epoch: by the shuffles of WebDataset, by
    generators that the stream holds, and, for each rank and worker, by the global ones.  So its state is the number of
    samples given.  A restart reads the epoch again up to there, and raises CheckpointError if other samples come.  The
    seed is that of the loader, which `Training` gives it.
    """

    def __init__(self, dataset: Iterable[Any]) -> None:
        self.dataset, self.seed, self._rank = dataset, 0, here().rank
        # Shared, so that persistent workers hear of it.
        self._epoch: torch.Tensor = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._given = self._checksum = 0  # of the samples of this epoch
        self._resume = 0, 0  # the same, where the next iteration begins
        parts: list[Any] = [*reachable(dataset)]
        self._stages = [part for part in parts if type(part).__module__.startswith("webdataset.")]
        for stage in self._stages:
            _make_repeatable(stage)
        self._own = own_generators(dataset)
        self._heard = [part for part in parts if hasattr(type(part), "set_epoch")]
        counting = (part for part in parts if isinstance(getattr(part, "__dict__", {}).get("epoch"), int))
        self._counting = [(part, part.epoch) for part in counting if not hasattr(type(part), "set_epoch")]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be that of an epoch."""
        self._epoch.fill_(epoch)
        self._rank = here().rank

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": int(self._epoch), "given": self._given, "checksum": self._checksum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of an epoch."""
        self._epoch.fill_(state["epoch"])
        self._resume = state["given"], state["checksum"]

    def __iter__(self) -> Iterator[Any]:
        # At once, and not with the first sample: a worker is asked for its state before it has given one.
        (self._given, self._checksum), self._resume = self._resume, (0, 0)
        return self._samples(self._given, self._checksum)

    def _samples(self, skipped: int, expected: int) -> Iterator[Any]:
        worker, checksum = get_worker_info(), 0
        key = self.seed, "stream", int(self._epoch), self._rank, worker.id if worker else 0
        # The generators of a worker are the stream's alone: what the collate_fn draws follows from the last sample.
        apart = nullcontext if worker else kept
        with apart():
            stream = self._begin_epoch(key)
        for number in count():
            with apart():
                random_state.seed(GLOBAL, repeat(seed_from(*key, number)))
                sample = next(stream, NO_MORE)
            if (number == skipped and checksum != expected) or (sample is NO_MORE and number < skipped):
                raise CheckpointError(
                    f"the stream ({type(self.dataset).__name__}) gave other samples in epoch {int(self._epoch)} than "
                    "before the restart; allowed: the same data, in an order that no time, process id or set decides"
                )
            if sample is NO_MORE:
                return
            checksum = zlib.crc32(_identity(sample), checksum)
            if number >= skipped:
                self._given, self._checksum = number + 1, checksum
                yield sample

    def _begin_epoch(self, key: tuple[Any, ...]) -> Iterator[Any]:
        epoch = int(self._epoch)
        random_state.seed(GLOBAL, repeat(seed_from(*key)))
        # Equal on all ranks and workers: a shuffle of the shards may come before they are shared.
        random_state.seed(self._own, (seed_from(self.seed, "own", epoch, number) for number in count()))
        for part in self._heard:
            part.set_epoch(epoch)
        for part, first in self._counting:
            part.epoch = first + epoch
        for stage in self._stages:
            if getattr(stage, "seed", None) is not None:
                # An epoch may have several passes (`with_epoch`), which count on from its number.
                stage.seed = seed_from(self.seed, "stage", epoch)
        return iter(self.dataset)


def _make_repeatable(stage: Any) -> None:
    """Let a shuffle of WebDataset draw from a generator that it holds, and not from the time and the process id."""
    name = getattr(getattr(stage, "f", None), "__name__", type(stage).__name__)
    if name in ("resampled_", "DirectoryShardList"):
        raise TypeError(
            f"ResumableStream(): {name.rstrip('_')} of webdataset gives other shards at each start; allowed: a list of "
            "shards; type wds.WebDataset(urls, resampled=True) or shardshuffle=100"
        )
    if name == "_shuffle" and "rng" not in stage.kw:
        stage.kw = {**stage.kw, "seed": None, "rng": random.Random()}
    if hasattr(stage, "deterministic"):
        stage.deterministic = True


def _identity(value: Any) -> bytes:
    """Return what tells a sample from others and is equal on other hardware: no fractions, no place of a file."""
    if isinstance(value, Mapping):
        value = [each for name, each in value.items() if name == "__key__" or not str(name).startswith("__")]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.as_tensor(value)
    if isinstance(value, torch.Tensor):
        is_exact = not value.is_floating_point() and value.dtype != torch.uint8  # a decoded image
        return str(value.shape).encode() + (value.cpu().numpy().tobytes() if is_exact else b"")
    if isinstance(value, (list, tuple)) and not isinstance(next(iter(value), None), int):
        return b"".join(map(_identity, value))
    with suppress(ValueError):
        return b"" if isinstance(value, (float, np.floating)) else marshal.dumps(value, 2)
    return type(value).__name__.encode()
