"""Record a training's metrics, its best value, and where its time went; standard library alone."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unbroken.store.progress import Metric
from unbroken.system.clock import duration
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.live_log import Live
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.timers import Timers

# The first soon, to see that it works; then seldom enough that a day's log can be read.
FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 60.0
# Gets each row of metrics as it comes: the step, and its values.
Listener = Callable[[int, Mapping[str, float]], None]


class Book:
    """Record the metrics and times of one process; the first of several also keeps the files in UNBROKEN_LIVE."""

    def __init__(
        self,
        guard: Guard,
        best: tuple[str, str] | None,
        processes: Processes,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.metrics, self.watch, self.timers = Metrics(), MetricsWatch(guard, best), Timers()
        self.listeners: list[Listener] = []
        self._processes = processes
        told = environment.get("UNBROKEN_LIVE")
        self.folder = Path(told) if told else None
        self._live: Live | None = None
        self._lines: ProgressLines | None = None
        self._segment = int(environment.get("UNBROKEN_SEGMENT") or 0)

    def open(self, step: int, home: Path) -> None:
        """Open the files once a restart has put the notes back; without UNBROKEN_LIVE they go to `home/live`."""
        self.folder = self.folder or home / "live"
        if not self._processes.is_first:
            return
        self._live = Live(self.folder)
        if times := self._live.cut_back(self.metrics, step):
            self.timers.restore(times)

    def log(self, course: Course, values: Mapping[str, float]) -> str:
        """Note values of the step that is in the air; return what of them must not be, empty if nothing."""
        at = course.position
        step = at.step + course.is_in_batch
        self.metrics.add(at.epoch, step, values)
        for listener in self.listeners:
            listener(step, values)
        wrong = self.watch.look(values)
        if wrong and self._live:
            self._live.write(self.metrics, is_over=True)
        return wrong

    def show(self) -> None:
        """Bring the files up to date, now and then."""
        if self._live:
            self._live.write(self.metrics)

    def note_times(self, step: int) -> None:
        """Note the times at a save, so that they continue from there."""
        if self._live:
            self._live.note_times({"segment": self._segment, "step": step, **self.timers.line()})

    def close(self, step: int) -> None:
        """Write the last row: the training is over."""
        if self._live:
            self._live.write(self.metrics, is_over=True)
        self.note_times(step)
        if self._lines:
            self._lines.close()

    def print_progress(self, course: Course) -> None:
        """Print where the training is now and then, on the first rank."""
        if self._processes.is_first:
            self._lines = ProgressLines(lambda: (course.position.step, self._line(course)))

    def show_steps(self) -> None:
        """Show where the training is, before the steps of an epoch and after each of them."""
        if self._lines:
            self._lines.show()

    def _line(self, course: Course) -> str:
        at, left, rate = course.position, course.steps_left(), self.timers.steps_per_second
        total = None if left is None else at.step + round(left)
        share = f" of {total:,} ({at.step / total:.0%})" if total else ""
        pace = f", {rate:.3g} steps/s" if rate else ""
        rest = f", {duration((total - at.step) / rate)} left" if total and rate else ""
        metrics = "".join(f", {name} {value:.4g}" for name, value in self.metrics.latest.items())
        return f"step {at.step:,}{share}{pace}{rest}, epoch {at.epoch}{metrics}"

    def figures(self, course: Course) -> dict[str, Metric]:
        """Return what to show of it now: the latest metrics, the pace, and how long it will take."""
        rate = self.timers.steps_per_second
        if rate is None:
            return dict(self.metrics.latest)
        steps = course.steps_left()
        left: dict[str, Metric] = {"left_seconds": round(steps / rate, 1)} if steps else {}
        return {**self.metrics.latest, "pace": f"{rate:.3g} steps/s", **left}

    def results(self, course: Course) -> dict[str, str]:
        """Return the texts of metrics.csv and metrics.json."""
        at = course.position
        data: dict[str, Any] = {"epochs": at.epoch, "steps": at.step, "best": self.watch.best_value}
        data["metrics"] = self.metrics.latest
        return {"metrics.csv": self.metrics.to_csv(), "metrics.json": json.dumps(data, indent=2) + "\n"}


class ProgressLines:
    """Print a line for a log: at once, soon, then one a minute, and one at the end.

    `look` returns the step that is reached, and the line.
    """

    def __init__(self, look: Callable[[], tuple[int, str]], now: Callable[[], float] = time.monotonic) -> None:
        self._look, self._now = look, now
        self._next, self._pause, self._told_step = now(), FIRST_LINE_SECONDS, -1
        atexit.register(self.close)

    def show(self) -> None:
        """Print a line if it is time to."""
        if self._now() >= self._next:
            self._next, self._pause = self._now() + self._pause, LINE_SECONDS
            self.close()

    def close(self) -> None:
        """Print what was not printed yet."""
        step, line = self._look()
        if step != self._told_step:
            self._told_step = step
            print(f"unbroken: {line}", flush=True)
