"""Connect the ranks of one training: this process's rank, and decisions that all take at the same step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self, TypeVar

import torch
import torch.distributed as dist

from unbroken.errors import CheckpointError
from unbroken.training.core.process_group import Processes, RankRequest

T = TypeVar("T")
PATIENCE = timedelta(days=1)


class Ranks(Processes):
    """Connect all processes of a training, or this one alone.  All ranks call communicating methods in one order."""

    def __init__(self, rank: int = 0, size: int = 1, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(rank, size)
        self.group = group
        self._pending: tuple[torch.Tensor, dist.Work] | None = None

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """Return the ranks of this training; raise CheckpointError if there are several without torch.distributed."""
        if (ranks := here()).size > 1:
            return ranks.beside()
        size = int(environment.get("WORLD_SIZE") or 1)
        if size > 1:
            raise CheckpointError(
                f"WORLD_SIZE is {size}, and torch.distributed is not started; "
                "type torch.distributed.init_process_group() before Training(...)"
            )
        return cls()

    def twin(self) -> Self:
        return type(self)(self.rank, self.size, self.group)

    def agreed(self, wish: Callable[[], RankRequest], *, at_once: bool = True) -> RankRequest:
        """Return what to do now: what any rank requested a step ago, and with `at_once` what it requests now as well.

        The answer to the question of a step ago has arrived by now, so it costs no time.
        """
        if self.size == 1:
            return wish()
        said = self.settle()
        if at_once:
            self.ask(wish)
            said = [one or other for one, other in zip(said, self.settle(), strict=True)]
        return RankRequest(*said)

    def ask(self, wish: Callable[[], RankRequest]) -> None:
        """Send a request to all ranks, on which they agree after the next step."""
        if self.size > 1:
            bits = torch.tensor(list(vars(wish()).values()), dtype=torch.uint8)
            work = dist.all_reduce(bits, dist.ReduceOp.MAX, group=self.group, async_op=True)
            if work is not None:
                self._pending = bits, work

    def settle(self) -> list[bool]:
        """Wait for the last request, and return what any rank requested, each kind as `RankRequest` has it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return [False] * len(vars(RankRequest()))
        pending[1].wait()
        return [bool(bit) for bit in pending[0].tolist()]

    def broadcast(self, value: T) -> T:
        told = [value]
        if self.size > 1:
            dist.broadcast_object_list(told, src=0, group=self.group)
        return told[0]

    def all_gather(self, value: T) -> list[T]:
        if self.size == 1:
            return [value]
        found: list[T | None] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found  # type: ignore[return-value]

    def beside(self) -> Ranks:
        """Return the same ranks with a connection of their own, for one thread of each."""
        # On the CPU, whatever the training itself uses: what is said here must not wait for a GPU's queue.  Who dies
        # is noticed by it at once, so its patience is for long steps and evaluations, and for files that are written.
        return Ranks(self.rank, self.size, dist.new_group(backend="gloo", timeout=PATIENCE))

    def meet(self) -> None:
        """Return when all ranks are here."""
        if self.size > 1:
            dist.barrier(group=self.group)

    def leave(self) -> None:
        """End torch.distributed, which complains if a process leaves without doing so."""
        if self.size > 1:
            self.meet()
            dist.destroy_process_group()


def here() -> Ranks:
    """Return all processes of torch.distributed, which talk as the training does; this one alone if it is not used."""
    is_used = dist.is_available() and dist.is_initialized()
    return Ranks(dist.get_rank(), dist.get_world_size()) if is_used else Ranks()
