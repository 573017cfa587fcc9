"""Collect the state of a training, bring it into one canonical form, and restore it.

Two states that are equal give the same bytes, whatever happened before: pickle writes an object that it meets again
as a reference, so strings, tuples and dictionaries that happen to be shared before a restart and not after it would
make files differ.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from unbroken.errors import CheckpointError

STATE_FILE = "state.pt"


@runtime_checkable
class Stateful(Protocol):
    """Accept a model, an optimizer, a scheduler, a scaler, a moving average, or any object with the same methods."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


RandomGenerator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
Part = Stateful | RandomGenerator
Kind = TypeVar("Kind")


def canonical(value: object, where: str) -> Any:
    """Return the value in a form whose pickle depends on nothing but the value.

    Tensors stay the tensors they are, and still share their memory.  Raise CheckpointError with the
    place of a value that `torch.load(weights_only=True)` would refuse to read back.
    """
    match value:
        case torch.Tensor():
            _refuse_unknown_kind(value, where)
            # A fresh view: one tensor under two names and two views of one memory must look the same.
            return value if value.requires_grad else value.detach()
        case None | bool() | bytes():
            return value
        case str():
            return sys.intern(str(value))
        case np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float():  # with np.float64, which is one
            return float(value)
        case torch.Size():
            return torch.Size(tuple(value))
    return _canonical_container(value, where)


def _refuse_unknown_kind(tensor: torch.Tensor, where: str) -> None:
    """Raise CheckpointError for a tensor of a custom class: torch saves it silently, and cannot load it safely."""
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter, DTensor, *torch.serialization.get_safe_globals()):
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise CheckpointError(
            f"{_named(where)} is a {name}, a kind of tensor that cannot be read back safely; allowed: plain tensors; "
            "if that class is to be trusted, type "
            f"torch.serialization.add_safe_globals([{kind.__qualname__}]) before Training"
        )


def _canonical_container(value: object, where: str) -> Any:
    kind = type(value)
    if kind in (dict, OrderedDict, Counter, list, tuple):
        return mapped(value, canonical, where, lambda key: canonical(key, where))
    if isinstance(value, set) and kind is set:
        return {canonical(item, where) for item in value}
    if kind in (torch.dtype, torch.device, complex) or kind in torch.serialization.get_safe_globals():
        return value
    raise CheckpointError(
        f"{_named(where)} is a {kind.__module__}.{kind.__qualname__}, which cannot be read back safely; allowed: "
        "tensors, numbers, text, None, and dict, list, tuple or set of them; type: float(...) or torch.from_numpy(...)"
    )


def _named(where: str) -> str:
    return where.replace("/", ".")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a sharded tensor, and any other tensor as it is."""
    to_local = getattr(tensor.detach(), "to_local", None)
    return to_local() if to_local else tensor


def bytes_here(tensor: torch.Tensor) -> int:
    """Return the size of this rank's part of a tensor, in bytes."""
    return local(tensor).nbytes if tensor.layout is torch.strided else tensor.numel() * tensor.element_size()


def tensor_bytes(value: object) -> int:
    """Return the bytes of all tensors in a value on this rank, nearly the size of its file."""
    return sum(map(bytes_here, tensors_in(value)))


def own_part(part: Any) -> Any:
    """Return the part that has the state: for DDP or torch.compile the model inside, whose state has the same names."""
    while True:
        if isinstance(part, DistributedDataParallel):
            part = part.module
        elif is_wrapped_by_compile(part):
            part = part._orig_mod
        else:
            return part


def is_wrapped_by_compile(part: object) -> bool:
    """Return True for what `torch.compile(model)` returns, whose state has `_orig_mod.` before each name."""
    # Where there is one, this module is loaded; to load it for the question would take a second.
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return compiler is not None and isinstance(part, compiler.OptimizedModule)


@contextmanager
def plainly_named(part: object) -> Iterator[None]:
    """Give all in a model the names that it has without `torch.compile`: compiled blocks are as they were before."""
    modules = [*part.modules()] if isinstance(part, torch.nn.Module) else []
    children = [(each._modules, name, child) for each in modules for name, child in each._modules.items()]
    compiled = [(around, name, child) for around, name, child in children if is_wrapped_by_compile(child)]
    try:
        for around, name, child in compiled:
            around[name] = own_part(child)
        yield
    finally:
        for around, name, child in compiled:
            around[name] = child


def state_of(part: Stateful) -> Any:
    """Return the part's state; a model's compiled blocks have the names that they have without `torch.compile`."""
    with plainly_named(part):
        return part.state_dict()


def only(parts: Mapping[str, object], kind: type[Kind]) -> dict[str, Kind]:
    """Return the parts of a kind."""
    return {name: part for name, part in parts.items() if isinstance(part, kind)}


