"""The parts of a training's state, as a user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Part = TypeVar("Part")


def together(given: Mapping[str, Part], state: Mapping[str, Part]) -> dict[str, Part]:
    """The keywords of Training and its `state`; TypeError names what stands in both."""
    if twice := sorted(given.keys() & state.keys()):
        raise TypeError(f"Training(..., state=...): {', '.join(twice)} stands in both, allowed: one of them")
    return {**given, **state}
