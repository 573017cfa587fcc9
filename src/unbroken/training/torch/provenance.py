"""Record what affects bitwise reproducibility in PyTorch: versions, ranks, threads, GPUs, compiled models."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def made_with(ranks: int, parts: Mapping[str, object]) -> dict[str, str]:
    """Return what the manifest records about this process; `parts` are those given to Training, as they were given."""
    return {
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "gpus": str(torch.cuda.device_count()),
        **_gpu(),
        "compiled": ", ".join(sorted(name for name, part in parts.items() if _is_compiled(part))) or "none",
    }


def _gpu() -> dict[str, str]:
    """Return the model of this process's GPU and its modes of computing; {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    precision = torch.get_float32_matmul_precision()
    return {
        "gpu": torch.cuda.get_device_name(),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "tf32": f"matmul {precision}, cudnn {'on' if torch.backends.cudnn.allow_tf32 else 'off'}",
    }


def is_wrapped_by_compile(part: object) -> bool:
    """Return True for what `torch.compile(model)` returns, whose state has `_orig_mod.` before each name."""
    # Where there is one, this module is loaded; to load it for the question would take a second.
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return compiler is not None and isinstance(part, compiler.OptimizedModule)


def _is_compiled(part: Any) -> bool:
    if not isinstance(part, torch.nn.Module):
        return False
    # DDP holds its model, and either may be compiled; `model.compile()` leaves no trace but this one.
    return any(is_wrapped_by_compile(one) or one._compiled_call_impl is not None for one in part.modules())
