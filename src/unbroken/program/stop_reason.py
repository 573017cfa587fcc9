"""Why a program is told to leave."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """Why the program was told to leave."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that the time limit is near"
    TAKEN_AWAY = "preempted or cancelled"
    STALLED = "it does not advance"
