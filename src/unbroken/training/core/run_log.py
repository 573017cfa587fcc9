"""Record a training's metrics, its best value, and where its time went; show them live and pass them on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.store.progress import Metric
from unbroken.training.core.delivery import Loggers
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.live_log import METRICS_FILE, TIMING_FILE
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.timers import Timers
from unbroken.training.loggers import JsonLines, Logger, read_lines


class RunLog:
    """Record the metrics of one process; the first of several writes the live file and calls the loggers.

    The live file is ahead of the checkpoints, and each start brings it back to the one from which it resumes.
    """

    def __init__(self, processes: Processes, loggers: Sequence[Logger] = ()) -> None:
        self.metrics = Metrics()
        self._processes, self._loggers = processes, Loggers(loggers, self.metrics)
        self._live: JsonLines | None = None
        self._shown, self._is_over = 0, False  # rows of the metrics that are in the live file

    def open(self, step: int, live: Path | None = None) -> None:
        """Begin the live file in a folder, and the loggers, once a restart has put the metrics back."""
        if live and self._processes.is_first:
            self._live = JsonLines(live / METRICS_FILE)
            self._shown = max(0, self.metrics.size - 1)  # the last row may still grow
            self._live.become(self.metrics.table(0, self._shown))
        self._loggers.open(self._processes, live, step)

    def show(self, *, is_over: bool = False) -> None:
        """Append to the live file the rows that are new and complete; the last one is so only when all is over."""
        end = self.metrics.size if is_over else self.metrics.size - 1
        if self._live and end > self._shown:
            self._live.append(*self.metrics.table(self._shown, end))
            self._shown = end

    def end(self) -> None:
        """Note that the training is over, and its last checkpoint follows."""
        self._is_over = True
        self.show(is_over=True)

    def published(self, step: int) -> None:
        """Let the loggers have what the checkpoint of a step holds: all if the training is over."""
        if self._is_over:
            self._loggers.close(is_over=True)
        else:
            self._loggers.published(step)

    def close(self) -> None:
        """Close the loggers: this process ends."""
        self._loggers.close()


class Book(RunLog):
    """Record what `Training` logs, its best value and its times."""

    def __init__(
        self,
        guard: Guard,
        best: tuple[str, str] | None,
        processes: Processes,
        loggers: Sequence[Logger] = (),
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(processes, loggers)
        self.watch, self.timers = MetricsWatch(guard, best), Timers()
        self._timing: JsonLines | None = None
        self._segment = int(environment.get("UNBROKEN_SEGMENT") or 0)

    def open(self, step: int, live: Path | None = None) -> None:
        """Begin the live files and the loggers; the times continue from those of the last save."""
        super().open(step, live)
        if live and self._processes.is_first:
            self._timing = JsonLines(live / TIMING_FILE)
            kept = [line for line in read_lines(self._timing.path) if line.get("step", math.inf) <= step]
            self._timing.become(kept)
            if kept:
                self.timers.restore(kept[-1])

    def log(self, course: Course, values: Mapping[str, float]) -> str:
        """Note values of the step that is in the air; return what of them must not be, empty if nothing."""
        at = course.position
        self.metrics.add(at.epoch, at.step + course.is_in_batch, values)
        wrong = self.watch.look(values)
        if wrong:
            self.show(is_over=True)
        return wrong

    def note_times(self, step: int) -> None:
        """Note the times at a save, so that they continue from there."""
        if self._timing:
            self._timing.append({"segment": self._segment, "step": step, **self.timers.line()})

    def finish(self, step: int) -> None:
        """Note that the training is over at a step."""
        self.end()
        self.note_times(step)

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
