"""Random generators: their states, seeds, and work that leaves no trace in them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.tree import mapped

# What can be a part of a training, and what a data set may hold.
RandomGenerator = torch.Generator | np.random.Generator
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


def seed(generators: Iterable[Generator], *seeds: int) -> None:
    """Seed each generator with its own seed, or all with one."""
    generators = list(generators)
    for generator, number in zip(generators, seeds * len(generators) if len(seeds) == 1 else seeds, strict=True):
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
    """Seeds Python's, numpy's and torch's global generators; call it before the model is made."""
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
        seed(given.values(), *range(number + 1, number + 1 + len(given)))
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
