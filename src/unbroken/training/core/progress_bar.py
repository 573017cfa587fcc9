"""Show a training's progress: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import atexit
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unbroken.system.clock import duration

# The first soon, to see that it works; then seldom enough that a day's log can be read.
FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0


@dataclass(frozen=True)
class Standing:
    """Hold a training's progress; `total` is the number of steps known by now."""

    step: int
    total: int | None
    epoch: int
    metrics: Mapping[str, float]
    steps_per_second: float | None

    @property
    def numbers(self) -> str:
        """Return the epoch and the metrics, in a line."""
        return ", ".join([f"epoch {self.epoch}", *(f"{name} {value:.4g}" for name, value in self.metrics.items())])


class Lines:
    """Print whole lines for a log on standard output: the first soon, then one a minute, and one at the end."""

    def __init__(self, at: Standing, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._next = now, now() + FIRST_LINE_SECONDS
        self._last, self._told_step = at, -1
        self._tell(at)

    def show(self, at: Standing) -> None:
        """Write a line if it is time to."""
        self._last = at
        if self._now() >= self._next:
            self._next = self._now() + LINE_SECONDS
            self._tell(at)

    def close(self) -> None:
        """Write what was not written yet."""
        if self._last.step != self._told_step:
            self._tell(self._last)

    def _tell(self, at: Standing) -> None:
        self._told_step = at.step
        share = f" of {at.total:,} ({at.step / at.total:.0%})" if at.total else ""
        rate = at.steps_per_second
        pace = f", {rate:.3g} steps/s" if rate else ""
        left = f", {duration((at.total - at.step) / rate)} left" if at.total and rate else ""
        print(f"unbroken: step {at.step:,}{share}{pace}{left}, {at.numbers}", flush=True)


class Bar:
    """Show a bar of tqdm."""

    def __init__(self, at: Standing) -> None:
        from tqdm import tqdm

        self._bar = tqdm(initial=at.step, total=at.total, unit="step", dynamic_ncols=True)
        self.show(at)

    def show(self, at: Standing) -> None:
        self._bar.total = at.total
        self._bar.set_postfix_str(at.numbers, refresh=False)
        self._bar.update(at.step - self._bar.n)

    def close(self) -> None:
        self._bar.close()


def open_bar(at: Standing) -> Bar | Lines:
    """Return a bar that begins at a standing, on a terminal if tqdm is installed; else lines."""
    is_bar = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    bar = Bar(at) if is_bar else Lines(at)
    atexit.register(bar.close)
    return bar
