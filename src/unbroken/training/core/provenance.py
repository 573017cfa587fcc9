"""Environment details that affect bitwise reproducibility, kept in each passport; standard library alone.

A change of them stops nobody, since the result is as good; but it is said.
"""

from __future__ import annotations

from collections.abc import Mapping

# What changes the last digits, and how it is called; ranks are told where their states are brought into another form.
_TELLING = {
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "threads": "threads",
    "gpus": "GPUs",
    "gpu": "GPU",
    "cudnn": "cuDNN",
    "tf32": "TF32",
    "compiled": "compiled parts",
}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed since the checkpoint was made, as `torch 2.6 -> 2.7`; empty if nothing has."""
    changed = [name for name in _TELLING if name in before and name in now and before[name] != now[name]]
    return ", ".join(f"{_TELLING[name]} {before[name]} -> {now[name]}" for name in changed)
