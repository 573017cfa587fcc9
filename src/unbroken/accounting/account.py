"""The account: every second of a run from its first submission on, by what it was spent on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from unbroken.runs.history import Attempt


class Kind(Enum):
    """What a second of a run was spent on; where two would fit, the one that stands first here counts."""

    USEFUL = "useful work"  # the program advanced, and what it did is in a checkpoint or still may be
    LOST = "lost"  # it advanced, and was killed or failed before it was saved
    SAVING = "saving"  # the program stood still to save
    PUBLISHING = "publishing"  # the program had ended; its last state was made a checkpoint and recorded
    SUSPENDED = "suspended"  # the job had its nodes and was stopped (scontrol suspend, SIGSTOP)
    STARTING = "starting"  # from the start of the job to the program's first step
    UNUSED = "unused"  # from the end of the segment to the end of its job
    QUEUED = "queued"  # submitted and eligible, not started
    IDLE = "idle"  # nobody had submitted, or the job was held
    UNKNOWN = "unknown"  # attempts from before these times were kept


# What a cluster charges for.
ALLOCATED = (
    Kind.USEFUL,
    Kind.LOST,
    Kind.SAVING,
    Kind.PUBLISHING,
    Kind.SUSPENDED,
    Kind.STARTING,
    Kind.UNUSED,
)


@dataclass(frozen=True)
class Span:
    """An interval of one kind, in Unix seconds; `token` is the attempt that it belongs to, 0 if to none."""

    kind: Kind
    begin: float
    end: float
    token: int = 0


@dataclass(frozen=True)
class Waiting:
    """A job of the run that is out and has not started yet, in Unix seconds; `eligible` is None while it is held."""

    submitted: float
    eligible: float | None = None


@dataclass(frozen=True)
class Account:
    """The spans are in order, do not overlap, and cover all from `begin` to `end`; seconds are their sums."""

    begin: float
    end: float
    spans: tuple[Span, ...]
    seconds: Mapping[Kind, float]
    kills: int  # attempts that were killed or failed after they had begun to work

    @property
    def goodput(self) -> float | None:
        """The share of useful work in the time that the cluster charges for; None before there is any."""
        allocated = sum(self.seconds.get(kind, 0.0) for kind in ALLOCATED)
        return self.seconds.get(Kind.USEFUL, 0.0) / allocated if allocated else None


def account(attempts: Sequence[Attempt], until: float, waiting: Sequence[Waiting] = ()) -> Account:
    """The account of a run up to `until` (Unix seconds); of one that is at work the last attempt is the live one."""
    raise NotImplementedError
