"""Where the tests marked `gpu` train."""

import os

import pytest

# UNBROKEN_GPU_DEVICE=cpu tries the tests themselves on a machine without a GPU.
DEVICE = os.environ.get("UNBROKEN_GPU_DEVICE", "cuda")
# cuBLAS is deterministic with it [docs.nvidia.com/cuda/cublas, "Results reproducibility"].
EXACT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def require() -> None:
    """Skip this test where torch sees no GPU."""
    torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"no GPU: torch {torch.__version__} sees none")
