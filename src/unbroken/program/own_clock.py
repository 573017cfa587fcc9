"""For programs that leave by their own clock: how long before they would be told to stop."""

from __future__ import annotations

# A program that leaves by its own clock begins so long before it would be told, at most a twentieth of what it has.
LEAD_SECONDS = 1.0
LEAD_SHARE = 0.05
# srun and mpirun need a while to start the tasks, whose own clocks begin then.
LAUNCH_SECONDS = 15.0
LAUNCH_SHARE = 0.5


def lead_seconds(left: float, is_launched: bool) -> float:
    """How long before it would be told to stop a program that watches its own clock is to leave.

    `is_launched` where a launcher starts its tasks, which also kills them when it is told by force.
    """
    launching = min(LAUNCH_SECONDS, LAUNCH_SHARE * left) if is_launched else 0.0
    return launching + min(LEAD_SECONDS, LEAD_SHARE * left)
