"""Record what a framework's own loop logs: live, in each checkpoint, and for the loggers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.training.core.process_group import Processes
from unbroken.training.core.run_log import RunLog
from unbroken.training.core.session import Connection
from unbroken.training.loggers import Logger

# In a checkpoint, next to the framework's own files.
FILE_NAME = "unbroken_metrics.json"


class FrameworkLog(RunLog):
    """Record the metrics of a training whose loop is the framework's.

    Call `begin` once the ranks are known and the checkpoint is chosen, `log` for each step with metrics, `write` on the
    first rank for each checkpoint, `finish` before the last one is handed over, and `close` before the process leaves.
    """

    _is_saved = False

    def __init__(self, loggers: Sequence[Logger] = ()) -> None:
        super().__init__(Processes(), loggers)

    def begin(self, ranks: Processes, link: Connection | None) -> None:
        """Take back what the checkpoint holds; without a connection nothing is saved, and all is passed on at once."""
        self._processes, self._is_saved = ranks, link is not None
        saved = _read(link.contract.resume if link else None)
        step = saved.pop("step", 0)
        if saved:
            self.metrics.restore(**saved)
        if link:
            link.pace.when_saved = self.published
        self.open(step, link.contract.live if link else None)

    def log(self, step: int, metrics: Mapping[str, object], epoch: int = 0) -> None:
        """Note the numbers among the metrics of a step; steps never go back."""
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        if numbers:
            self.metrics.add(epoch, step, numbers)
        self.show()
        if not self._is_saved:
            self.published(step)

    def write(self, draft: Path, step: int) -> None:
        """Write what the checkpoint of a step has to hold."""
        state = {name: list(numbers) for name, numbers in self.metrics.arrays().items()}
        (draft / FILE_NAME).write_text(json.dumps({"step": step, "names": self.metrics.names, **state}) + "\n")

    def finish(self) -> None:
        """Note that the training is over: the last checkpoint follows, or none where nothing is saved."""
        self.end()
        if not self._is_saved:
            self.published(0)


def _read(checkpoint: Path | None) -> dict[str, Any]:
    """Return what `write` wrote; nothing where another program made the checkpoint."""
    path = checkpoint / FILE_NAME if checkpoint else None
    return dict(json.loads(path.read_text())) if path and path.exists() else {}
