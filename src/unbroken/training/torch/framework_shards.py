"""Know how Accelerate shards a training over its ranks, and which files of a checkpoint each rank writes by itself."""

from __future__ import annotations

import importlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor

from unbroken.errors import CheckpointError

# Kinds of training that are refused, by the attribute of Accelerate's state: each new AcceleratorState() resets
# `distributed_type`.
REFUSED = {
    "megatron_lm_plugin": "Megatron-LM",
    "torch_tp_plugin": "tensor parallelism",
    "device_mesh": "a device mesh",
}
ALLOWED = (
    "one process, DistributedDataParallel, DeepSpeed with ZeRO-1, ZeRO-2 or ZeRO-3, or FSDP2 (fsdp_version=2, "
    "SHARDED_STATE_DICT, no cpu_offload)"
)
# ZeRO-3 shards the weights too.
WEIGHTS_STAGE = 3
FSDP2 = 2
# The number of a rank in the names of its files: what Trainer, Accelerate and this package save of each rank, and the
# shards of DeepSpeed and of torch.distributed.checkpoint.
OF_RANK = re.compile(r"(rng_state_|random_states_|ranks/0*|zero_pp_rank_|__)(\d+)(?=[_.])")
# What DeepSpeed would write outside of the checkpoint, or after the save; and what changes the meaning of a rank.
OUTSIDE = {
    ("zero_optimization", "offload_optimizer", "device", "nvme"): "the state would be outside of the checkpoint",
    ("zero_optimization", "offload_param", "device", "nvme"): "the state would be outside of the checkpoint",
    ("checkpoint", "use_node_local_storage", True): "the shards would be on the disks of their nodes",
    ("checkpoint", "load_universal", True): "unbroken resumes from the checkpoints that DeepSpeed saves itself",
    ("checkpoint", "writer"): "the shards would be written after the save",
    ("datastates_ckpt",): "the shards would be written after the save",
    ("tensor_parallel",): "a rank would not be a share of the data",
}


@dataclass(frozen=True)
class Sharding:
    """Say how a model is shared among the ranks: by ZeRO of this stage, by FSDP2, or not."""

    zero: int = 0
    is_fsdp: bool = False

    def __str__(self) -> str:
        return "FSDP2" if self.is_fsdp else f"ZeRO-{self.zero}" if self.zero else "a whole model on each rank"

    @property
    def hides_weights(self) -> bool:
        """Return True if each rank has a part of each weight alone."""
        return self.is_fsdp or self.zero == WEIGHTS_STAGE


def sharding_of(state: object | None) -> Sharding:
    """Return how Accelerate, which has this state, shards its training.

    Raise CheckpointError if the ranks share the model in a way that no checkpoint here can hold, or if the script asked
    for FSDP, DeepSpeed or several ranks and Accelerate trains without, which it does on a CPU.
    """
    has = {} if state is None else vars(state)
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if has.get("num_processes", ranks) != ranks:
        raise CheckpointError(
            f"Accelerate counts {has['num_processes']} processes, and {ranks} train together, so each would train on "
            'the same data; type Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])'
        )
    for name, kind in REFUSED.items():
        if has.get(name) is not None:
            raise CheckpointError(f"Accelerate trains with {kind}, allowed: {ALLOWED}; type no {name}")
    deepspeed, fsdp = has.get("deepspeed_plugins"), has.get("fsdp_plugin")
    for name, plugin in (("FSDP", fsdp), ("DeepSpeed", deepspeed)):
        variable = f"ACCELERATE_USE_{name.upper()}"
        if os.environ.get(variable, "").lower() == "true" and plugin is None:
            raise CheckpointError(
                f"{name} was asked for, and Accelerate trains without it, as it does with cpu=True or without a GPU; "
                f"allowed: {ALLOWED}; type no {name}, or unset {variable}"
            )
    if fsdp is not None:
        _check_fsdp(fsdp)
    return Sharding(_zero_stage(deepspeed), fsdp is not None)


def _check_fsdp(plugin: Any) -> None:
    kind, offload = str(plugin.state_dict_type), plugin.cpu_offload
    offload = getattr(offload, "offload_params", offload and "CPU" in type(offload).__name__)
    if plugin.fsdp_version != FSDP2 or "SHARDED_STATE_DICT" not in kind or offload:
        raise CheckpointError(
            f"Accelerate trains with FSDP{plugin.fsdp_version}, {kind}, cpu_offload={bool(offload)}, allowed: {ALLOWED}"
        )


