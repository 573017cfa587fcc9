"""The processes of one training, here one that trains alone; standard library alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unbroken.training.core.rank_request import RankRequest

T = TypeVar("T")


class Processes:
    """All processes of a training.  Of several, all call every method that talks, in one order."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def say(self, line: str) -> None:
        """One line in the log, not one of each process."""
        if self.is_first:
            print(f"unbroken: {line}", flush=True)

    def agreed(self, wish: Callable[[], RankRequest], at_once: bool = True) -> RankRequest:
        """What is done now: what any of them wishes, or, without `at_once`, what any of them has told by `ask`."""
        return wish()

    def ask(self, wish: Callable[[], RankRequest]) -> None:
        """Tells all a wish, on which they agree after the next step; one that trains alone has nobody to tell."""

    def all_gather(self, value: T) -> list[T]:
        """Everybody's value, by rank, on all of them."""
        return [value]

    def broadcast(self, value: T) -> T:
        """The first one's value, on all of them."""
        return value

    def by_first(self, make: Callable[[], T]) -> T:
        """What the first one makes, on all of them; what it raises is raised on all of them."""
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
        """Says goodbye: this process ends, and talks to nobody any more."""

    def meet(self) -> None:
        """Returns when all are here."""
