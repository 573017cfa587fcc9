"""Keep what a framework's own loop logs: in the live files, in each checkpoint, and for the loggers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.training.core.delivery import Loggers
from unbroken.training.core.live_log import Live
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.process_group import Processes
from unbroken.training.core.session import Connection
from unbroken.training.loggers import Logger

# In a checkpoint, next to the framework's own files.
FILE_NAME = "unbroken_metrics.json"


class FrameworkLog:
    """Log the metrics of a training whose loop is the framework's; all ranks may call it, and the first one logs.

    Make it before the loop, call `open` once the ranks are known and the checkpoint is chosen, `log` for each step with
    metrics, `write` on the first rank for each checkpoint, `finish` before the last one is handed over, and `close`
    before the process leaves.
    """

    def __init__(self, loggers: Sequence[Logger] = ()) -> None:
        self.metrics = Metrics()
        self._loggers = Loggers(loggers, self.metrics)
        self._live: Live | None = None
        self._link: Connection | None = None
        self._is_over = False

    def open(self, ranks: Processes, link: Connection | None) -> None:
        """Take back what the checkpoint holds; without a connection nothing is saved, and all is logged at once."""
        self._link, step = link, 0
        if link:
            saved = _read(link.contract.resume)
            step = saved.pop("step", 0)
            if saved:
                self.metrics.restore(**saved)
            link.pace.when_saved = self._published
            if ranks.is_first:
                self._live = Live(link.contract.live)
                self._live.cut_back(self.metrics, step)
        self._loggers.open(ranks, link.contract.live if link else None, step)

    def log(self, step: int, metrics: Mapping[str, object], epoch: int = 0) -> None:
        """Note the numbers among the metrics of a step; steps never go back."""
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        if numbers:
            self.metrics.add(epoch, step, numbers)
        if self._live:
            self._live.write(self.metrics)
        if self._link is None:
            self._published(step)

    def write(self, draft: Path, step: int) -> None:
        """Write what the checkpoint of a step has to hold."""
        state = {name: list(numbers) for name, numbers in self.metrics.arrays().items()}
        (draft / FILE_NAME).write_text(json.dumps({"step": step, "names": self.metrics.names, **state}) + "\n")

    def finish(self) -> None:
        """Note that the training is over: the last checkpoint follows, or none where nothing is saved."""
        self._is_over = True
        if self._live:
            self._live.write(self.metrics, is_over=True)
        if self._link is None:
            self._loggers.close(is_over=True)

    def close(self) -> None:
        """Close the loggers: the process leaves."""
        self._loggers.close()

    def _published(self, step: int) -> None:
        if self._is_over:
            self._loggers.close(is_over=True)
        else:
            self._loggers.published(step)


def _read(checkpoint: Path | None) -> dict[str, Any]:
    """Return what `write` wrote; nothing where another program made the checkpoint."""
    path = checkpoint / FILE_NAME if checkpoint else None
    return dict(json.loads(path.read_text())) if path and path.exists() else {}
