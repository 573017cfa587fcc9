"""Save what no `state_dict` of models and optimizers holds, and a script may change at an epoch.

That is `requires_grad`, train or eval of each module, the numbers and texts on a module (the `p` of a dropout, how
many updates a metric had), and which parameters a group of an optimizer has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.training.torch.put_back import are_same
from unbroken.training.torch.state import modules_in, only, parameters_in

_MOST_NAMES = 3
# Of a module: `eval()` sets the first; Lightning's BaseFinetuning sets the second where it freezes BatchNorm.
MODES = ("training", "track_running_stats")
# What torch notes there for itself.
_NOT_OURS = frozenset(["_is_full_backward_hook"])


class Switches:
    """Save the switches of all models and optimizers among the parts.

    A module's values are saved as far as they have changed since this object was made; with `names` these alone.
    """

    def __init__(self, parts: Mapping[str, object], names: Collection[str] | None = None) -> None:
        self._parts, self._names = parts, names
        self._optimizers = only(parts, torch.optim.Optimizer)
        self._first = {path: self._values_on(module) for path, module in modules_in(parts)}

    def state(self) -> dict[str, Any]:
        """Return all of it, by the names that parameters and modules have without `torch.compile`."""
        parameters = parameters_in(self._parts)
        return {
            "frozen": [name for name, each in parameters.items() if not each.requires_grad],
            "groups": {name: _groups_of(part, parameters) for name, part in self._optimizers.items()},
            "on_modules": {path: changed for path, changed in self._changed() if changed},
        }

    def fit_groups(self, saved: Mapping[str, Any], source: str) -> None:
        """Bring the parameters of each group into the order that they had, by which an optimizer's state is loaded.

        Raise CheckpointError if a group has other parameters than it had.
        """
        parameters = parameters_in(self._parts)
        for name in saved.get("groups", {}).keys() & self._optimizers.keys():
            groups, here = self._optimizers[name].param_groups, _groups_of(self._optimizers[name], parameters)
            for number, (group, had, has) in enumerate(zip(groups, saved["groups"][name], here, strict=False)):
                if sorted(had) == sorted(has):
                    group["params"][:] = [parameters[each] for each in had]
                elif len(had) == len(has):  # else torch says so
                    lost, new = [each for each in had if each not in has], [each for each in has if each not in had]
                    raise CheckpointError(
                        f"{source}: group {number} of {name!r} had {listed(lost)}, and has {listed(new)} now; allowed: "
                        "the same parameters"
                    )

    def put_back(self, saved: Mapping[str, Any]) -> str:
        """Restore all of it; return a line that names the parameters whose requires_grad differed, "" if none did."""
        if not saved:
            return ""  # of a checkpoint from before this was saved
        frozen, unlike = set(saved["frozen"]), []
        for name, parameter in parameters_in(self._parts).items():
            if parameter.requires_grad == (name in frozen) and parameter.is_leaf:
                parameter.requires_grad_(name not in frozen)
                unlike.append(name)
        for path, module in modules_in(self._parts):
            wanted = {**self._first.get(path, {}), **saved["on_modules"].get(path, {})}
            here = vars(module)  # in which a tensor may have come to where nothing was
            here.update({key: wanted[key] for key in wanted if key not in here or key in self._values_on(module)})
        if not unlike:
            return ""
        value = "True" if unlike[0] not in frozen else "False"
        return (
            f"requires_grad of {listed(unlike)} is put back as it was in the checkpoint, where it is {value}; to "
            "change it, type: if training.epoch == ...: before batches()"
        )

    def _changed(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path, module in modules_in(self._parts):
            first, now = self._first.get(path, {}), self._values_on(module).items()
            yield path, {key: value for key, value in now if key not in first or not are_same(first[key], value)}

    def _values_on(self, module: torch.nn.Module) -> dict[str, Any]:
        kinds = (bool, int, float, str, type(None))
        found = {key: value for key, value in vars(module).items() if type(value) in kinds and key not in _NOT_OURS}
        return {key: value for key, value in found.items() if self._names is None or key in self._names}


def _groups_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> list[list[str]]:
    names = {id(each): name for name, each in parameters.items()}
    return [[names[id(each)] for each in group["params"]] for group in optimizer.param_groups]


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
    return ", ".join(names[:_MOST_NAMES]) + more
