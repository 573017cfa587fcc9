"""Records what a run has imported: where it came from, what was checked, and how a training finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.formats import Format
from unbroken.system import fs

# The segment of an imported checkpoint; those of the run begin at 1.
SEGMENT = 0
# In a run's folder while an import is under way.
UNFINISHED = "importing.txt"
# In an imported checkpoint whose progress was typed.
NOTE = "imported.json"
FORMAT = Format()


@dataclass(frozen=True)
class Imported:
    """Say where a run's first checkpoint came from; part of the manifest of that one and of all later ones."""

    source: str
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the object of the manifest."""
        return {"from": self.source, "checked": list(self.checked), "not_checked": list(self.not_checked)}


def parse_imported(data: Mapping[str, object], source: str) -> Imported:
    """Return what `to_json` wrote; raise CheckpointError if it is something else."""
    match data:
        case {"from": str(origin), "checked": list(checked), "not_checked": list(not_checked)}:
            if len(data) == 3 and all(isinstance(line, str) for line in [*checked, *not_checked]):
                return Imported(origin, tuple(checked), tuple(not_checked))
    raise CheckpointError(f"{source}: 'imported' is malformed, allowed: from (text), checked, not_checked (lists)")


@dataclass(frozen=True)
class ImportNote:
    """Hold the note for a training library on a checkpoint that it did not write: the user's files and progress."""

    path: str  # in the checkpoint's folder; "." for the folder itself
    epoch: int = 0  # so many are finished
    step: int = 0

    def write(self, folder: Path) -> None:
        """Write the note into the draft of a checkpoint."""
        fs.write_new(folder / NOTE, FORMAT.text(vars(self)))


def read_import_note(resume: Path | None) -> ImportNote | None:
    """Return the note of a checkpoint; None if it has none.  Raise CheckpointError if it cannot be read."""
    if resume is None:
        return None
    path = resume / NOTE
    try:
        data = FORMAT.read(path)
        return ImportNote(str(data["path"]), int(data["epoch"]), int(data["step"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error!r})") from error
