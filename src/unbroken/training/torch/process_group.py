"""The ranks of one training: who we are among them, and decisions that all of them take at the same step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from unbroken.errors import CheckpointError
from unbroken.training.core.batch_order import Share
from unbroken.training.core.process_group import Processes, RankRequest

T = TypeVar("T")
PATIENCE = timedelta(days=1)


class Ranks(Processes):
    """All processes of a training, or this one alone.  Every method that talks is called by all ranks in one order."""

    def __init__(self, rank: int = 0, size: int = 1, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(rank, size)
        self.group = group
        self._pending: tuple[torch.Tensor, dist.Work] | None = None

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """The ranks of this process's training; CheckpointError if there are several and torch was not told."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            # On the CPU, whatever the training itself uses: what is said here must not wait for a GPU's queue.  One
            # rank may evaluate for an hour while the others are here: the training's own group says what is too long.
            group = dist.new_group(backend="gloo", timeout=PATIENCE)
            return cls(dist.get_rank(), dist.get_world_size(), group)
        size = int(environment.get("WORLD_SIZE") or 1)
        if size > 1:
            raise CheckpointError(
                f"WORLD_SIZE is {size}, and torch.distributed is not started; "
                "type torch.distributed.init_process_group() before Training(...)"
            )
        return cls()

    @property
    def share(self) -> Share:
        return Share(self.rank, self.size)

    def agreed(self, wish: Callable[[], RankRequest], at_once: bool = True) -> RankRequest:
        """What is done now: what any rank wished a step ago, and `at_once` also what it wishes now.

        The answer to the question of a step ago has come long since, so that it costs no time.
        """
        if self.size == 1:
            return wish()
        said = self._answer()
        if at_once:
            self.ask(wish)
            said |= self._answer()
        return RankRequest(*(bool(said & bit) for bit in (1, 2, 4, 8)))

    def ask(self, wish: Callable[[], RankRequest]) -> None:
        """Tells all ranks a wish, on which they agree after the next step."""
        if self.size > 1:
            bits = torch.tensor(list(vars(wish()).values()), dtype=torch.uint8)
            work = dist.all_reduce(bits, dist.ReduceOp.MAX, group=self.group, async_op=True)
            if work is not None:
                self._pending = bits, work

    def settle(self) -> None:
        """Waits for what was asked last; nobody needs the answer."""
        self._answer()

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
        """The same ranks with a connection of their own, for a second thread of each."""
        # Who dies is noticed by it at once, so its patience is for files that are written and for long steps.
        return Ranks(self.rank, self.size, dist.new_group(backend="gloo", timeout=PATIENCE))

    def meet(self) -> None:
        """Returns when all ranks are here."""
        if self.size > 1:
            dist.barrier(group=self.group)

    def leave(self) -> None:
        """Ends torch.distributed, which complains if a process leaves without."""
        if self.size > 1:
            self.meet()
            dist.destroy_process_group()

    def _answer(self) -> int:
        if self._pending is None:
            return 0
        bits, work = self._pending
        self._pending = None
        work.wait()
        return sum(bool(bit) << place for place, bit in enumerate(bits.tolist()))
