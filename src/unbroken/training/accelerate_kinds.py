"""Check how Accelerate, and what is built on it, trains on several ranks: the adapters cannot save every kind."""

from __future__ import annotations

from accelerate.state import AcceleratorState

from unbroken.errors import CheckpointError
from unbroken.training.torch.framework_session import refuse

# By these and not by `distributed_type`, which each new AcceleratorState() resets.
SPREADING = {
    "fsdp_plugin": "FSDP",
    "deepspeed_plugins": "DeepSpeed",
    "megatron_lm_plugin": "Megatron-LM",
    "torch_tp_plugin": "tensor parallelism",
    "device_mesh": "a device mesh",
}


def check_kind(state: AcceleratorState | None) -> None:
    """Raise CheckpointError unless each rank has the whole model: one process or DistributedDataParallel."""
    for name, kind in SPREADING.items():
        if state is not None and vars(state).get(name) is not None:
            refuse(
                CheckpointError,
                f"Accelerate trains with {kind}, allowed: one process or DistributedDataParallel; type no {name}, or "
                "take unbroken.training.torch, which saves FSDP2",
            )
