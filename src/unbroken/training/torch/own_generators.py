"""Random generators that a data set holds itself, as transforms of albumentations 2 do."""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from unbroken.training.torch.random_state import GLOBAL, Generator, from_text, to_text

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
        if not isinstance(here, Generator):
            left.extend(_held_by(here))


def own_generators(*roots: object) -> list[Generator]:
    """Return the random generators that the objects hold, without the global ones."""
    found = (each for each in reachable(*roots) if isinstance(each, Generator))
    return [each for each in found if not isinstance(each, random.SystemRandom) and each not in GLOBAL]


class RandomKept(Dataset[Any]):
    """The samples of a data set, for a StatefulDataLoader whose workers draw random numbers.

    Also for a data set with a generator of its own, with or without workers.  torchdata saves the state of a data set
    for each worker process, and no random generators.  So here they are such a state: what is drawn goes on exactly
    after a restart in the middle of an epoch, with as many workers.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def state_dict(self) -> dict[str, Any]:
        # One value for each: torchdata would send the items of a dictionary in any order.
        return {"generators": list(map(to_text, self._generators()))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for generator, saved in zip(self._generators(), state["generators"], strict=False):
            from_text(generator, saved)

    def _generators(self) -> list[Generator]:
        # The global ones of the training's own process are in its state already.
        return [*(GLOBAL if get_worker_info() else ()), *own_generators(self.dataset)]


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
    return [each for each in found if isinstance(each, Generator)]


def _slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
