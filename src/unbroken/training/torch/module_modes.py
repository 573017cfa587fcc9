"""Which parameters a model trains and the mode of each of its modules: no state_dict holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

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
