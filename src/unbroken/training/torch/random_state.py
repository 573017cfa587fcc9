"""Find, read, seed and restore random generators, and run code that leaves no trace in them."""

from __future__ import annotations

import functools
import json
import random
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from unbroken.training.torch.state import RandomGenerator, mapped

# What a data set may hold.
Generator = RandomGenerator | np.random.RandomState | random.Random

_PYTHON: random.Random = random.random.__self__  # type: ignore[attr-defined]
_NUMPY: np.random.RandomState = np.random.mtrand._rand
# The global ones on the CPU.
GLOBAL: tuple[Generator, ...] = (_PYTHON, _NUMPY, torch.default_generator)


def state_of(generator: Generator) -> Any:
    """Return the state of a generator in its library's own form."""
    match generator:
        case torch.Generator():
            return generator.get_state()
        case random.Random():
            return generator.getstate()
        case np.random.RandomState():
            return generator.get_state(legacy=False)
    return generator.bit_generator.state


def restore(generator: Generator, state: Any) -> None:
    """Put back what `state_of` returned."""
    match generator:
        case torch.Generator():
            generator.set_state(state)
        case random.Random():
            generator.setstate(state)
        case np.random.RandomState():
            generator.set_state(state)
        case _:
            generator.bit_generator.state = state


def seed(generators: Iterable[Generator], seeds: Iterable[int]) -> None:
    """Seed each generator with its own seed."""
    for generator, number in zip(generators, seeds, strict=False):
        match generator:
            case torch.Generator():
                generator.manual_seed(number)
            case random.Random():
                generator.seed(number)
            case np.random.RandomState():
                generator.seed(number % 2**32)
            case _:
                generator.bit_generator.state = type(generator.bit_generator)(number).state


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators; call it before the model is made."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def kept(generators: Iterable[Generator] = GLOBAL) -> Iterator[None]:
    """Let nothing that is drawn inside leave a trace in the generators, by default the global ones on the CPU."""
    states = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    finally:
        for generator, state in states:
            restore(generator, state)


@contextmanager
def all_kept(given: Mapping[str, RandomGenerator]) -> Iterator[None]:
    """Let nothing that is drawn inside leave a trace in the global generators, on GPUs too, and in those given."""
    before = collect(given)
    try:
        yield
    finally:
        restore_all(before, given)


def to_text(generator: Generator) -> str:
    """Return the state of a generator as JSON."""
    return json.dumps(state_of(generator), default=lambda array: np.asarray(array).tobytes().hex(), sort_keys=True)


def from_text(generator: Generator, text: str) -> None:
    """Put back what `to_text` returned."""
    restore(generator, _like(state_of(generator), json.loads(text)))


def _like(form: Any, value: Any) -> Any:
    """Return a value from JSON in the form of another state."""
    if isinstance(form, dict):
        return {key: _like(each, value[key]) for key, each in form.items()}
    if isinstance(form, tuple):
        return tuple(_like(each, item) for each, item in zip(form, value, strict=True))
    if isinstance(form, (np.ndarray, torch.Tensor)):
        array = np.frombuffer(bytearray.fromhex(value), dtype=np.asarray(form).dtype)
        return torch.from_numpy(array) if isinstance(form, torch.Tensor) else array
    return value


def collect(given: Mapping[str, RandomGenerator]) -> dict[str, object]:
    """Return the state of all random generators: the global ones, on the CPU and on each GPU, and those given."""
    # Asking starts CUDA, so it is not asked where it was not used.
    is_used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": state_of(_PYTHON),
        "numpy": _with_tensors(state_of(_NUMPY)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if is_used else [],
        "cuda_own": torch.cuda.get_rng_state() if is_used else None,  # of the device that this rank works on
        "generators": {name: _with_tensors(state_of(generator)) for name, generator in given.items()},
    }


def restore_all(state: Mapping[str, Any], given: Mapping[str, RandomGenerator]) -> None:
    """Put back what `collect` returned, and print a line where a GPU of then is missing now.

    A rank that works on another device than then has its own random numbers there.
    """
    restore(_PYTHON, state["python"])
    restore(_NUMPY, _with_arrays(state["numpy"]))
    torch.set_rng_state(state["torch"])
    here = torch.cuda.device_count() if state["cuda"] else 0
    for index, cuda_state in enumerate(state["cuda"][:here]):
        torch.cuda.set_rng_state(cuda_state, index)
    if here and state.get("cuda_own") is not None:
        torch.cuda.set_rng_state(state["cuda_own"])
    if here < len(state["cuda"]):
        print(f"unbroken: GPUs {len(state['cuda'])} -> {here} since this was saved: random numbers will differ")
    for name, generator in given.items():
        _restore_given(name, generator, state["generators"][name])


def reseeded(number: int, given: Mapping[str, RandomGenerator]) -> dict[str, Any]:
    """Return the state that the global generators and those given would have if they were seeded; they stay as are."""
    with all_kept(given):
        seed_everything(number)
        seed(given.values(), count(number + 1))
        return collect(given)


def _restore_given(name: str, generator: RandomGenerator, state: Any) -> None:
    if not isinstance(generator, torch.Generator):
        restore(generator, _with_arrays(state))
    elif state.numel() == generator.get_state().numel():
        restore(generator, state)
    else:  # each kind of device has a generator of its own kind
        print(f"unbroken: {name} was the generator of another kind of device than {generator.device}: it begins anew")


def _with_tensors(state: Any, _: str = "") -> Any:
    """Return a state with tensors in place of numpy's arrays, which cannot be read back safely."""
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else mapped(state, _with_tensors)


def _with_arrays(state: Any, _: str = "") -> Any:
    return state.numpy() if isinstance(state, torch.Tensor) else mapped(state, _with_arrays)


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
    """Wrap the samples of a data set for a StatefulDataLoader whose workers draw random numbers.

    Use it too for a data set with a generator of its own, with or without workers.  torchdata saves the state of a data
    set for each worker process, and no random generators.  Here the generators are such a state: after a restart in the
    middle of an epoch, with as many workers, the same numbers are drawn as without it.
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
    """Return the generators among the global names that a function uses; other globals belong to the script."""
    found = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [each for each in found if isinstance(each, Generator)]


def _slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
