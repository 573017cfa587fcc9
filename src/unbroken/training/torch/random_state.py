"""Find, read, seed and restore random generators, and run code that leaves no trace in them."""

from __future__ import annotations

import gc
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
import torch

from unbroken.training.torch.state import RandomGenerator, mapped

_PYTHON: random.Random = random.random.__self__  # type: ignore[attr-defined]
_NUMPY: np.random.RandomState = np.random.mtrand._rand
# The global ones on the CPU.
GLOBAL: tuple[RandomGenerator, ...] = (_PYTHON, _NUMPY, torch.default_generator)


class _Kind(NamedTuple):
    """Say how a library reads, restores and seeds its generators."""

    read: Callable[[Any], Any]
    restore: Callable[[Any, Any], object]
    seed: Callable[[Any, int], object]


def _set_bits(generator: np.random.Generator, state: Any) -> None:
    generator.bit_generator.state = state


_KINDS: dict[type, _Kind] = {
    torch.Generator: _Kind(torch.Generator.get_state, torch.Generator.set_state, torch.Generator.manual_seed),
    random.Random: _Kind(random.Random.getstate, random.Random.setstate, random.Random.seed),
    np.random.RandomState: _Kind(
        lambda generator: generator.get_state(legacy=False),
        np.random.RandomState.set_state,
        lambda generator, number: generator.seed(number % 2**32),
    ),
    np.random.Generator: _Kind(
        lambda generator: generator.bit_generator.state,
        _set_bits,
        lambda generator, number: _set_bits(generator, type(generator.bit_generator)(number).state),
    ),
}


def _kind_of(generator: RandomGenerator) -> _Kind:
    return next(kind for each, kind in _KINDS.items() if isinstance(generator, each))


def state_of(generator: RandomGenerator) -> Any:
    """Return the state of a generator, with tensors in place of numpy's arrays, which cannot be read back safely."""
    return _with_tensors(_kind_of(generator).read(generator))


def restore(generator: RandomGenerator, state: Any) -> None:
    """Put back what `state_of` returned."""
    state = state if isinstance(generator, torch.Generator) else _with_arrays(state)
    _kind_of(generator).restore(generator, state)


def seed(generators: Iterable[RandomGenerator], seeds: Iterable[int]) -> None:
    """Seed each generator with its own seed."""
    for generator, number in zip(generators, seeds, strict=False):
        _kind_of(generator).seed(generator, number)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators; call it before the model is made."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def kept(generators: Iterable[RandomGenerator] = GLOBAL) -> Iterator[None]:
    """Let nothing that is drawn inside leave a trace in the generators, by default the global ones on the CPU."""
    states = [(generator, _kind_of(generator).read(generator)) for generator in generators]
    try:
        yield
    finally:
        for generator, state in states:
            _kind_of(generator).restore(generator, state)


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
        **dict(zip(("python", "numpy", "torch"), map(state_of, GLOBAL), strict=True)),
        "cuda": torch.cuda.get_rng_state_all() if is_used else [],
        "cuda_own": torch.cuda.get_rng_state() if is_used else None,  # of the device that this rank works on
        "generators": {name: state_of(generator) for name, generator in given.items()},
    }


def restore_all(state: Mapping[str, Any], given: Mapping[str, RandomGenerator]) -> None:
    """Put back what `collect` returned, and print a line where a GPU of then is missing now.

    A rank that works on another device than then has its own random numbers there.
    """
    for generator, name in zip(GLOBAL, ("python", "numpy", "torch"), strict=True):
        restore(generator, state[name])
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
            restore(each, saved)


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
