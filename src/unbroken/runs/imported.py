"""Record what a run has imported: where it came from, what was checked, and how a training finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unbroken.errors import CheckpointError

# The segment of an imported checkpoint; those of the run begin at 1.
SEGMENT = 0
# In a run's folder while an import is under way.
UNFINISHED = "importing.txt"


@dataclass(frozen=True)
class Imported:
    """Say where a run's first checkpoint came from; part of the manifest of that one and of all later ones.

    Where the user typed how far it is, `path` names the user's file in that first checkpoint, "." for the folder.
    """

    source: str
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    path: str = ""
    epoch: int = 0  # so many are finished
    step: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the object of the manifest."""
        lines = {"from": self.source, "checked": list(self.checked), "not_checked": list(self.not_checked)}
        return {**lines, "path": self.path, "epoch": self.epoch, "step": self.step}


def parse_imported(data: Mapping[str, object], source: str) -> Imported:
    """Return what `to_json` wrote; raise CheckpointError if it is something else."""
    match data:
        case {
            "from": str(origin),
            "checked": list(checked),
            "not_checked": list(not_checked),
            "path": str(path),
            "epoch": int(epoch),
            "step": int(step),
        } if len(data) == 6 and all(isinstance(line, str) for line in [*checked, *not_checked]):
            return Imported(origin, tuple(checked), tuple(not_checked), path, epoch, step)
    allowed = "from, path (texts), checked, not_checked (lists), epoch, step (numbers)"
    raise CheckpointError(f"{source}: 'imported' is malformed, allowed: {allowed}")
