"""Record a training's metrics, its best value, and where its time went, and pass the metrics on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.store.progress import Metric
from unbroken.training.core.delivery import Loggers
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.live_log import Live
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.timers import Timers
from unbroken.training.loggers import Logger


class Book:
    """Record the metrics and times of one process; the first of several writes the live files and calls the loggers."""

    def __init__(
        self,
        guard: Guard,
        best: tuple[str, str] | None,
        processes: Processes,
        loggers: Sequence[Logger] = (),
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.metrics, self.watch, self.timers = Metrics(), MetricsWatch(guard, best), Timers()
        self._processes = processes
        self._live: Live | None = None
        self._loggers, self._is_over = Loggers(loggers, self.metrics), False
        self._segment = int(environment.get("UNBROKEN_SEGMENT") or 0)

    def open(self, step: int, live: Path | None = None) -> None:
        """Begin the live files in a folder, and the loggers, once a restart has put the metrics back."""
        if live and self._processes.is_first:
            self._live = Live(live)
            if times := self._live.cut_back(self.metrics, step):
                self.timers.restore(times)
        self._loggers.open(self._processes, live, step)

    def log(self, course: Course, values: Mapping[str, float]) -> str:
        """Note values of the step that is in the air; return what of them must not be, empty if nothing."""
        at = course.position
        step = at.step + course.is_in_batch
        self.metrics.add(at.epoch, step, values)
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

    def published(self, step: int) -> None:
        """Let the loggers have what the checkpoint of a step holds: all if the training is over."""
        self._loggers.close(is_over=True) if self._is_over else self._loggers.published(step)

    def finish(self, step: int) -> None:
        """Write the last row: the training is over, and its last checkpoint follows."""
        self._is_over = True
        if self._live:
            self._live.write(self.metrics, is_over=True)
        self.note_times(step)

    def close(self) -> None:
        """Close the loggers: this process ends."""
        self._loggers.close()

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
