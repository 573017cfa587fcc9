"""Random generators that a data set holds itself, as transforms of albumentations 2 do: found, seeded, kept."""

from __future__ import annotations

import functools
import json
import random
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.samplers import seed_from

Own = np.random.Generator | np.random.RandomState | random.Random | torch.Generator
# What is looked at: so many objects in all, so many of one container.
MOST_OBJECTS, MOST_ITEMS = 20_000, 1_000
_CONTAINERS = (list, tuple, set, frozenset, deque)
_LEAVES = (str, bytes, int, float, complex, type, types.ModuleType, np.ndarray, torch.Tensor, type(None))
# The methods in which a data set or a transform draws.
_METHODS = ("__getitem__", "__getitems__", "__iter__", "__call__", "forward")


def reachable(*roots: object) -> Iterator[object]:
    """Yield what the objects hold, themselves included, each once."""
    seen: dict[int, object] = {}
    left = deque(roots)
    while left and len(seen) < MOST_OBJECTS:
        here = left.popleft()
        if isinstance(here, _LEAVES) or id(here) in seen:
            continue
        seen[id(here)] = here
        yield here
        if not isinstance(here, Own):
            left.extend(_held_by(here))


def own_generators(*roots: object) -> list[Own]:
    """Return the random generators that the objects hold, without the global ones."""
    found = (each for each in reachable(*roots) if isinstance(each, Own) and not _is_global(each))
    return [each for each in found if not isinstance(each, random.SystemRandom)]


def seed_own(generators: Sequence[Own], seed: int) -> None:
    """Seed each of them, each by another number."""
    for number, generator in enumerate(generators):
        own = seed_from(seed, "own", number)
        match generator:
            case torch.Generator():
                generator.manual_seed(own)
            case random.Random():
                generator.seed(own)
            case np.random.RandomState():
                generator.seed(own % 2**32)
            case _:
                generator.bit_generator.state = type(generator.bit_generator)(own).state


@contextmanager
def own_kept(generators: Sequence[Own]) -> Iterator[None]:
    """What is drawn inside leaves no trace in the generators."""
    kept = [own_state(each) for each in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, kept, strict=True):
            restore_own(generator, state)


def own_state(generator: Own) -> str:
    """Return the state of a generator as JSON."""
    state: Any
    match generator:
        case torch.Generator():
            state = generator.get_state()
        case random.Random():
            state = generator.getstate()
        case np.random.RandomState():
            state = generator.get_state(legacy=False)
        case _:
            state = generator.bit_generator.state
    return json.dumps(state, default=lambda array: array.tolist(), sort_keys=True)


def restore_own(generator: Own, state: str) -> None:
    """Put back what `own_state` returned."""
    saved = json.loads(state)
    match generator:
        case torch.Generator():
            generator.set_state(torch.tensor(saved, dtype=torch.uint8))
        case random.Random():
            generator.setstate((saved[0], tuple(saved[1]), saved[2]))
        case np.random.RandomState():
            generator.set_state(saved)
        case _:
            generator.bit_generator.state = _with_arrays(generator.bit_generator.state, saved)


def _with_arrays(like: Any, value: Any) -> Any:
    if isinstance(like, dict):
        return {key: _with_arrays(each, value[key]) for key, each in like.items()}
    return np.array(value, dtype=like.dtype) if isinstance(like, np.ndarray) else value


def _held_by(here: object) -> Iterable[object]:
    if isinstance(here, dict):
        return islice(here.values(), MOST_ITEMS)
    if isinstance(here, _CONTAINERS):
        return islice(here, MOST_ITEMS)
    if isinstance(here, functools.partial):
        return here.func, here.args, here.keywords
    if isinstance(here, types.MethodType):
        return here.__self__, here.__func__
    if isinstance(here, types.FunctionType):
        return [*_in_cells(here), *_globals_of(here)]
    slots = [name for kind in type(here).__mro__ for name in _slots_of(kind)]
    methods = (getattr(type(here), name, None) for name in _METHODS)
    drawn = [each for method in methods if isinstance(method, types.FunctionType) for each in _globals_of(method)]
    return [*getattr(here, "__dict__", {}).values(), *(getattr(here, name, None) for name in slots), *drawn]


def _in_cells(function: types.FunctionType) -> list[object]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            continue
    return found


def _globals_of(function: types.FunctionType) -> list[object]:
    """The generators among the global names that a function uses; other globals belong to the script."""
    found = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [each for each in found if isinstance(each, Own)]


def _slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_global(generator: Own) -> bool:
    return any(generator is each for each in (torch.default_generator, _PYTHON, _NUMPY))


_PYTHON = random.random.__self__  # type: ignore[attr-defined]
_NUMPY = np.random.mtrand._rand
