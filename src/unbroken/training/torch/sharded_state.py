"""Save sharded tensors (FSDP2's): take them out of a state, save them by all ranks, restore them for any number.

`torch.distributed.checkpoint` writes and reads them; it reshards them if the number of ranks has
changed.  Other values stay in the state as they are; a note replaces each sharded tensor.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, distribute_tensor

from unbroken.errors import CheckpointError
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.state import mapped, parameters_of, places, state_of

SHARDS = "shards"
_NOTE = "unbroken.shard"

METADATA = ".metadata"
# What such a description is made of, by modules.
_IN_METADATA = {
    "torch.distributed.checkpoint.metadata": {
        *("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "_MEM_FORMAT_ENCODING"),
        *("BytesStorageMetadata", "ChunkStorageMetadata", "TensorStorageMetadata"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size", "device"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"Path", "PosixPath"},
    "collections": {"OrderedDict"},
}

Shards = dict[str, torch.Tensor]


def check_kinds(parts: Mapping[str, object]) -> None:
    """Raise TypeError for a part given to Training whose state is sharded in an unsupported way."""
    for name, part in parts.items():
        modules = part.modules() if isinstance(part, torch.nn.Module) else ()
        if any(isinstance(module, FullyShardedDataParallel) for module in modules):
            raise TypeError(
                f"Training(state={{{name!r}: ...}}) "
                "holds a FullyShardedDataParallel (FSDP1), whose optimizer has another state on "
                "each rank under the same names; allowed: FSDP2; type fully_shard(model) (torch.distributed.fsdp)"
            )


class _Reader(FileSystemReader):
    """Read as torch's reader does, which unpickles `.metadata`; here only the classes of a description are allowed."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        with open(Path(self.path) / METADATA, "rb") as file:
            found: Metadata = _Unpickler(file).load()
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = "pathlib" if module == "pathlib._local" else module  # so it is named by Python 3.13, and by it alone
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or name in _IN_METADATA.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a description of tensors")


def taken_out(value: Any, where: str, shards: Shards) -> Any:
    """Return the value with a note in the place of each sharded tensor, which is put into `shards`."""
    if isinstance(value, DTensor):
        shards[where] = value
        return {_NOTE: where, "shape": list(value.shape), "dtype": value.dtype}
    return mapped(value, lambda item, place: taken_out(item, place, shards), where)


def write(shards: Shards, folder: Path, ranks: Ranks) -> list[Path]:
    """Save the tensors into `folder`, all ranks at once; return the files that this rank wrote.

    Raise CheckpointError on all ranks if one of them cannot.
    """
    with _failures_in(folder):
        state_dict_saver.save(dict(shards), storage_writer=FileSystemWriter(folder), process_group=ranks.group)
    own = sorted(folder.glob(f"__{ranks.rank}_*"))
    return [*own, folder / METADATA] if ranks.is_first else own


def put_in(states: Mapping[str, Any], parts: Mapping[str, Any], folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Return the states with all tensors as the parts hold them now: sharded over the present ranks, or whole.

    A part may be a mapping of tensors, too.  Raise CheckpointError if a tensor is missing, or has another shape.
    """
    shards: Shards = {}
    filled = {name: _filled(state, name, _likes(name, parts[name]), shards) for name, state in states.items()}
    if shards:
        reader, alone = _Reader(folder), ranks.size == 1
        with _failures_in(folder):
            state_dict_loader.load(shards, storage_reader=reader, process_group=ranks.group, no_dist=alone)
    return filled


def whole(value: Any, *, is_kept: bool = True) -> Any:
    """Return the value with each sharded tensor whole, in host memory if it `is_kept`, else empty; all ranks call it.

    It gathers one tensor after the other: a whole model need not fit where each rank has its part of it.
    """
    if isinstance(value, DTensor):
        # Of tensors that lie in host memory a mesh of GPUs gathers nothing.
        there = cast(DTensor, value.to(value.device_mesh.device_type))
        full = there.full_tensor().detach()
        return full.cpu() if is_kept else full.new_empty(0)
    return mapped(value, lambda item, place: whole(item, is_kept=is_kept))


@contextmanager
def _failures_in(folder: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointException as error:
        told = "; ".join(f"rank {rank}: {failure!r}" for rank, (failure, _) in error.failures.items())
        raise CheckpointError(f"{folder}: {told}") from error


def _likes(name: str, part: Any) -> dict[str, DTensor]:
    """Return the sharded tensors of a part by their places: they show how what is saved of it is sharded."""
    state = dict(places(part if isinstance(part, Mapping) else state_of(part), name))
    if isinstance(part, torch.optim.Optimizer):
        # It has no state before its first step; what it will have for a parameter is sharded like it.
        state |= {f"{name}/state/{number}": parameter for number, parameter in enumerate(parameters_of(part))}
    return {where: value for where, value in state.items() if isinstance(value, DTensor)}


def _filled(value: Any, where: str, likes: Mapping[str, DTensor], shards: Shards) -> Any:
    like = likes.get(where, likes.get(where.rpartition("/")[0]))
    if isinstance(value, Mapping) and _NOTE in value:
        if like is None:
            tensor = torch.empty(value["shape"], dtype=value["dtype"])
        elif list(like.shape) == value["shape"]:
            tensor = torch.empty_like(like, dtype=value["dtype"])
        else:
            raise CheckpointError(f"{where}: saved with shape {value['shape']}, and has {list(like.shape)} now")
        shards[value[_NOTE]] = tensor
        return tensor
    if isinstance(value, torch.Tensor) and like is not None and like.shape == value.shape:
        spread = distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
        return spread.to(like.device)  # torch has put it on the mesh's devices
    return mapped(value, lambda item, place: _filled(item, place, likes, shards), where)
