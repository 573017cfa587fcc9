"""Why a program is told to leave."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """Why the program was told to leave."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that the time limit is near"
    TAKEN_AWAY = "preempted or canceled"
    CTRL_C = "stopped by Ctrl-C"
    HUNG_UP = "its terminal was closed"
    STALLED = "it does not advance"

    @property
    def is_interruption(self) -> bool:
        """True if somebody wants the machine back, which is not the same as time being up."""
        return self in {StopReason.TAKEN_AWAY, StopReason.CTRL_C, StopReason.HUNG_UP}
