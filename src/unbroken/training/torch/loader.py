"""Load batches whose order and random numbers are a function of (seed, epoch, index) and of nothing else.

So nothing of the data has to be saved: a restart computes the order again and begins in the middle.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, default_convert

from unbroken.training.core.position import Position
from unbroken.training.torch.samplers import EpochKey, EpochSteps, Indices, Order, PlannedSampler, seed_from
from unbroken.training.torch.samples import Batches

# How often a worker process looks for its parent where it cannot hear of its end.
PARENT_SECONDS = 1.0
_OURS = ("sampler", "batch_sampler", "generator")


class ResumableLoader(DataLoader[Any]):
    """Load data with a place as state: seed, epoch and batch.  The length is that of a whole epoch."""

    sampler: PlannedSampler

    @classmethod
    def make(
        cls,
        dataset: Dataset[Any],
        batch_size: int | None,
        seed: int,
        *,
        shuffle: bool = True,
        order: Order | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return a loader of one process, until `share_with` says otherwise; `options` are those of DataLoader."""
        if not options.get("in_order", True):
            raise TypeError(
                "loader(in_order=False): batches would come in an order that no restart can go on with; allowed: True"
            )
        if refused := [name for name in _OURS if name in options]:
            raise TypeError(f"loader() makes {', '.join(refused)} itself; for another order of the samples: order=")
        if options.get("num_workers", 0) > 0:
            options["worker_init_fn"] = WorkerStart(options.get("worker_init_fn"))
        # batch_size=None: Batches makes the batches, so that all random numbers of a batch are drawn in one place.
        # generator: without one of its own, each start of a loader draws from the global one.
        options |= {"batch_size": None, "collate_fn": _as_it_is, "generator": torch.Generator()}
        collate = collate_fn or (default_convert if batch_size is None else default_collate)
        count, size = len(dataset), 1 if batch_size is None else batch_size  # type: ignore[arg-type]
        sampler = PlannedSampler(count, seed, size, shuffle=shuffle, order=order, drop_last=drop_last)
        return cls(Batches(dataset, collate, seed, has_batches=batch_size is None), sampler=sampler, **options)

    def __iter__(self) -> Any:
        at, sampler = self.sampler.position, self.sampler
        return self.begin(at.epoch, sampler.of(at.epoch), sampler.steps(sampler.of(at.epoch), at.batch))

    def begin(self, key: EpochKey, indices: Indices, steps: EpochSteps) -> Iterator[Any]:
        """Begin to give these steps of an epoch."""
        self.generator.manual_seed(seed_from(self.sampler.seed, "workers", key))
        self.sampler.requested = key, indices, steps
        with start_of_workers(self):
            return super().__iter__()

    def share_with(self, rank: int, ranks: int) -> None:
        """Restrict batches and length to those of one of several ranks."""
        self.sampler.rank, self.sampler.ranks = rank, ranks

    def go_to(self, epoch: int, batch: int) -> None:
        """Let the next iteration begin after so many batches of this rank; one that has begun continues as it was."""
        self.sampler.position = Position(epoch, batch * self.sampler.ranks)

    def state_dict(self) -> dict[str, Any]:
        """Return the position that was set, and the order of a begun epoch if it is no function of seed and epoch."""
        sampler, at = self.sampler, self.sampler.position
        state = {"seed": sampler.seed, "epoch": at.epoch, "place": at.batch, "batches": len(self)}
        order = sampler.state(at.epoch) if at.batch else None
        return state if order is None else {**state, "order": order}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to the saved position; raise ValueError if it is one in other data."""
        for name, own in (("seed", self.sampler.seed), ("batches", len(self))):
            if state_dict[name] != own:
                raise ValueError(
                    f"the checkpoint was made with {name} = {state_dict[name]}, and the loader has {own}; "
                    "take the same data, batch size and seed as before"
                )
        self.sampler.position = Position(state_dict["epoch"], state_dict["place"])
        self.sampler.restore(state_dict["epoch"], state_dict.get("order"))


def _as_it_is(batch: Any) -> Any:
    return batch


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
