"""Detect when a training must stop because its metrics went wrong; standard library alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Guard:
    """Define what is watched in the metrics that a training logs.

    `finite` names metrics that must be finite numbers, `highest` says how high metrics may be.  `in_a_row` is how many
    violations one after the other are too many; while there are fewer, saves wait if they can.
    """

    finite: Sequence[str] = ("loss",)
    highest: Mapping[str, float] = field(default_factory=dict)
    in_a_row: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.finite, str):
            raise ValueError(
                f"Guard(finite={self.finite!r}), allowed: a tuple of names; type: finite=({self.finite!r},)"
            )
        if self.in_a_row < 1:
            raise ValueError(f"Guard(in_a_row={self.in_a_row!r}), allowed: 1 or more")


class MetricsWatch:
    """Track the metrics under a guard; `best` names the metric that measures the training, and "max" or "min"."""

    def __init__(self, guard: Guard, best: tuple[str, str] | None) -> None:
        if best is not None and best[1] not in ("max", "min"):
            raise ValueError(f"Training(best={best!r}), allowed: (name of a metric, 'max' or 'min')")
        self.guard, self._best = guard, best
        self.best_value: float | None = None
        self.is_new_best = False  # until the one who saves it says otherwise
        self.was_best = False  # the last value that was seen
        self._wrong = 0

    @property
    def is_sound(self) -> bool:
        """Return False after a violation, until the next good value: what is saved now may be corrupt."""
        return self._wrong == 0

    def look(self, values: Mapping[str, float]) -> str:
        """Note new values; return what of them must not be, empty if nothing or not for long enough."""
        if self._best and self._best[0] in values:
            self._compare(values[self._best[0]], self._best[1])
        wrong = [text for name, value in values.items() if (text := self._wrong_with(name, value))]
        is_watched = bool(values.keys() & {*self.guard.finite, *self.guard.highest})
        self._wrong = self._wrong + 1 if wrong else 0 if is_watched else self._wrong
        return wrong[0] if self._wrong >= self.guard.in_a_row and wrong else ""

    def state(self) -> dict[str, float | int | None]:
        """Return all that a restart needs."""
        return {"best": self.best_value, "wrong": self._wrong}

    def restore(self, state: Mapping[str, float | int | None]) -> None:
        """Take over the state of another one."""
        self.best_value, self._wrong = state["best"], int(state["wrong"] or 0)

    def _compare(self, value: float, order: str) -> None:
        best = self.best_value
        if best is None:
            self.was_best = not math.isnan(value)
        else:
            self.was_best = value > best if order == "max" else value < best
        if self.was_best:
            self.best_value, self.is_new_best = value, True

    def non_finite(self, values: Mapping[str, float]) -> str:
        """Return a line on the first value that must be finite and is not; empty if there is none."""
        for name in self.guard.finite:
            if not math.isfinite(value := float(values.get(name, 0.0))):
                return f"{name} is {value}, allowed: a finite number (Guard.finite)"
        return ""

    def _wrong_with(self, name: str, value: float) -> str:
        if line := self.non_finite({name: value}):
            return line
        highest = self.guard.highest.get(name, math.inf)
        if value > highest:
            return f"{name} is {value:.6g}, allowed: {highest:.6g} at most (Guard.highest)"
        return ""
