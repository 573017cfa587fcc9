"""Save what no `state_dict` of models and optimizers holds, and a script may change at an epoch.

That is `requires_grad`, train or eval of each module, the numbers and texts on a module (the `p` of a dropout, how
many updates a metric had), and which parameters a group of an optimizer has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from unbroken.errors import CheckpointError
from unbroken.training.torch.state import COMPILED, modules_in, only, parameters_of

Parameters = Callable[[], Mapping[str, torch.Tensor]]
_MOST_NAMES = 3
_ABSENT = object()
# What torch notes there for itself.
_NOT_OURS = frozenset(["_is_full_backward_hook"])


class Switches:
    """Save the switches of all models and optimizers among the parts; `parameters` gives the parameters by their names.

    A module's values are saved as far as they have changed since this object was made.
    """

    def __init__(self, parts: Mapping[str, object], parameters: Parameters) -> None:
        self._parts, self._parameters = parts, parameters
        self._optimizers = only(parts, torch.optim.Optimizer)
        self._first = {path: _values_on(module) for path, module in modules_in(parts)}
        self._groups = {name: len(part.param_groups) for name, part in self._optimizers.items()}

    def state(self) -> dict[str, Any]:
        """Return all of it, by the names that parameters and modules have without `torch.compile`."""
        parameters = self._named()
        return {
            "frozen": [name for name, each in parameters.items() if not each.requires_grad],
            "groups": {name: self._groups_of(part, parameters) for name, part in self._optimizers.items()},
            "on_modules": {path: changed for path, changed in self._changed() if changed},
        }

    def fit_groups(self, saved: Mapping[str, Any], parts: Mapping[str, Any], source: str) -> None:
        """Give each optimizer the groups that it had, before its state is loaded; `parts` are the saved states.

        Raise CheckpointError if a group has other parameters than it had.
        """
        for name, groups in saved.get("groups", {}).items():
            part = self._optimizers.get(name)
            if part is None:
                continue
            del part.param_groups[max(self._groups[name], len(groups)) :]  # of a checkpoint that was rejected
            self._check_groups(name, groups, source)
            for number in range(len(part.param_groups), len(groups)):
                self._add_group(part, groups[number], parts[name]["param_groups"][number])

    def put_back(self, saved: Mapping[str, Any]) -> str:
        """Restore all of it; return a line that names the parameters whose requires_grad differed, "" if none did."""
        if not saved:
            return ""  # of a checkpoint from before this was saved
        frozen, unlike = set(saved["frozen"]), []
        for name, parameter in self._named().items():
            if parameter.requires_grad == (name in frozen) and parameter.is_leaf:
                parameter.requires_grad_(name not in frozen)
                unlike.append(name)
        for path, module in modules_in(self._parts):
            wanted = {**self._first.get(path, {}), **saved["on_modules"].get(path, {})}
            here = vars(module)  # in which a tensor may have come to where nothing was
            here.update({key: wanted[key] for key in wanted if key not in here or key in _values_on(module)})
        if not unlike:
            return ""
        value = "True" if unlike[0] not in frozen else "False"
        return (
            f"requires_grad of {listed(unlike)} is put back as it was in the checkpoint, where it is {value}; to "
            "change it, type: if training.epoch == ...: before batches()"
        )

    def let_repeat(self) -> None:
        """Ignore, until `end_repeating`, that the script adds a group again which the restart has added."""
        for name, part in self._optimizers.items():
            if len(part.param_groups) > self._groups[name]:
                vars(part)["add_param_group"] = _Repeated(part)

    def end_repeating(self) -> None:
        """Treat every group that is added from here on as a new one."""
        for part in self._optimizers.values():
            vars(part).pop("add_param_group", None)

    def unknown_groups(self) -> Iterator[str]:
        """Return a line for each optimizer with a group, added since the start, that no restart can add."""
        parameters = self._named()
        for name, part in self._optimizers.items():
            added = self._groups_of(part, parameters)[self._groups[name] :]
            if any(each.startswith(f"{name}.") for names in added for each in names):
                yield (
                    f"{name}.add_param_group(...) was given parameters of no model that Training(...) has, so a "
                    "restart cannot add them; allowed: parameters of its models; type Training(..., model=model), or "
                    "add them in Training(prepare=...)"
                )

    def _named(self) -> dict[str, torch.Tensor]:
        return {name.replace(COMPILED, ""): each for name, each in self._parameters().items()}

    def _groups_of(self, part: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> list[list[str]]:
        names = {id(each): name for name, each in parameters.items()}
        return [[names[id(each)] for each in group["params"]] for group in part.param_groups]

    def _check_groups(self, name: str, groups: Sequence[Sequence[str]], source: str) -> None:
        """Bring the parameters of each group into the order that they had."""
        part, parameters = self._optimizers[name], self._named()
        here = self._groups_of(part, parameters)
        for number, (group, had, has) in enumerate(zip(part.param_groups, groups, here, strict=False)):
            if sorted(had) == sorted(has):
                group["params"][:] = [parameters[each] for each in had]
            elif len(had) == len(has):  # else torch says so
                lost, new = [each for each in had if each not in has], [each for each in has if each not in had]
                raise CheckpointError(
                    f"{source}: group {number} of {name!r} had {listed(lost)}, and has {listed(new)} now; allowed: "
                    "the same parameters"
                )

    def _add_group(self, part: torch.optim.Optimizer, names: Sequence[str], saved: Mapping[str, Any]) -> None:
        parameters = self._named()
        if any(name not in parameters for name in names):
            return  # torch says that groups are missing
        options = {key: copy.deepcopy(value) for key, value in saved.items() if key != "params"}
        given: list[Any] = [parameters[name] for name in names]
        if "param_names" in options:
            given = list(zip(options.pop("param_names"), given, strict=True))
        part.add_param_group({**options, "params": given})

    def _changed(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path, module in modules_in(self._parts):
            first = self._first.get(path, {})
            now = _values_on(module).items()
            # `is`: NaN is what it was.
            yield path, {key: value for key, value in now if not _is_same(first.get(key, _ABSENT), value)}


class _Repeated:
    """Replace an optimizer's `add_param_group` by one that leaves out what is there already."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, group: dict[str, Any]) -> None:
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        there = set(map(id, parameters_of(self._optimizer)))
        tensors = [each[1] if isinstance(each, tuple) else each for each in given]
        if not all(id(each) in there for each in tensors):
            type(self._optimizer).add_param_group(self._optimizer, {**group, "params": given})


