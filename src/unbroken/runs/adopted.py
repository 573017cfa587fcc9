"""What a run took over that ran elsewhere before: from where, what of it was checked, and what is not as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError, ConfigError
from unbroken.system import fs, jsontext

# The segment of a checkpoint that no segment made; those of the run begin at 1.
SEGMENT = 0
# In a run's folder while a checkpoint is being taken over.
UNFINISHED = "adopting.txt"
# In a checkpoint that a training library is to go on from although it has not made it.
HANDED = "adopted.json"
_KEYS = ("checked", "not_checked", "lost")


@dataclass(frozen=True)
class Adopted:
    """Said in the passport of a checkpoint that was taken over, and of all that were made from it."""

    source: str
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # of the state, because the program had not saved it

    def to_json(self) -> dict[str, object]:
        return {"from": self.source, **{key: list(getattr(self, key)) for key in _KEYS}}


def parse_adopted(data: object, source: str) -> Adopted:
    """The same from decoded JSON; CheckpointError if something else stands there."""
    if not isinstance(data, Mapping) or set(data) != {"from", *_KEYS} or not isinstance(data["from"], str):
        raise CheckpointError(f"{source}: 'adopted' is malformed, allowed: from, {', '.join(_KEYS)}")
    lists = [data[key] for key in _KEYS]
    if not all(isinstance(each, list) and all(isinstance(line, str) for line in each) for each in lists):
        raise CheckpointError(f"{source}: 'adopted' is malformed, allowed: lists of text")
    return Adopted(data["from"], *(tuple(each) for each in lists))


def refuse_unfinished(run: str, root: Path) -> None:
    """ConfigError where an adoption was killed: its run has no checkpoint yet, and must not begin at the start."""
    try:
        source = (root / UNFINISHED).read_text().strip()
    except FileNotFoundError:
        return
    raise ConfigError(
        [
            f"runs.{run}: the adoption of {source} did not come to its end, and the run has no checkpoint; type: "
            f"unbroken adopt {run} --from {source} (or begin at the start: unbroken restart {run})"
        ]
    )


@dataclass(frozen=True)
class Handed:
    """What a training library finds in a checkpoint that was adopted: the user's own file, and where that is."""

    path: str  # in the checkpoint's folder; "." for the folder itself
    epoch: int  # so many are finished
    step: int = 0

    def write(self, folder: Path) -> None:
        """Beside the user's files, of which none may have the name."""
        fs.write_new(folder / HANDED, json.dumps(vars(self)) + "\n")


def read_handed(resume: Path | None) -> Handed | None:
    """The same of a checkpoint; None where that is the training's own.  CheckpointError if it cannot be read."""
    if resume is None:
        return None
    path = resume / HANDED
    try:
        data = jsontext.parse(path.read_text())
        return Handed(str(data["path"]), int(data["epoch"]), int(data["step"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error!r})") from error
