"""Keep what a checkpoint says of a training next to its arrays, in JSON; standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError
from unbroken.training.core.position import Course
from unbroken.training.core.run_log import Book

FILE_NAME, FORMAT = "state.json", 3


def write_notes(folder: Path, notes: Mapping[str, Any]) -> None:
    """Write the notes of a checkpoint; numbers of numpy may be in them."""
    (folder / FILE_NAME).write_text(json.dumps(notes, indent=1, default=lambda number: number.item()) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file that was written; raise CheckpointError if it is damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: {type(found).__name__}, allowed: an object")
    return found


def notes_of(seed: int, course: Course, book: Book) -> dict[str, Any]:
    """Return what is the same in all frameworks, as it is now."""
    metrics = {name: list(numbers) for name, numbers in book.metrics.arrays().items()}
    return {
        "format": FORMAT,
        "seed": seed,
        "position": {**vars(course.position)},
        "watch": book.watch.state(),
        "metrics": {"names": [*book.metrics.names], **metrics},
    }


def check(notes: Mapping[str, Any], seed: int, folder: Path) -> None:
    """Raise CheckpointError for a checkpoint of another format, or another seed."""
    if notes.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: state format {notes.get('format')!r}, allowed here: {FORMAT}")
    if notes["seed"] != seed:
        raise CheckpointError(f"{folder}: made with seed={notes['seed']}, and the script has {seed}")


def take_over(notes: Mapping[str, Any], course: Course, book: Book) -> None:
    """Go on from what `notes_of` returned."""
    course.restore(notes["position"])
    book.watch.restore(notes["watch"])
    book.metrics.restore(**notes["metrics"])
