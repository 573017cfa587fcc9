"""Record a training's metrics, its best value, and where its time went; show them live and pass them on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.store.layout import METRICS_FILE, TIMING_FILE, Format
from unbroken.training.core.delivery import Delivery
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.process_group import Processes
from unbroken.training.core.timers import Timers
from unbroken.training.loggers import JsonLines, Logger, read_lines

# In a checkpoint that a framework writes, next to its own files.
FILE_NAME, FORMAT = "unbroken_metrics.json", Format(2)
NO_GUARD = Guard(finite=())


class MetricsLog:
    """Record what a training logs; the first of several processes writes the live files and calls the loggers.

    The live files are ahead of the checkpoints, and each start brings them back to the one from which it resumes.
    """

    _live: JsonLines | None = None
    _timing: JsonLines | None = None
    _shown = 0  # numbers that are in the live file
    _is_over = False

    def __init__(
        self, loggers: Sequence[Logger] = (), guard: Guard = NO_GUARD, best: tuple[str, str] | None = None
    ) -> None:
        if not isinstance(loggers, list | tuple) or not all(callable(getattr(each, "log", None)) for each in loggers):
            raise TypeError(
                f"loggers={loggers!r}, allowed: a list of objects with a method log(step, metrics), such as "
                "[TensorBoard('board')] of unbroken.training.loggers"
            )
        self.metrics, self.watch, self.timers = Metrics(), MetricsWatch(guard, best), Timers()
        names = [type(each).__name__ for each in loggers]
        numbered = [f"{name} {names[:at].count(name) + 1}".removesuffix(" 1") for at, name in enumerate(names)]
        pairs = zip(numbered, loggers, strict=True)
        self._deliveries = [Delivery(name, each, self.metrics) for name, each in pairs]

    def open(self, processes: Processes, step: int, live: Path | None = None) -> None:
        """Begin the live files in a folder, and the loggers, once a restart has put the metrics back.

        Without a folder nothing is saved, and no restart brings a step again: all is passed on at once.
        """
        if not processes.is_first:
            self._deliveries = []
            return
        if live:
            self._live, self._timing = JsonLines(live / METRICS_FILE), JsonLines(live / TIMING_FILE)
            self._shown = self.metrics.complete()
            self._live.become(self.metrics.table(0, self._shown))
            self._timing.begin(step)
            if lines := read_lines(self._timing.path):
                self.timers.restore(lines[-1])
        for each in self._deliveries:
            each.open(processes, step, live)

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> str:
        """Note values of a step; return what of them must not be, empty if nothing."""
        self.metrics.add(epoch, step, values)
        if not self._live:
            self.published(step)
        wrong = self.watch.look(values)
        if wrong:
            self.show(is_over=True)
        return wrong

    def show(self, *, is_over: bool = False) -> None:
        """Append to the live file the rows that are new and complete; the last one is so only when all is over."""
        end = self.metrics.size if is_over else self.metrics.complete()
        if self._live and end > self._shown:
            self._live.append(*self.metrics.table(self._shown, end))
            self._shown = end

    def note_times(self, step: int) -> None:
        """Note the times at a save, so that they continue from there."""
        if self._timing:
            segment = int(os.environ.get("UNBROKEN_SEGMENT") or 0)
            self._timing.append({"segment": segment, "step": step, **self.timers.line()})

    def published(self, step: int) -> None:
        """Let the loggers have the steps before that of a checkpoint, which may still get values; at the end, all."""
        end = self.metrics.size if self._is_over else self.metrics.before(step)
        for each in self._deliveries:
            each.pass_on(end)
        if self._is_over:
            self.close()

    def finish(self, step: int) -> None:
        """Note that the training is over: its last checkpoint follows, or none where nothing is saved."""
        self._is_over = True
        self.show(is_over=True)
        if not self._live:
            self.published(step)

    def close(self) -> None:
        """Close the loggers: this process ends."""
        for each in self._deliveries:
            each.close()
        self._deliveries = []

    # --- in a checkpoint ---

    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, in JSON's terms."""
        return {"watch": self.watch.state(), "metrics": self.metrics.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of another one."""
        self.watch.restore(state["watch"])
        self.metrics.restore(state["metrics"])

    def write(self, draft: Path, step: int) -> None:
        """Write the state at a step into a checkpoint that a framework writes."""
        FORMAT.write(draft / FILE_NAME, {"step": step, **self.state()})

    def read(self, checkpoint: Path) -> int:
        """Take over what `write` wrote, and return the step; 0 where another program made the checkpoint."""
        if not (checkpoint / FILE_NAME).exists():
            return 0
        state = FORMAT.read(checkpoint / FILE_NAME)
        self.restore(state)
        return int(state["step"])
