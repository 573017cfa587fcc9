"""The connection of a training to the place where its checkpoints go, for one rank or several."""

from __future__ import annotations

import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.tensor import DTensor

from unbroken.errors import CheckpointError
from unbroken.program.memory import available_bytes
from unbroken.training.core import once
from unbroken.training.core.environment import (
    WAIT_POLL_SECONDS,
    Contract,
    Outbox,
    SavePlace,
    check_thread,
    read_contract,
)
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.torch import rank_checkpoint
from unbroken.training.torch.async_save import TorchAsyncSave
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.rank_checkpoint import Offer, Said
from unbroken.training.torch.snapshot import snapshot_bytes
from unbroken.training.torch.state import tensor_bytes
from unbroken.training.torch.validation import NonFiniteState
from unbroken.training.torch.writer import Point, TorchWriter, check_weights


def linked(
    folder: str | os.PathLike[str] | None,
    saves: Saves,
    state: Callable[[], object],
    parts: Mapping[str, object],
    own: Collection[str],
    ranks: Ranks,
) -> TorchWriter | None:
    """This rank's connection; None if there is nowhere to save."""
    if ranks.size == 1:
        found = connect(folder, saves)
        return TorchWriter(*found, saves, tensor_bytes(state()), parts) if found else None
    joined = _connect_all(folder, saves, ranks)
    return JointLink(*joined, saves, tensor_bytes(state()), parts, own, ranks) if joined else None


class JointLink(TorchWriter):
    """Each rank has one; the first hands over what all have written.

    Beside the training they agree through a connection that the training does not use.  Files that say "written" would
    do, but not that a rank has died, and a file server may show them to other nodes only after a minute.
    """

    exit_seconds = 5.0  # launchers kill the ranks that are left after 10 s, and others may never come

    def __init__(
        self,
        contract: Contract,
        place: SavePlace,
        saves: Saves,
        state_bytes: int,
        parts: Mapping[str, object],
        own: Collection[str],
        ranks: Ranks,
    ) -> None:
        super().__init__(contract, place, saves, state_bytes, parts)
        self._ranks, self._own = ranks, own
        self.ranks_count = ranks.size
        self.pace.steps_ahead = 1
        self._beside: Ranks | None = None
        self._offers: list[Offer] = []

    def fall_back(self, reason: str) -> Path | None:
        """Not all ranks may mistrust it, so they do not go back together: they end, and start again from there."""
        super().fall_back(reason)
        return None

    def save(self, point: Point, following: Phase | None = None) -> None:
        self.wait()
        began = time.monotonic()
        pieces = rank_checkpoint.pieces_of(cast(dict[str, Any], point.state), self._own, self._ranks)
        weights = {name: self._own_weights(name, each) for name, each in point.weights.items()}
        draft = self._draft_with_room() if self._ranks.is_first else ""
        offer = Offer(draft, platform.node(), snapshot_bytes(pieces), available_bytes())
        self._offers = self._ranks.all_gather(offer)
        self._waited_seconds = time.monotonic() - began
        super().save(replace(point, state=pieces, weights=weights), following)

    def _own_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Those that this rank writes: of what all have in common that is the first."""
        is_whole = self._ranks.is_first or name in self._own
        return {key: value for key, value in weights.items() if is_whole or isinstance(value, DTensor)}

    def _may_be_in_background(self, size_bytes: int) -> bool:
        # All ranks find the same, because they ask the same offers.
        return super()._may_be_in_background(max(offer.size_bytes for offer in self._offers))

    def _lack_of_memory(self, size_bytes: int) -> str:
        return "" if rank_checkpoint.has_memory(self._offers) else f"copies of {size_bytes / 1e6:,.0f} MB"

    def _begin_async_save(self, point: Point, is_step_next: bool) -> None:
        self._beside = self._beside or self._ranks.beside()
        super()._begin_async_save(point, is_step_next)

    def _write(self, point: Point, save: TorchAsyncSave | None = None) -> float:
        began, draft = time.monotonic(), Path(self._offers[0].draft)
        ranks = self._beside if save and self._beside else self._ranks
        mine = self._written(point, draft, ranks, save)
        try:
            said = ranks.all_gather(mine)
        except RuntimeError as error:
            raise CheckpointError(f"a rank left before all had said that their part is written ({error})") from error
        if wrong := rank_checkpoint.verdict(said):
            raise wrong
        is_torn = any(each.is_torn for each in said)
        if save:
            save.is_dropped = is_torn

        def show() -> None:
            if is_torn:
                shutil.rmtree(draft)
            else:
                digests = {name: digest for each in said for name, digest in each.digests.items()}
                self._show(draft, digests, point, began, stall_seconds=save.stall_seconds if save else None)

        ranks.by_first(show)  # what goes wrong with it, such as a run that was lost to another job, ends all
        return time.monotonic() - began

    def _written(self, point: Point, draft: Path, ranks: Ranks, save: TorchAsyncSave | None) -> Said:
        """Writes what this rank has, and says how that went; what went wrong becomes known to all."""
        try:
            digests = rank_checkpoint.write(cast(dict[str, Any], point.state), draft, ranks)
            check_weights(point)
        except NonFiniteState as non_finite:
            return Said(error=str(non_finite), is_non_finite=True)
        except Exception as error:  # noqa: BLE001  (raised by all ranks, once they know)
            return Said(error=str(error) or repr(error))
        return Said(digests, is_torn=save is not None and not save.may_be_shown())

    def _draft_with_room(self) -> str:
        # The others wait as well, so there is no clock to watch; unbroken takes folders as long as it lives.
        while not self.place.has_room:
            time.sleep(WAIT_POLL_SECONDS)
        return str(self.place.new_draft())

    def _say(self, line: str) -> None:
        self._ranks.say(line)


def _connect_all(
    folder: str | os.PathLike[str] | None, saves: Saves, ranks: Ranks
) -> tuple[Contract, SavePlace] | None:
    """The workflow tells each rank; a folder of one's own is opened, and locked, by the first."""
    told = read_contract()
    if told:
        check_thread()
        once.check_run(told)
        return told, Outbox(told.save) if ranks.is_first else SavePlace()
    opened: list[tuple[Contract, SavePlace]] = []

    def open_folder() -> Contract | None:
        if found := connect(folder, saves):
            opened.append(found)
        return found[0] if found else None

    contract = ranks.by_first(open_folder)
    if contract is None or opened:
        return opened[0] if opened else None
    # The deadline is on the clock of the first rank's node, and one rank that knows it is enough.
    return replace(contract, deadline=math.inf), SavePlace()
