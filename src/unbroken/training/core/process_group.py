"""Connect the processes of one training, here one that trains alone; standard library alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class RankRequest:
    """Hold what a rank requests between two steps."""

    stop: bool = False
    best: bool = False
    due: bool = False

    @property
    def is_to_save(self) -> bool:
        """Return True if a save is requested for any reason."""
        return self.stop or self.best or self.due


class Processes:
    """Connect all processes of a training.  All of them call every communicating method, in the same order."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Return True for the process that speaks for all."""
        return self.rank == 0

    def say(self, line: str) -> None:
        """Write one line to the log, not one of each process."""
        if self.is_first:
            print(f"unbroken: {line}", flush=True)

    def twin(self) -> Self:
        """Return the same processes with requests of their own."""
        return self

    def agreed(self, wish: Callable[[], RankRequest], *, at_once: bool = True) -> RankRequest:
        """Return what any rank requests now, or, without `at_once`, what any rank has sent by `ask`."""
        return wish()

    def ask(self, wish: Callable[[], RankRequest]) -> None:
        """Send a request to all ranks, on which they agree after the next step; a single process does nothing."""

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank, on every rank."""
        return [value]

    def broadcast(self, value: T) -> T:
        """Return the first rank's value, on all ranks."""
        return value

    def by_first(self, make: Callable[[], T]) -> T:
        """Return what the first rank makes, on all ranks; what it raises is raised on all ranks."""
        made, error = None, None
        if self.is_first:
            try:
                made = make()
            except Exception as raised:  # noqa: BLE001  (raised below, once all know)
                error = raised
        made, error = self.broadcast((made, error))
        if error:
            raise error
        return made  # type: ignore[return-value]

    def leave(self) -> None:
        """Leave the group: this process ends, and no longer communicates."""

    def meet(self) -> None:
        """Return when all are here."""