def modules_in(parts: Mapping[str, object]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield all modules of the models by the names that they have without `torch.compile`."""
    for name, part in only(parts, torch.nn.Module).items():
        with plainly_named(part):
            modules = [*part.named_modules(prefix=name)]
        yield from modules


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of all groups, in their order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def parameters_in(parts: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Return all parameters, by their part and their name in it, or their number if the part is an optimizer."""
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for name, module in only(parts, torch.nn.Module).items():
        with plainly_named(module):
            for key, parameter in module.named_parameters(prefix=name):
                first.setdefault(id(parameter), (key, parameter))
    for name, optimizer in only(parts, torch.optim.Optimizer).items():
        for number, each in enumerate(parameters_of(optimizer)):
            first.setdefault(id(each), (f"{name}.{number}", each))
    return dict(first.values())


def one_by_one(parts: Mapping[str, Part | Sequence[Part]]) -> dict[str, Part]:
    """Return the parts, those of a list by its name and their number: `optimizer.0`.

    Raise TypeError for one whose state cannot be saved.
    """
    found: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, (list, tuple)) and not isinstance(part, Stateful):
            found |= {f"{name}.{number}": each for number, each in enumerate(part)}
        else:
            found[name] = part
    for name, part in found.items():
        if not isinstance(part, (Stateful, RandomGenerator)):
            raise TypeError(
                f"Training(state={{{name!r}: ...}}) "
                f"is a {type(part).__name__}, allowed: what has state_dict and load_state_dict, "
                "or a random generator of torch, numpy or Python"
            )
    return found


def check_origin(state: Mapping[str, Any], layout: int, seed: int, source: str) -> None:
    """Raise CheckpointError if a state has another format, or comes from a training with another seed."""
    if state.get("format") != layout:
        raise CheckpointError(f"{source}: state format {state.get('format')!r}, allowed here: {layout}")
    if state["seed"] != seed:
        raise CheckpointError(f"{source}: made with seed={state['seed']}, and Training(...) is given {seed}")


def check_names(given: Collection[str], saved: Collection[str], source: str) -> None:
    """Raise CheckpointError if the parts given to Training are not those with which the checkpoint was made."""
    if new := sorted({*given} - {*saved}):
        raise CheckpointError(f"{source}: holds no state of {', '.join(new)}, which Training(...) is given now")
    if lost := sorted({*saved} - {*given}):
        raise CheckpointError(f"{source}: holds the state of {', '.join(lost)}, which Training(...) is not given now")


def load(folder: Path, *, is_mapped: bool = False) -> dict[str, Any]:
    """Read the content of a checkpoint's state file, without running any code from it."""
    return load_file(folder / STATE_FILE, is_mapped=is_mapped)


def load_file(path: Path, *, is_mapped: bool = False) -> dict[str, Any]:
    """Read the content of a file that unbroken saved, without running any code from it.

    With `is_mapped` it is mapped and not copied, so that all ranks of a node share the memory, if the file system can
    do that.
    """
    try:
        try:
            state = torch_load(path, mmap=is_mapped)
        except (OSError, RuntimeError):
            if not is_mapped:
                raise
            state = torch_load(path)
    except Exception as error:  # reading a file that is no archive ends in whatever its bytes lead to
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: not a state that unbroken saved")
    return state


def torch_load(path: Path | BinaryIO, **options: Any) -> Any:
    """Load tensors alone onto the CPU with `torch.load`, unless `options` say otherwise.

    The warning of torch 2.14 and later that it checks sparse tensors is ignored: no user can act upon it, and if
    warnings are errors (`python -W error`) it would make a good checkpoint unreadable.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Validating sparse tensor invariants")
        return torch.load(path, **{"map_location": "cpu", "weights_only": True, **options})


def mapped(
    value: Any, change: Callable[[Any, str], Any], where: str = "", change_key: Callable[[Any], Any] = lambda key: key
) -> Any:
    """Return a container with each item changed by a function of item and place ("model/weight"); else the value."""
    if isinstance(value, dict):
        fresh = type(value)()
        for key, item in value.items():
            fresh[change_key(key)] = change(item, f"{where}/{key}")
        if hasattr(value, "_metadata"):  # torch.nn.Module keeps the format versions of its parts there
            fresh._metadata = change(value._metadata, where)  # type: ignore[attr-defined]
        return fresh
    if type(value) in (list, tuple):
        return type(value)(change(item, f"{where}/{index}") for index, item in enumerate(value))
    return value


def places(value: object, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything in nested containers, themselves included, with its place ("model/weight")."""
    yield where, value
    if isinstance(value, (Mapping, list, tuple)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from places(item, f"{where}/{key}")


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield all tensors in nested containers."""
    return (each for _, each in places(value) if isinstance(each, torch.Tensor))
