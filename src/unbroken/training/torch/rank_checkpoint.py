"""Make checkpoints by several ranks together, and resume from one with the same or another number of ranks.

The first rank writes the whole state as it is there (`state.pt`, as a single process does), each other one its own
random generators, gradients and parts (`ranks/00001.pt`), and all of them the sharded tensors (`shards/`).
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unbroken.errors import CheckpointError
from unbroken.store.progress import FileDigest
from unbroken.system import fs
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.torch import gradients, sharded_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.serialization import save_verified
from unbroken.training.torch.sharded_state import SHARDS
from unbroken.training.torch.state import STATE_FILE, is_wrapped_by_compile

FORMAT = 4
OWN_FILE = "ranks/{:05d}.pt"
GRADIENTS = "unbroken.gradients"

Digests = dict[str, FileDigest]
Pieces = dict[str, Any]


def pieces_of(state: Mapping[str, Any], own: Collection[str], ranks: Ranks) -> Pieces:
    """Return what this rank writes of a state, by the name of its file; `own` names the parts that each has itself."""
    shards: sharded_state.Shards = {}
    mine = {"format": FORMAT, **state, "ranks": ranks.size, "own": sorted(own) if ranks.size > 1 else []}
    mine["parts"] = {name: sharded_state.taken_out(part, name, shards) for name, part in state["parts"].items()}
    mine[GRADIENTS] = sharded_state.taken_out(state[GRADIENTS], GRADIENTS, shards)
    if not ranks.is_first:
        parts = {name: mine["parts"][name] for name in mine["own"]}
        mine = {"random": mine["random"], GRADIENTS: mine[GRADIENTS], "parts": parts}
    return {_file_of(ranks.rank): {key: torch_state.canonical(each, key) for key, each in mine.items()}, SHARDS: shards}


def write(pieces: Pieces, draft: Path, ranks: Ranks) -> Digests:
    """Write the pieces of this rank into `draft`, all ranks together; return the digests of its own files."""
    made: dict[str, FileDigest | None] = {}
    if pieces.get(SHARDS):  # first, because all ranks must come here whatever becomes of their own files
        files = sharded_state.write(pieces[SHARDS], draft / SHARDS, ranks)
        made = {f"{SHARDS}/{path.name}": _digest(path) for path in files}
    name = _file_of(ranks.rank)
    (draft / name).parent.mkdir(exist_ok=True)
    made[name] = save_verified(pieces[name], draft / name)
    if not ranks.is_first:  # unbroken flushes on the first rank's node
        fs.flush(draft / name)
    return {name: digest for name, digest in made.items() if digest}


def read(folder: Path, ranks: Ranks, seed: int) -> dict[str, Any]:
    """Return the state with which this rank resumes; "random" is None if another number of ranks made it.

    Sharded tensors stay notes (`sharded_state.put_in`).  Raise CheckpointError if a file is missing, or the training
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


def made_by(saved: int, here: int) -> str:
    """Say that the number of ranks has changed."""
    now = "is 1" if here == 1 else f"are {here}"
    return f"the checkpoint was made by {saved} rank{'s' * (saved > 1)}, and now there {now}"


def _file_of(rank: int) -> str:
    """Return the name of the file that a rank writes alone."""
    return OWN_FILE.format(rank) if rank else STATE_FILE


def _digest(path: Path) -> FileDigest:
    return FileDigest(path.stat().st_size, digest_file(path, preferred_algorithm()))


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


def _is_compiled(part: Any) -> bool:
    if not isinstance(part, torch.nn.Module):
        return False
    # DDP holds its model, and either may be compiled; `model.compile()` leaves no trace but this one.
    return any(is_wrapped_by_compile(one) or one._compiled_call_impl is not None for one in part.modules())
