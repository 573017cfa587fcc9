"""Nested containers, as states are: what they hold, and the same containers with other items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def mapped(value: Any, change: Callable[[Any, str], Any], where: str = "") -> Any:
    """Return a container with each item changed, which is told its place ("model/weight"); anything else as it is."""
    if isinstance(value, dict):
        fresh = type(value)()
        for key, item in value.items():
            fresh[key] = change(item, f"{where}/{key}")
        if hasattr(value, "_metadata"):  # torch.nn.Module keeps the format versions of its parts there
            fresh._metadata = value._metadata  # type: ignore[attr-defined]
        return fresh
    if type(value) in (list, tuple):
        return type(value)(change(item, f"{where}/{index}") for index, item in enumerate(value))
    return value


def leaves(value: object) -> Iterator[Any]:
    """Yield everything in nested containers that is no container."""
    if isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value
