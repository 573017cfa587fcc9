"""The kinds of time that a run is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a second of a run was spent on; where two would fit, the one that stands first here counts."""

    USEFUL = "useful work"  # the program advanced, and what it did is in a checkpoint or still may be
    LOST = "lost"  # it advanced, and was killed, failed or set back before that was of use
    SAVING = "saving"  # the program stood still to save
    PUBLISHING = "publishing"  # the program had ended; its last state was made a checkpoint and recorded
    SUSPENDED = "suspended"  # the job had its nodes and was stopped (scontrol suspend, SIGSTOP)
    STARTING = "starting"  # from the start of the job to the program's first step
    UNUSED = "unused"  # from the end of the segment to the end of its job
    QUEUED = "queued"  # submitted and eligible, not started
    IDLE = "idle"  # nobody had submitted, or the job was held
    UNKNOWN = "unknown"  # attempts from before these times were kept


@dataclass(frozen=True)
class Span:
    """An interval of one kind, in Unix seconds; `token` is the attempt that it belongs to, 0 if to none."""

    kind: Kind
    begin: float
    end: float
    token: int = 0
