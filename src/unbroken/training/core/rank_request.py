"""What one of several processes of a training would do between two steps; standard library alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class RankRequest:
    """What a rank would do between two steps."""

    stop: bool = False
    best: bool = False
    due: bool = False
    end: bool = False  # the training gets no better, and is finished

    @property
    def is_to_save(self) -> bool:
        return self.stop or self.best or self.due

    @classmethod
    def of(cls, numbers: Iterable[float]) -> RankRequest:
        """All that anybody wished, from the sums of what each did."""
        return cls(*(bool(number) for number in numbers))
