"""What the callbacks of `model.fit` remember, as it stands in a checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np


def callback_states(callbacks: Sequence[Any]) -> list[list[Any]]:
    """What the callbacks remember in numbers, text, and lists and dictionaries of them.

    Not what they are made with: Keras turns the sign of `min_delta` when the training begins.
    """
    return [[type(callback).__name__, _memory(callback)] for callback in callbacks]


def restore_callbacks(callbacks: Sequence[Any], states: Sequence[Sequence[Any]]) -> bool:
    """Puts back what `callback_states` returned; False if the callbacks are others."""
    if [type(callback).__name__ for callback in callbacks] != [name for name, _ in states]:
        return False
    for callback, (_, items) in zip(callbacks, states, strict=True):
        for name, value in items.items():
            setattr(callback, name, value)
    return True


def _memory(callback: Any) -> dict[str, Any]:
    settings = {"params", "_params", *inspect.signature(type(callback)).parameters}
    found = {name: _plain(value) for name, value in vars(callback).items() if name not in settings}
    return {name: value[0] for name, value in found.items() if value is not None}


def _plain(value: Any) -> tuple[Any] | None:
    """The value in JSON's terms, in a tuple; None if it has no such form."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return (value,)
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return (value.item(),)
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return None if None in items else ([item[0] for item in items if item],)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = {key: _plain(item) for key, item in value.items()}
        return None if None in pairs.values() else ({key: item[0] for key, item in pairs.items() if item},)
    return None
