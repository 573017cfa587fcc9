"""Read what a program reports that no exit code can say: its checkpoint is bad, or continuing makes no sense."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.store.progress import read_told

# Of what is no verdict, so much is shown.
LONGEST_SHOWN = 200


class Kind(Enum):
    """The words of the file."""

    BAD_CHECKPOINT = "bad_checkpoint"  # the one that it was given to resume from; the one before is taken
    HOPELESS = "hopeless"  # what it computes has gone wrong; trying again would bring the same


@dataclass(frozen=True)
class Verdict:
    """A verdict and, in one line, its reason."""

    kind: Kind
    message: str


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write the file, never half; of several processes (ranks) that do it the last one counts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({"verdict": verdict.kind.value, "message": verdict.message}) + "\n")
    draft.replace(path)


def read_verdict(path: Path) -> Verdict | None:
    """Return the verdict in the file; None if there is none.  SegmentError says what is wrong with the file."""
    if not path.exists():
        return None
    allowed = " or ".join(f'"{kind.value}"' for kind in Kind)
    text = "a folder" if path.is_dir() else repr(path.read_text(errors="replace").strip()[:LONGEST_SHOWN])
    try:
        data = read_told(path)
        message = str(data["message"]).encode(errors="replace").decode()  # type: ignore[index]
        return Verdict(Kind(data["verdict"]), " ".join(message.split()))  # type: ignore[index]
    except (IsADirectoryError, ValueError, KeyError, TypeError) as error:
        raise SegmentError(
            f'the program left the verdict {text}, allowed: {{"verdict": {allowed}, "message": "why"}}'
        ) from error
