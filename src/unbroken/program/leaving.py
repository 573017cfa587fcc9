"""Why a program is told to leave, and how long before that one with a clock of its own is to leave."""

from __future__ import annotations

from enum import Enum

# A program that leaves by its own clock begins so long before it would be told, at most a twentieth of what it has.
LEAD_SECONDS = 1.0
LEAD_SHARE = 0.05
# srun and mpirun need a while to start the tasks, whose own clocks begin then.
LAUNCH_SECONDS = 15.0
LAUNCH_SHARE = 0.5


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
        """Return True if somebody wants the machine back, which is not the same as time being up."""
        return self in {StopReason.TAKEN_AWAY, StopReason.CTRL_C, StopReason.HUNG_UP}


def lead_seconds(left: float, *, is_launched: bool) -> float:
    """Return how long before it would be told to stop a program that watches its own clock is to leave.

    `is_launched` where a launcher starts its tasks, which also kills them when it is told by force.
    """
    launching = min(LAUNCH_SECONDS, LAUNCH_SHARE * left) if is_launched else 0.0
    return launching + min(LEAD_SECONDS, LEAD_SHARE * left)
