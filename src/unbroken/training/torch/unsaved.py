"""Find what a training changes and no state of its parts holds: no restart can restore it, so it is reported."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from unbroken.training.torch.batch_source import StatefulLoader
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.state import Stateful, modules_in, only, parameters_of, plainly_named
from unbroken.training.torch.switches import listed

# A buffer is compared with what it was if it is not larger.
COMPARED_BYTES = 1_000_000
_CHANGES = "changes in the training and is not saved, so a restart loses it"
# What is the same for all of torch, and decides how it computes.
_GLOBAL: Mapping[str, Callable[[], object]] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
}


def make_persistent(parts: Mapping[str, object], own: Collection[str], ranks: int) -> Iterator[str]:
    """Let each metric of torchmetrics that is a part give its state; return a line for each that did not.

    `own` names the parts that each of the ranks has for itself, as every rank has its metric.
    """
    for name, part in parts.items():
        if not isinstance(part, torch.nn.Module) or next(part.parameters(), None) is not None:
            continue  # the state of a model would get more names
        forgetful = [module for module in part.modules() if _is_forgetful(module)]
        for module in forgetful:
            module.persistent(True)  # type: ignore[operator]
        if forgetful:
            yield (
                f"{name} ({type(part).__name__}): torchmetrics leaves its state out of state_dict, so it is made "
                f"persistent here, as by {name}.persistent(True)"
            )
        if ranks > 1 and name not in own and any(map(is_metric, part.modules())):
            yield (
                f"{name} ({type(part).__name__}): each rank has seen other batches, and that of the first rank is "
                f"saved for all; type: Training(..., own=[{name!r}])"
            )


def is_metric(module: object) -> bool:
    """Return True for a metric of torchmetrics, which is not imported for it."""
    torchmetrics = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(module, torchmetrics.Metric)


class Unsaved:
    """Find unsaved changes of all parts since this was made; `is_prepared`: the script adds later ones itself."""

    def __init__(self, parts: Mapping[str, Stateful], gradients: Gradients, *, is_prepared: bool) -> None:
        self._parts, self._gradients, self._is_prepared = parts, gradients, is_prepared
        self._buffers = {name: tensor.detach().cpu().clone() for name, tensor in self._passing_buffers()}
        self._tensors = dict(self._tensors_on_modules())
        self._global = {name: ask() for name, ask in _GLOBAL.items()}
        self._empty = dict(self._looks_of(name for name, part in parts.items() if _has_empty_state(part)))
        self._names = {name: self._names_in(part) for name, part in parts.items()}

    def lines(self) -> Iterator[str]:
        """Return a line for each thing that has changed."""
        for name, tensor in self._passing_buffers():
            before = self._buffers.get(name)
            if before is None or before.shape != tensor.shape or not torch.equal(before, tensor.detach().cpu()):
                yield f"{name} {_CHANGES}; it is a buffer with persistent=False; if it matters, type: persistent=True"
        for name, tensors in self._tensors_on_modules():
            if not _are_same(self._tensors.get(name, ()), tensors):
                key = name.rpartition(".")[2]
                yield (
                    f"{name} {_CHANGES}; it is a tensor and no buffer; if a batch needs that of the batch before, "
                    f"type: self.register_buffer({key!r}, ...)"
                )
        for name, look in self._looks_of(self._empty):
            if look != self._empty[name]:
                yield f"{name} {_CHANGES}; its state_dict is empty; type what it must keep into its state_dict"
        for name, part in self._parts.items() if not self._is_prepared else ():
            if new := [key for key in self._names_in(part) if key not in self._names[name]]:
                yield (
                    f"{name} has {listed(new)} now, which it had not when Training(...) was made: a restart can load "
                    "it only if it is made so before, by the epoch; type: Training(..., prepare=function)"
                )
        for name, ask in _GLOBAL.items():
            if (now := ask()) != self._global[name]:
                yield (
                    f"{name} is {now} now, {self._global[name]} when Training(...) was made, and is not saved; set it "
                    "before Training, or in each epoch by its number; type: if epoch >= ...: before batches()"
                )
        yield from self._metrics_in_models()
        yield from self._optimizers()
        yield from self._schedulers()

    def _names_in(self, part: object) -> dict[str, None]:
        """Return the names in the state of a model; {} for other parts."""
        if not isinstance(part, torch.nn.Module) or is_metric(part):
            return {}
        return dict.fromkeys(plainly_named(part.state_dict()))

    def _passing_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for path, module in modules_in(self._parts):
            for key in sorted(module._non_persistent_buffers_set):
                tensor = module._buffers.get(key)
                if tensor is not None and tensor.nbytes <= COMPARED_BYTES:
                    yield f"{path}.{key}", tensor

    def _tensors_on_modules(self) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
        for path, module in modules_in(self._parts):
            if is_metric(module):
                continue
            known = [*module._parameters, *module._buffers]
            for key, value in vars(module).items():
                tensors = _tensors(value)
                # `weight` of a weight norm is made of weight_g and weight_v.
                if tensors and not any(name.startswith(f"{key}_") for name in known):
                    yield f"{path}.{key}", tensors

    def _looks_of(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            try:
                yield name, pickle.dumps(vars(self._parts[name]))
            except (AttributeError, TypeError, pickle.PicklingError):
                continue  # it is unknown whether it has changed

    def _metrics_in_models(self) -> Iterator[str]:
        """Yield a line for each metric that has seen batches of the epoch; at its end most metrics are reset."""
        for path, module in modules_in(self._parts):
            if _is_forgetful(module) and module._update_count:
                yield f"{path} {_CHANGES} in the middle of an epoch; type: {path}.persistent(True)"

    def _optimizers(self) -> Iterator[str]:
        names = {id(each): name for name, each in self._gradients.parameters().items()}
        for optimizer in self._gradients.steppers:
            if not optimizer.state or any(each is optimizer for each in self._near()):
                continue
            if stepped := [names[id(each)] for each in parameters_of(optimizer) if id(each) in names]:
                yield (
                    f"an optimizer ({type(optimizer).__name__}) that Training(...) was not given has changed "
                    f"{stepped[0]}; its state is not saved; type: Training(..., optimizer=optimizer)"
                )

    def _schedulers(self) -> Iterator[str]:
        for name, part in only(self._parts, torch.optim.Optimizer).items():
            is_scheduled = hasattr(part.step, "_wrapped_by_lr_sched")
            if is_scheduled and not any(getattr(each, "optimizer", None) is part for each in self._near()):
                yield (
                    f"a learning rate scheduler of {name} was not given to Training(...), so it is not saved and "
                    "starts at 0 after a restart; type: Training(..., scheduler=scheduler)"
                )

    def _near(self) -> Iterator[object]:
        """Yield the parts and what they hold: a wrapper steps an optimizer of its own."""
        for part in self._parts.values():
            yield part
            for value in [*vars(part).values()] if hasattr(part, "__dict__") else ():
                yield value
                if isinstance(value, (list, tuple)):
                    yield from value


def _has_empty_state(part: Stateful) -> bool:
    return not isinstance(part, (torch.nn.Module, torch.optim.Optimizer, StatefulLoader)) and not part.state_dict()


def _is_forgetful(module: torch.nn.Module) -> bool:
    return is_metric(module) and not all(module._persistent.values())  # type: ignore[operator]


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    found: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    return tuple(each for each in found if isinstance(each, torch.Tensor) and not isinstance(each, torch.nn.Parameter))


def _are_same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
