"""Where FSDP2 runs: on the CPU from some torch on."""

import pytest
import torch

on_the_cpu = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason=f"torch {torch.__version__} runs FSDP2 on a GPU alone"
)
