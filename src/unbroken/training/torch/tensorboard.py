"""Write for TensorBoard, without the steps that a killed attempt had written and the next one writes again."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unbroken.training.core.run_log import Book

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


def open_board(book: Book, step: int, folder: Path | None) -> SummaryWriter:
    """Return a SummaryWriter that gets all metrics of the book, from `step` on; later events are purged.

    The default folder is `tensorboard` next to the other live files, or here if nothing is saved.
    """
    # Imported on demand, because it takes a second to load.
    from torch.utils.tensorboard import SummaryWriter

    target = folder or (book.folder or Path()) / "tensorboard"
    writer = SummaryWriter(str(target), purge_step=step)

    def show(at: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, at)

    # At the step of the checkpoint some metrics were logged before it and some after: the first are written again.
    for row in book.metrics.table():
        if row["step"] >= step:
            show(int(row["step"]), {name: value for name, value in row.items() if name not in ("epoch", "step")})
    book.listeners.append(show)
    atexit.register(writer.close)
    return writer
