"""Reasons to stop a program, and how long before that a program with a clock of its own must stop."""

from __future__ import annotations

from enum import Enum

# A program that stops by its own clock begins so long before the request, at most a twentieth of its time.
LEAD_SECONDS = 1.0
LEAD_SHARE = 0.05
# srun and mpirun need a while to start the tasks, whose own clocks begin then.
LAUNCH_SECONDS = 15.0
LAUNCH_SHARE = 0.5


class StopReason(Enum):
    """Name the reason why the program was asked to stop."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that the time limit is near"
    TAKEN_AWAY = "preempted or canceled"
    CTRL_C = "stopped by Ctrl-C"
    HUNG_UP = "its terminal was closed"
    STALLED = "it does not advance"

    @property
    def is_interruption(self) -> bool:
        """Return True if the machine is wanted back, which is not the same as time being up."""
        return self in {StopReason.TAKEN_AWAY, StopReason.CTRL_C, StopReason.HUNG_UP}


def lead_seconds(left: float, *, is_launched: bool) -> float:
    """Return how long before the stop request a program that watches its own clock must leave.

    `is_launched` where a launcher starts its tasks, which also kills them when it receives a signal to end.
    """
    launching = min(LAUNCH_SECONDS, LAUNCH_SHARE * left) if is_launched else 0.0
    return launching + min(LEAD_SECONDS, LEAD_SHARE * left)
