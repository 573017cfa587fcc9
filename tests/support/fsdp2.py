"""Where FSDP2 runs: on the CPU from some torch on."""

import torch
from support.needs import skip_or_fail


def require_on_the_cpu() -> None:
    """Skip this test, or fail it in CI, where this torch's FSDP2 needs a GPU."""
    if not hasattr(torch.cpu.Stream, "record_event"):
        skip_or_fail(f"torch {torch.__version__} runs FSDP2 on a GPU alone")
