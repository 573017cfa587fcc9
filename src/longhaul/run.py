"""One run as the configuration describes it: plain values, standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A long computation; every default stands in the schema, so none stands here."""

    name: str
    engine: str
    segments: int
    segment_minutes: float
    place: str
    note: str
    threads: int
    mem_mb: int
    gpus: int
    keep: int
    milestone_every: int
    save_minutes: float
    stall_minutes: float | None
    first_margin_seconds: float | None
    attempts_without_progress: int
    modules: tuple[str, ...]
    enter: tuple[str, ...]
    settings: Mapping[str, object]

    @property
    def goal(self) -> float | None:
        """The goal in the engine's unit; None where only the program itself knows it."""
        goal = self.settings.get("goal")
        return goal if isinstance(goal, (int, float)) else None
