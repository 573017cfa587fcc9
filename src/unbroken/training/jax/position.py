"""Save where iterators and generators of random numbers are, in JSON: loading it runs no code."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unbroken.errors import CheckpointError

# As Grain and numpy.random, PyTorch's StatefulDataLoader, and random.Random call it.
_METHODS = (("get_state", "set_state"), ("state_dict", "load_state_dict"), ("getstate", "setstate"))


class Positions:
    """Hold what changes in place on the host: iterators over data, and random generators, by name."""

    def __init__(self, data: Any) -> None:
        named = data if isinstance(data, Mapping) else {} if data is None else {"data": data}
        self._parts = {name: _methods(name, part) for name, part in named.items()}
        self.state()  # what has no form in JSON is better known now

    def state(self) -> dict[str, Any]:
        """Return all positions, in JSON's terms; raise TypeError for a state that has no form in it."""
        return {name: encode(get(), name) for name, (get, _) in self._parts.items()}

    def restore(self, saved: Mapping[str, Any], source: str) -> None:
        """Go to saved positions; raise CheckpointError if they belong to others, or are not taken over."""
        if saved.keys() != self._parts.keys():
            then, now = (", ".join(sorted(names)) or "none" for names in (saved, self._parts))
            raise CheckpointError(f"{source}: has the position of {then}, and Training(data=...) is given {now}")
        for name, (get, set_) in self._parts.items():
            try:
                set_(decode(saved[name]))
            except Exception as error:  # whatever an iterator makes of a position that is not its own
                raise CheckpointError(f"{source}: {name} does not take its position back: {error}") from error
            if encode(get(), name) != saved[name]:
                raise CheckpointError(f"{source}: {name} has another position after it was put back: it cannot go on")


def _methods(name: str, part: Any) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Return how to read and to set a position; raise TypeError for what has none."""
    if isinstance(part, np.random.Generator):
        bits = part.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    for get, set_ in _METHODS:
        if callable(getattr(part, get, None)) and callable(getattr(part, set_, None)):
            return getattr(part, get), getattr(part, set_)
    hint = "type iter(...)" if hasattr(part, "__iter__") and not hasattr(part, "__next__") else "see engines/jax.md"
    raise TypeError(
        f"Training(data=...): {name} is a {type(part).__name__}, whose position cannot be saved; allowed: an iterator "
        "of Grain, one with get_state and set_state or state_dict and load_state_dict, a generator of random numbers, "
        f"or a dictionary of them; {hint}"
    )


# --- JSON ---


def encode(value: Any, where: str) -> Any:
    """Return a value in JSON's terms, exactly; raise TypeError with the place of what has no such form.

    What JSON has not itself becomes a dictionary of one item: the name of its kind, and its content.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {"dict": [[encode(key, where), encode(item, f"{where}.{key}")] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [encode(item, f"{where}[{number}]") for number, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OV":
        np.save(file := io.BytesIO(), value, allow_pickle=False)
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {kind: base64.b64encode(file.getvalue()).decode()}
    raise TypeError(
        f"Training(data=...): the state of {where} is a {type(value).__name__}, allowed: numbers, text, bytes, arrays "
        "of numpy, None, and lists, tuples and dictionaries of them"
    )


def decode(value: Any) -> Any:
    """Return what was given to `encode`; of a dictionary of another kind a plain one."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in ("dict", "tuple"):
        return (dict if kind == "dict" else tuple)(decode(content))
    data = base64.b64decode(content)
    if kind == "bytes":
        return data
    array = np.load(io.BytesIO(data), allow_pickle=False)
    return array if kind == "array" else array[()]
