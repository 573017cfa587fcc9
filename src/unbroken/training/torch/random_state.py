"""Find, read, seed and restore random generators, and run code that leaves no trace in them."""

from __future__ import annotations

import gc
import random
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count, islice
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.state import RandomGenerator, mapped

_PYTHON: random.Random = random.random.__self__  # type: ignore[attr-defined]
_NUMPY: np.random.RandomState = np.random.mtrand._rand
# The global ones on the CPU.
GLOBAL: tuple[RandomGenerator, ...] = (_PYTHON, _NUMPY, torch.default_generator)
_NAMES = ("python", "numpy", "torch")


def _state_of(generator: RandomGenerator) -> Any:
    match generator:
        case torch.Generator():
            return generator.get_state()
        case random.Random():
            return generator.getstate()
        case np.random.RandomState():
            return generator.get_state(legacy=False)
    return generator.bit_generator.state


def _set_state(generator: RandomGenerator, state: Any) -> None:
    match generator:
        case torch.Generator():
            generator.set_state(state)
        case random.Random():
            generator.setstate(state)
        case np.random.RandomState():
            generator.set_state(state)
        case np.random.Generator():
            generator.bit_generator.state = state


def seed(generators: Iterable[RandomGenerator], seeds: Iterable[int]) -> None:
    """Seed each generator with its own seed."""
    for generator, number in zip(generators, seeds, strict=False):
        match generator:
            case torch.Generator():
                generator.manual_seed(number)
            case random.Random():
                generator.seed(number)
            case np.random.RandomState():
                generator.seed(number % 2**32)
            case np.random.Generator():
                generator.bit_generator.state = type(generator.bit_generator)(number).state


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators; call it before the model is made."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def kept(generators: Iterable[RandomGenerator] = GLOBAL) -> Iterator[None]:
    """Let nothing that is drawn inside leave a trace in the generators, by default the global ones on the CPU."""
    states = [(generator, _state_of(generator)) for generator in generators]
    try:
        yield
    finally:
        for generator, state in states:
            _set_state(generator, state)


def all_kept(given: Mapping[str, RandomGenerator]) -> AbstractContextManager[None]:
    """Let nothing that is drawn inside leave a trace in the global generators, on GPUs too, and in those given."""
    on_gpus = torch.cuda.default_generators if _is_cuda_used() else ()
    return kept([*GLOBAL, *on_gpus, *given.values()])


def _is_cuda_used() -> bool:
    """Return True where CUDA was used: to ask it otherwise would start it."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def collect(given: Mapping[str, RandomGenerator]) -> dict[str, object]:
    """Return the state of all random generators: the global ones, on the CPU and on each GPU, and those given."""
    is_used = _is_cuda_used()
    return {
        **{name: _with_tensors(_state_of(each)) for name, each in zip(_NAMES, GLOBAL, strict=True)},
        "cuda": torch.cuda.get_rng_state_all() if is_used else [],
        "cuda_own": torch.cuda.get_rng_state() if is_used else None,  # of the device that this rank works on
        "generators": {name: _with_tensors(_state_of(generator)) for name, generator in given.items()},
    }


def restore_all(state: Mapping[str, Any], given: Mapping[str, RandomGenerator]) -> None:
    """Put back what `collect` returned, and print a line where a GPU of then is missing now.

    A rank that works on another device than then has its own random numbers there.
    """
    for name, each in zip(_NAMES, GLOBAL, strict=True):
        _set_state(each, mapped(state[name], _with_arrays))
    here = torch.cuda.device_count() if state["cuda"] else 0
    for index, cuda_state in enumerate(state["cuda"][:here]):
        torch.cuda.set_rng_state(cuda_state, index)
    if here and state.get("cuda_own") is not None:
        torch.cuda.set_rng_state(state["cuda_own"])
    if here < len(state["cuda"]):
        print(f"unbroken: GPUs {len(state['cuda'])} -> {here} since this was saved: random numbers will differ")
    for name, each in given.items():
        saved = state["generators"][name]
        if isinstance(each, torch.Generator) and saved.numel() != each.get_state().numel():
            print(f"unbroken: {name} was the generator of another kind of device than {each.device}: it begins anew")
        else:
            _set_state(each, mapped(saved, _with_arrays))


def reseed(number: int, given: Mapping[str, RandomGenerator]) -> None:
    """Seed the global generators and those given."""
    seed_everything(number)
    seed(given.values(), count(number + 1))


def _with_tensors(state: Any, _: str = "") -> Any:
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else mapped(state, _with_tensors)


def _with_arrays(state: Any, _: str = "") -> Any:
    return state.numpy() if isinstance(state, torch.Tensor) else mapped(state, _with_arrays)


# What is looked at: so many objects in all, so many of one container.
MOST_OBJECTS, MOST_ITEMS = 20_000, 1_000
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
        if not isinstance(here, RandomGenerator):
            left.extend(_held_by(here))


def own_generators(*roots: object) -> list[RandomGenerator]:
    """Return the random generators that the objects hold, without the global ones."""
    found = (each for each in reachable(*roots) if isinstance(each, RandomGenerator))
    return [each for each in found if not isinstance(each, random.SystemRandom) and each not in GLOBAL]


def _held_by(here: object) -> list[object]:
    if isinstance(here, types.FunctionType):
        return [*(here.__closure__ or ()), *_globals_of(here)]
    methods = (getattr(type(here), name, None) for name in _METHODS)
    drawn = [each for method in methods if isinstance(method, types.FunctionType) for each in _globals_of(method)]
    return [*islice(gc.get_referents(here), MOST_ITEMS), *drawn]


def _globals_of(function: types.FunctionType) -> list[object]:
    """Return the generators among the global names that a function uses; other globals belong to the script."""
    found = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [each for each in found if isinstance(each, RandomGenerator)]
