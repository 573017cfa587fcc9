"""Make checkpoints by several ranks together, and resume from one with the same or another number of ranks.

The first rank writes the whole state as it is there (`state.pt`, as a single process does), each other one its own
random generators, gradients and parts (`ranks/00001.pt`), and all of them the sharded tensors (`shards/`), FSDP2's.
Those `torch.distributed.checkpoint` writes, and reads for any number of ranks; a note replaces each in the state.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.tensor import DTensor, distribute_tensor

from unbroken.errors import CheckpointError
from unbroken.store.progress import FileDigest
from unbroken.system import fs
from unbroken.training.torch import gradients
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.serialization import digest_of, save_verified
from unbroken.training.torch.state import STATE_FILE, mapped, parameters_of, places, state_of

FORMAT = 4
OWN_FILE, SHARDS = "ranks/{:05d}.pt", "shards"
GRADIENTS = "unbroken.gradients"
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

Digests = dict[str, FileDigest | None]
Pieces = dict[str, Any]
Shards = dict[str, torch.Tensor]


def pieces_of(state: Mapping[str, Any], own: Collection[str], ranks: Ranks) -> Pieces:
    """Return what this rank writes of a state, by the name of its file; `own` names the parts that each has itself."""
    shards: Shards = {}
    mine = {"format": FORMAT, **state, "ranks": ranks.size, "own": sorted(own) if ranks.size > 1 else []}
    mine["parts"] = {name: taken_out(part, name, shards) for name, part in state["parts"].items()}
    mine[GRADIENTS] = taken_out(state[GRADIENTS], GRADIENTS, shards)
    if not ranks.is_first:
        parts = {name: mine["parts"][name] for name in mine["own"]}
        mine = {"random": mine["random"], GRADIENTS: mine[GRADIENTS], "parts": parts}
    return {_file_of(ranks.rank): {key: torch_state.canonical(each, key) for key, each in mine.items()}, SHARDS: shards}


def write(pieces: Pieces, draft: Path, ranks: Ranks) -> Digests:
    """Write the pieces of this rank into `draft`, all ranks together; return the digests of its own files, if known.

    Raise CheckpointError on all ranks if one of them cannot write its shards.
    """
    made: Digests = {}
    if pieces.get(SHARDS):  # first, because all ranks must come here whatever becomes of their own files
        folder = draft / SHARDS
        with _failures_in(folder):
            state_dict_saver.save(pieces[SHARDS], storage_writer=FileSystemWriter(folder), process_group=ranks.group)
        files = [*folder.glob(f"__{ranks.rank}_*"), *([folder / METADATA] if ranks.is_first else [])]
        made = {f"{SHARDS}/{path.name}": digest_of(path) for path in files}
    name = _file_of(ranks.rank)
    (draft / name).parent.mkdir(exist_ok=True)
    made[name] = save_verified(pieces[name], draft / name)
    if not ranks.is_first:  # unbroken flushes on the first rank's node
        fs.flush(draft / name)
    return made


def read(folder: Path, ranks: Ranks, seed: int) -> dict[str, Any]:
    """Return the state with which this rank resumes; "random" is None if another number of ranks made it.

    Sharded tensors stay notes (`put_in`).  Raise CheckpointError if a file is missing, or the training
    has another seed.
    """
    first = torch_state.load(folder, is_mapped=ranks.size > 1)
    torch_state.check_origin(first, FORMAT, seed, str(folder))
    saved, own = first["ranks"], first["own"]
    files = [folder / _file_of(rank) for rank in range(1, saved)]
    if missing := [str(file.relative_to(folder)) for file in files if not file.exists()]:
        raise CheckpointError(f"{folder}: made by {saved} ranks, and {', '.join(missing)} is missing")
    if saved == ranks.size:
        mine = first if ranks.is_first else torch_state.load_file(files[ranks.rank - 1])
        return {**first, **mine, "parts": {**first["parts"], **mine["parts"]}}
    if own:
        raise CheckpointError(
            f"{folder}: made by {saved} ranks, each with a state of its own for {', '.join(own)}, which "
            f"{ranks.size} cannot share; allowed: {saved} ranks"
        )
    ranks.say(
        f"{made_by(saved, ranks.size)}: its state is brought into the new form, and the epoch "
        "goes on where it was; random generators are reseeded: training continues but is not bit-identical"
    )
    each = [first[GRADIENTS], *(torch_state.load_file(file)[GRADIENTS] for file in files)]
    return {**first, "random": None, GRADIENTS: gradients.shared(each)}


def put_in(states: Mapping[str, Any], parts: Mapping[str, Any], checkpoint: Path, ranks: Ranks) -> dict[str, Any]:
    """Return the states with all tensors as the parts hold them now: sharded over the present ranks, or whole.

    A part may be a mapping of tensors, too.  Raise CheckpointError if a tensor is missing, or has another shape.
    """
    shards: Shards = {}
    filled = {name: _filled(state, name, _likes(name, parts[name]), shards) for name, state in states.items()}
    if shards:
        folder = checkpoint / SHARDS
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


def made_by(saved: int, here: int) -> str:
    """Say that the number of ranks has changed."""
    now = "is 1" if here == 1 else f"are {here}"
    return f"the checkpoint was made by {saved} rank{'s' * (saved > 1)}, and now there {now}"


def _file_of(rank: int) -> str:
    """Return the name of the file that a rank writes alone."""
    return OWN_FILE.format(rank) if rank else STATE_FILE


def taken_out(value: Any, where: str, shards: Shards) -> Any:
    """Return the value with a note in the place of each sharded tensor, which is put into `shards`."""
    if isinstance(value, DTensor):
        shards[where] = value
        return {_NOTE: where, "shape": list(value.shape), "dtype": value.dtype}
    return mapped(value, lambda item, place: taken_out(item, place, shards), where)


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