def _zero_stage(plugins: Any) -> int:
    """Return the stage of the plugin, or of the only one of several by name; 0 if there is none."""
    if plugins is None:
        return 0
    if isinstance(plugins, dict) and len(plugins) > 1:
        raise CheckpointError(f"Accelerate has {len(plugins)} DeepSpeed plugins, allowed: one")
    config: Any = (next(iter(plugins.values())) if isinstance(plugins, dict) else plugins).deepspeed_config
    for path, why in OUTSIDE.items():
        found = config
        for name in path:
            found = found.get(name) if isinstance(found, dict) else (found == name or None)
        if found is not None and found is not False:
            raise CheckpointError(f"DeepSpeed's configuration has {'.'.join(map(str, path))}; {why}; type no {path[0]}")
    if not (stage := (config.get("zero_optimization") or {}).get("stage")):
        raise CheckpointError(f"DeepSpeed trains with ZeRO stage 0, allowed: {ALLOWED}")
    return int(stage)


def files_of(folder: Path, rank: int) -> list[Path]:
    """Return the files that only this rank writes; the first rank writes all others too."""
    found = ((path, OF_RANK.search(str(path.relative_to(folder)))) for path in sorted(folder.rglob("*")))
    return [path for path, match in found if match and int(match[2]) == rank and path.is_file()]


def check_shards(names: Iterable[str], ranks: int, zero: int, folder: Path) -> None:
    """Raise CheckpointError if DeepSpeed's shard of a rank is missing among the names of a checkpoint's files."""
    shards = {name for name in names if "zero_pp_rank_" in name}
    kinds = {OF_RANK.sub(r"\1*", name) for name in shards}
    expected = 2 if zero == WEIGHTS_STAGE else 1 if zero else 0  # the optimizer's, with ZeRO-3 the model's too
    if len(kinds) < expected:
        raise CheckpointError(f"{folder}: no shards of DeepSpeed with ZeRO-{zero} are in it")
    for kind, rank in itertools.product(sorted(kinds), range(ranks)):
        if kind.replace("*", str(rank)) not in shards:
            raise CheckpointError(f"{folder}: the shard {kind} of rank {rank} is missing")


def check_described(folder: Path) -> None:
    """Raise CheckpointError if a shard is missing that a description of torch.distributed.checkpoint names."""
    for description in folder.rglob(".metadata"):
        stored = FileSystemReader(description.parent).read_metadata().storage_data or {}
        for name in sorted({each.relative_path for each in stored.values()}):
            if not (description.parent / name).exists():
                raise CheckpointError(f"{description.parent}: the shard {name} is missing")


def whole_weights(model: torch.nn.Module, sharding: Sharding, folder: Path) -> Mapping[str, torch.Tensor] | None:
    """Return the whole weights on the first rank, whose checkpoint is in the folder; None if the model has them.

    All ranks call it.
    """
    if sharding.is_fsdp:
        whole: Any = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        return dict(whole)
    if not sharding.hides_weights or (dist.is_initialized() and dist.get_rank()):
        return None
    deepspeed: Any = importlib.import_module("deepspeed.utils.zero_to_fp32")
    weights: Mapping[str, torch.Tensor] = deepspeed.get_fp32_state_dict_from_zero_checkpoint(str(folder))
    return weights


def check_whole(content: object, name: str) -> None:
    """Raise CheckpointError if a result has tensors that are sharded, or empty on this rank as with ZeRO-3."""
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(value, torch.Tensor) and (isinstance(value, DTensor) or not value.numel()):
            raise CheckpointError(
                f"finish(): {key} in {name} is not whole, because the ranks share the weights; allowed: "
                "accelerator.get_state_dict(model), with ZeRO-3 and stage3_gather_16bit_weights_on_model_save: true"
            )


def count_ranks(names: Iterable[str]) -> int:
    """Return how many ranks made a checkpoint of Trainer or Accelerate; a single process has files without a number."""
    return len({match[2] for match in map(OF_RANK.search, names) if match}) or 1
