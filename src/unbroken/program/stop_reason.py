"""Why a program is told to leave."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """Why the program was told to leave."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that its time is nearly up"
    TAKEN_AWAY = "a signal took the machine away"
    STALLED = "it does not advance"