def _values_on(module: torch.nn.Module) -> dict[str, Any]:
    kinds = (bool, int, float, str, type(None))
    return {key: value for key, value in vars(module).items() if type(value) in kinds and key not in _NOT_OURS}


def _is_same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and one == other)


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
    return ", ".join(names[:_MOST_NAMES]) + more


# Of a module: `eval()` sets the first; Lightning's BaseFinetuning sets the second where it freezes BatchNorm.
MODES = ("training", "track_running_stats")


def modes_of(model: nn.Module) -> dict[str, Any]:
    """Return `requires_grad` of each parameter and the modes of each module, by name, in JSON's types."""
    modules = dict(model.named_modules()).items()
    return {
        "requires_grad": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        **{mode: {name: bool(vars(one)[mode]) for name, one in modules if mode in vars(one)} for mode in MODES},
    }


def restore_modes(model: nn.Module, saved: Mapping[str, Any]) -> None:
    """Set what `modes_of` returned, of all parameters and modules that the model still has."""
    for name, parameter in model.named_parameters():
        if saved["requires_grad"].get(name, parameter.requires_grad) != parameter.requires_grad:
            parameter.requires_grad_(not parameter.requires_grad)
    for name, module in model.named_modules():
        for mode in MODES:
            if name in saved[mode]:
                setattr(module, mode, saved[mode][name])
