"""Keep what a checkpoint says of a training next to its arrays, in JSON; standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError

FILE_NAME, FORMAT = "state.json", 3


def write_notes(folder: Path, notes: Mapping[str, Any]) -> None:
    """Write the notes of a checkpoint, the seed among them; numbers of numpy may be in them."""
    text = json.dumps({"format": FORMAT, **notes}, indent=1, default=lambda number: number.item())
    (folder / FILE_NAME).write_text(text + "\n")


def read_notes(folder: Path, seed: int) -> dict[str, Any]:
    """Return the notes; raise CheckpointError if they are damaged, of another format, or of another seed."""
    path = folder / FILE_NAME
    try:
        notes = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(notes, dict):
        raise CheckpointError(f"{path}: {type(notes).__name__}, allowed: an object")
    if notes.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: state format {notes.get('format')!r}, allowed here: {FORMAT}")
    if notes["seed"] != seed:
        raise CheckpointError(f"{folder}: made with seed={notes['seed']}, and the script has {seed}")
    return notes
