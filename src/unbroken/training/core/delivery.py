"""Pass the steps that a checkpoint holds to the loggers of a training, each step once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.store.trackers import FILE_NAME, FORMAT
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.process_group import Processes
from unbroken.training.loggers import Logger


@dataclass
class _Target:
    """Hold a logger, the name under which its steps are noted, and how many rows it has got, and has safe."""

    name: str
    logger: Logger
    before: int = -1  # the last step that was noted when this process began,
    held: int = -1  # and the last one that the logger had
    rows: int = 0
    safe: int = 0
    has_begun: bool = False
    is_failing: bool = False

    def call(self, method: str, *args: int) -> int | None:
        """Call a method that the logger may have."""
        return getattr(self.logger, method)(*args) if hasattr(self.logger, method) else None


class Loggers:
    """Pass the rows of `metrics` on, of several ranks by the first one.

    The last step of each logger is noted in the folder of live files, so that none gets a step twice, and a logger that
    is added later gets all from the first step on.  A logger that fails ends no training, but for its first beginning:
    that is said, and what it did not take comes again with the next checkpoint.
    """

    def __init__(self, loggers: Sequence[Logger], metrics: Metrics) -> None:
        check_loggers(loggers)
        self._metrics, self._ranks = metrics, Processes()
        names = [type(each).__name__ for each in loggers]
        numbered = [f"{name} {names[:at].count(name) + 1}".removesuffix(" 1") for at, name in enumerate(names)]
        self._targets = [_Target(name, each) for name, each in zip(numbered, loggers, strict=True)]
        self._live: Path | None = None
        self._resumed_at = 0

    def open(self, ranks: Processes, live: Path | None, step: int) -> None:
        """Begin after what was logged before; the training resumes from `step`.  Without a folder nothing is noted."""
        self._ranks, self._live, self._resumed_at = ranks, live, step
        if not ranks.is_first:
            self._targets = []
        logged = FORMAT.found(live / FILE_NAME).get("logged", {}) if live else {}
        for target in self._targets:
            target.before = logged.get(target.name, -1)
            if target.before < 0:  # what is wrong with it is better known now
                self._begin(target)
            else:
                self._try(target, self._begin, target)

    def published(self, step: int) -> None:
        """Pass on the steps before that of a checkpoint, which itself may still get values."""
        self._pass_on(self._metrics.rows_before(step))

    def close(self, *, is_over: bool = False) -> None:
        """Close the loggers; if the training is over, they get all that is left."""
        if is_over:
            self._pass_on(self._metrics.size)
        for target in self._targets:
            if target.has_begun:
                self._try(target, target.call, "close")
        self._targets = []

    def _pass_on(self, end: int) -> None:
        for target in self._targets:
            if target.safe < end:
                self._try(target, self._pass_to, target, end)

    def _begin(self, target: _Target) -> None:
        before, step = target.before, self._resumed_at
        held = target.call("begin", min(before, step - 1))
        target.held = before if held is None else held
        target.rows = target.safe = self._metrics.rows_before(target.held + 1)
        target.has_begun = True
        if target.held > step:
            self._ranks.say(f"{target.name} has steps {step + 1} to {target.held} already; they are not logged again")

    def _pass_to(self, target: _Target, end: int) -> None:
        if not target.has_begun:
            self._begin(target)
        for _, step, values in self._metrics.rows(target.rows, end):
            if step > target.held:
                target.logger.log(step, values)
            target.rows += 1
        last = self._metrics.step_of(end - 1)
        if last > target.held:
            target.call("flush", last)
        target.safe, target.is_failing = end, False
        if self._live and last > target.before:
            path = self._live / FILE_NAME
            FORMAT.update(path, {"logged": {**FORMAT.found(path).get("logged", {}), target.name: last}})

    def _try(self, target: _Target, act: Callable[..., object], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:  # noqa: BLE001  (a tracker that is out of reach ends no training)
            if not target.is_failing:
                self._ranks.say(
                    f"loggers: {target.name}: {str(error) or repr(error)}; tried again at the next checkpoint"
                )
            target.is_failing = True


def check_loggers(loggers: object) -> None:
    """Raise TypeError for what is no list of loggers."""
    if not isinstance(loggers, list | tuple) or not all(callable(getattr(each, "log", None)) for each in loggers):
        raise TypeError(
            f"loggers={loggers!r}, allowed: a list of objects with a method log(step, metrics), such as "
            "[TensorBoard('board')] of unbroken.training.loggers"
        )
