"""Pass the steps that a checkpoint holds to a logger of a training, each step once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from unbroken.store.trackers import FILE_NAME, FORMAT
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.process_group import Processes
from unbroken.training.loggers import Logger


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
            self._path = live / FILE_NAME
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
                FORMAT.update(self._path, {"logged": {**self._notes(), self._name: self._held}})
            self._noted = self._held
        self._is_failing = False

    def _notes(self) -> dict[str, int]:
        """Return the last steps of all loggers."""
        return dict(FORMAT.found(self._path).get("logged", {})) if self._path else {}

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
