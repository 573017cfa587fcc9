"""Save the content of a PyTorch training by all of its ranks; the first hands over what all have written."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from unbroken.errors import CheckpointError
from unbroken.store.progress import FileDigest
from unbroken.system.digests import preferred_algorithm
from unbroken.training.core import point as core
from unbroken.training.core.environment import Contract, SavePlace
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.torch import rank_checkpoint
from unbroken.training.torch.content import Content, Weights, non_finite_weight
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.rank_checkpoint import Digests, Pieces
from unbroken.training.torch.serialization import digest_of, save_result
from unbroken.training.torch.snapshot import SnapshotBuffer, snapshot_bytes
from unbroken.training.torch.state import is_wrapped_by_compile, only, tensor_bytes

# Before the first step nothing is known: optimizers keep about twice the model.
GUESSED_GROWTH = 3


@dataclass(frozen=True, kw_only=True)
class Point(core.Point):
    """Hold what this rank writes of a state, and its description."""

    pieces: Pieces
    weights: Weights  # which must be numbers, else it is no checkpoint


class TorchWriter(Connection):
    """Connect a PyTorch training.  Each rank has one; the first hands over what all have written.

    In the background the ranks agree through a connection that the training does not use.  Files that say "written"
    would do, but not that a rank has died, and a file server may show them to other nodes only after a minute.
    """

    ranks: Ranks

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, content: Content) -> None:
        # A state is made at once, because what cannot be saved is better known now than after the first hour.
        state_bytes = tensor_bytes(content.pieces())
        if non_finite := non_finite_weight(content.weights()):
            content.give_up(non_finite)
        super().__init__(contract, place, saves, GUESSED_GROWTH * state_bytes, content.ranks)
        self._content, self._buffer = content, SnapshotBuffer()
        self.give_up = content.leave
        self._beside: Ranks | None = None
        self.pace.steps_ahead = int(self.ranks.size > 1)

    @classmethod
    def of(cls, folder: str | os.PathLike[str] | None, saves: Saves, content: Content) -> TorchWriter | None:
        """Return this rank's connection to unbroken's workflow, or to a folder; None without either."""
        if found := connect(folder, saves, content.ranks):
            return cls(*found, saves, content)
        content.ranks.say("started by hand without a folder, so nothing is saved")
        return None

    def save(self, point: core.Point) -> None:
        """Hand over one checkpoint, in the background if the training continues; a kill leaves only a draft."""
        pieces = self._content.pieces()
        # After the state: after an evaluation FSDP2 holds whole weights, which it frees when it is asked for a state.
        weights = {name: self._own_weights(name, each) for name, each in self._content.weights().items()}
        described = {**vars(point), "where": self._content.where()}
        if point.results is not None:
            self.ranks.settle()
            described["results"] = rank_checkpoint.whole(dict(point.results), is_kept=self.ranks.is_first)
        begun = self.begin(Point(**described, pieces=pieces, weights=weights))
        self.complete(begun, self._write, self._held, snapshot_bytes(pieces))

    def _made_with(self) -> dict[str, str]:
        return made_with(self.ranks.size, self._content.given)

    def _own_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return those that this rank writes: of what all have in common that is the first."""
        is_whole = self.ranks.is_first or name in self._content.own
        return {key: value for key, value in weights.items() if is_whole or isinstance(value, DTensor)}

    def _held(self, point: Point) -> Point:
        if self.ranks.size > 1:
            self._beside = self._beside or self.ranks.beside()
        pieces, weights = self._buffer.take((point.pieces, point.weights))
        return replace(point, pieces=pieces, weights=weights)

    def _write(self, point: Point) -> None:
        """Write what this rank has of a point; the first hands it over once all have written theirs."""
        ranks = self.ranks
        if point.stall_seconds is not None:  # in the background
            self._buffer.wait()
            ranks = self._beside or ranks
        try:
            written = ranks.all_gather(self._written_here(point, ranks))
        except RuntimeError as error:
            raise CheckpointError(f"a rank left before all had said that their part is written ({error})") from error
        digests: Digests = {}
        for each in written:
            if isinstance(each, Exception):
                raise each
            digests |= each
        # What goes wrong with it, such as a run that was lost to another job, ends all.
        ranks.by_first(lambda: self._show(point, digests))

    def _written_here(self, point: Point, ranks: Ranks) -> Digests | Exception:
        """Write what this rank has; return its digests, or an error, of which all ranks must learn."""
        try:
            digests = rank_checkpoint.write(point.pieces, point.draft, ranks)
        except Exception as error:  # noqa: BLE001  (raised by all ranks, once they know)
            if ranks.size == 1:
                return error
            return CheckpointError(f"rank {ranks.rank} could not save: {str(error) or repr(error)}")
        # Not before: the ranks write their shards together, whatever is in them.
        non_finite = non_finite_weight(point.weights)
        return core.NonFiniteState(f"{non_finite}, {point.where}") if non_finite else digests

    def _show(self, point: Point, written: Digests) -> None:
        """Add the results to a draft, and hand it over."""
        digests = {**written, **point.write_results(save_result)}
        known = {name: digest for name, digest in digests.items() if digest}
        if point.is_over:
            _read_back(point.draft, known)
        self.hand_over(point, algorithm=preferred_algorithm(), digests=known)


def made_with(ranks: int, parts: Mapping[str, object]) -> dict[str, str]:
    """Return what the manifest records about this process; `parts` are those given to Training, as they were given."""
    models = only(parts, torch.nn.Module)
    made = {
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "gpus": str(torch.cuda.device_count()),
        "compiled": ", ".join(sorted(name for name, model in models.items() if _is_compiled(model))) or "none",
    }
    if torch.cuda.is_available():
        precision = torch.get_float32_matmul_precision()
        made["gpu"] = torch.cuda.get_device_name()
        made["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        made["tf32"] = f"matmul {precision}, cudnn {'on' if torch.backends.cudnn.allow_tf32 else 'off'}"
    return made


def _is_compiled(model: torch.nn.Module) -> bool:
    # DDP holds its model, and either may be compiled; `model.compile()` leaves no trace but this one.
    return any(is_wrapped_by_compile(one) or one._compiled_call_impl is not None for one in model.modules())


def _read_back(draft: Path, digests: Mapping[str, FileDigest]) -> None:
    """Check that the written files read back unchanged, before a segment reports that it is paused or finished."""
    for name, made in digests.items():
        if digest_of(draft / name) != made:
            raise CheckpointError(f"{draft / name}: reads back differently from what was written; check the disk")
