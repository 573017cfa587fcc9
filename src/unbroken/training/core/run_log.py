"""Record a training's metrics, its best value, and where its time went; standard library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unbroken.runs.progress import Metric
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.live_log import Live
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.progress_bar import Bar, Lines, Standing, open_bar
from unbroken.training.core.timers import Timers

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
        self._ending = ""  # why the training has ended well, when that is forgotten
        self._processes = processes
        told = environment.get("UNBROKEN_LIVE")
        self.folder = Path(told) if told else None
        self._live: Live | None = None
        self.has_bar = False  # asked for
        self._shown: Bar | Lines | None = None
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
        if self.watch.ending and self._processes.size == 1:  # else all agree on the end
            self.end(course)
        return wrong

    def end(self, course: Course) -> None:
        """End the training well, because it gets no better."""
        if not course.position.is_stopped:
            self._processes.say(f"the training ends here: {self.watch.ending}")
        course.position.is_stopped = True

    def forget_end(self, course: Course) -> None:
        """Forget the end in the last state: with a raised goal the training must not end again at once."""
        self._ending = self.watch.ending
        course.position.is_stopped = False
        self.watch.forget_patience()

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
        if self._shown:
            self._shown.close()

    def show_steps(self, course: Course) -> None:
        """Show where the training is, before the steps of an epoch and after each of them."""
        if not self.has_bar or not self._processes.is_first:
            return
        left, step, rate = course.steps_left(), course.position.step, self.timers.steps_per_second
        total = None if left is None else step + round(left)
        standing = Standing(step, total, course.position.epoch, self.metrics.latest, rate)
        self._shown = self._shown or open_bar(standing)  # not before: now the number of steps is known
        self._shown.show(standing)

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
        ending = self.watch.ending or self._ending
        data |= {"metrics": self.metrics.latest} | ({"ended": ending} if ending else {})
        return {"metrics.csv": self.metrics.to_csv(), "metrics.json": json.dumps(data, indent=2) + "\n"}
