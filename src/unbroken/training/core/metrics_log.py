"""Record a training's metrics, its best value, and where its time went; show them live and pass them on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from unbroken.store import trackers
from unbroken.store.layout import METRICS_FILE, TIMING_FILE, Format
from unbroken.training.core.guard import Guard, MetricsWatch
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.process_group import Processes
from unbroken.training.loggers import JsonLines, Logger, read_lines

# In a checkpoint that a framework writes, next to its own files.
FILE_NAME, FORMAT = "unbroken_metrics.json", Format(2)
NO_GUARD = Guard(finite=())
DATA, STEP = "data", "step"
# Enough steps to forget a slow start, few enough to feel that a machine has become slow.
REMEMBERED_STEPS = 100


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


class Delivery:
    """Pass metrics to one logger.

    Its last step is noted under `name` in the folder of live files, so that it gets no step twice, and a logger that is
    added later gets all from the first step on.  A logger that fails ends no training, but for its first beginning:
    that is said, and what it did not take comes again with the next checkpoint.
    """

    _path: Path | None = None  # of the note; nothing is noted where nothing is saved
    _has_begun = _is_failing = False
    _held = _noted = -1  # the last step that the logger has, and the last one of which that is noted
    _resumed_at = 0

    def __init__(self, name: str, logger: Logger, metrics: Metrics) -> None:
        self._name, self._logger, self._metrics, self._processes = name, logger, metrics, Processes()

    def open(self, processes: Processes, step: int, live: Path | None) -> None:
        """Begin after what was logged before; the training resumes from `step`."""
        self._processes, self._resumed_at = processes, step
        if live:
            self._path = live / trackers.FILE_NAME
            self._noted = self._notes().get(self._name, -1)
        if self._noted < 0:  # what is wrong with it is better known now
            self._begin()
        else:
            self.pass_on(0)

    def pass_on(self, end: int) -> None:
        """Pass on the numbers before a place that the logger does not have."""
        self._try(lambda: self._pass_on(end))

    def close(self) -> None:
        """Close the logger."""
        if self._has_begun:
            self._try(lambda: self._call("close"))

    def _begin(self) -> None:
        step = self._resumed_at
        held = self._call("begin", min(self._noted, step - 1))
        self._held = self._noted = self._noted if held is None else held
        self._has_begun = True
        if self._held > step:
            self._processes.say(f"{self._name} has steps {step + 1} to {self._held} already; they are not logged again")

    def _pass_on(self, end: int) -> None:
        if not self._has_begun:
            self._begin()
        rows = self._metrics.rows(self._metrics.before(self._held + 1), end)
        for step, same in groupby(rows, itemgetter(1)):  # where an epoch begins, two rows may have a step
            self._logger.log(step, {name: value for *_, values in same for name, value in values.items()})
            self._held = step
        if self._held > self._noted:
            self._call("flush", self._held)
            if self._path:
                trackers.FORMAT.update(self._path, {"logged": {**self._notes(), self._name: self._held}})
            self._noted = self._held
        self._is_failing = False

    def _notes(self) -> dict[str, int]:
        """Return the last steps of all loggers."""
        return dict(trackers.FORMAT.found(self._path).get("logged", {})) if self._path else {}

    def _call(self, method: str, *args: int) -> int | None:
        """Call a method that the logger may have."""
        return getattr(self._logger, method)(*args) if hasattr(self._logger, method) else None

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  (a tracker that is out of reach ends no training)
            if not self._is_failing:
                self._processes.say(
                    f"loggers: {self._name}: {str(error) or repr(error)}; tried again at the next checkpoint"
                )
            self._is_failing = True


class Timers:
    """Hold totals under names: "data" is the time waited for batches, "step" that from a batch to the next."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._totals: dict[str, tuple[int, float]] = {}  # how often, and how many seconds
        self.samples = 0
        self._data_seconds = 0.0  # that the last batch was waited for
        self.pace: float | None = None  # seconds for a batch and its step, lately

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to the total of the name, also if it ends by an exception."""
        began = self._now()
        try:
            yield
        finally:
            count, total = self._totals.get(name, (0, 0.0))
            seconds = self._now() - began
            self._totals[name] = count + 1, total + seconds
            if name == DATA:
                self._data_seconds = seconds
            elif name == STEP:
                now, share = self._data_seconds + seconds, 1 / REMEMBERED_STEPS
                self.pace = now if self.pace is None else (1 - share) * self.pace + share * now

    def line(self) -> dict[str, Any]:
        """Return all of it, for a file and for a restart."""
        (steps, step_seconds), (_, data_seconds) = (self._totals.get(name, (0, 0.0)) for name in (STEP, DATA))
        whole = step_seconds + data_seconds
        return {
            "samples": self.samples,
            "seconds_per_step": round(whole / steps, 6) if steps else None,
            "samples_per_second": round(self.samples / whole, 3) if whole else None,
            "timers": {name: [count, round(seconds, 6)] for name, (count, seconds) in self._totals.items()},
        }

    def restore(self, line: Mapping[str, Any]) -> None:
        """Continue from what `line` gave."""
        self.samples = line["samples"]
        self._totals = {name: (count, seconds) for name, (count, seconds) in line["timers"].items()}
