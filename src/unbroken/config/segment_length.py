"""`segment_minutes`: one number, or the least and the most that a job may get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unbroken.config.location import Spot
from unbroken.config.schema import Schema, SettingKey
from unbroken.runs.run import Run

KEY, LEAST, MOST = "segment_minutes", "at_least", "at_most"


def lengths(schema: Schema, written: Any) -> tuple[float, float | None]:
    """Minutes: the most that a segment may take, and the least that is accepted; None where only one is written."""
    if not isinstance(written, Mapping):
        return written, None
    parts = {name: SettingKey(name, part) for name, part in schema.keys[KEY].schema["properties"].items()}
    least, most = (parts[name].settled(written[name]) for name in (LEAST, MOST))
    return most, least  # type: ignore[return-value]  # the schema has found numbers


def mistakes(run: Run, spot: Spot) -> Iterator[str]:
    """The least is not more than the most."""
    if run.least_minutes is not None and run.least_minutes > run.segment_minutes:
        found = f"found {run.least_minutes:g}, but {MOST} is {run.segment_minutes:g}"
        yield f"{spot.at(KEY, LEAST)}: {found}; allowed: at most {run.segment_minutes:g}"
