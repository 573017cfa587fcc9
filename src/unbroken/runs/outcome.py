"""How an attempt at a segment can end."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """`FINISHED` and `PAUSED` settle a segment; the others leave it to be done."""

    FINISHED = "finished"  # the goal is reached
    PAUSED = "paused"  # its time is up and a newer checkpoint is there: the next segment goes on
    INTERRUPTED = "interrupted"  # told to leave early; what was done is saved, the same segment goes on
    FAILED = "failed"  # crashed, or neither finished nor left a newer checkpoint
    DIED = "died"  # the job itself was killed; written by its successor

    @property
    def settles(self) -> bool:
        return self in {Outcome.FINISHED, Outcome.PAUSED}


class EndCause(Enum):
    """Why an attempt ended as it did, where unbroken knows more than its outcome says."""

    KILLED_STOPPING = "killed while stopping"  # the program was asked to stop and had not saved when it was killed
    NO_RESULTS = "results not written"  # the goal is reached, and making `final/` failed
