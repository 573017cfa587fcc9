"""Write the checkpoints of a JAX training by Orbax, and hand them over when they are complete."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
import orbax.checkpoint as ocp

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Handover, Progress
from unbroken.system.memory import available_bytes
from unbroken.training.core.environment import Contract, SavePlace
from unbroken.training.core.results import write_result
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import AsyncSave, Connection
from unbroken.training.jax import tree as jax_tree
from unbroken.training.jax.tree import Row

# In a checkpoint: what Orbax writes, and the notes.
ARRAYS, NOTES = "state", "state.json"
# A copy, and as much for whatever else the training takes until its next step.
NEEDED_MEMORY = 2


class DivergedError(Exception):
    """Say that a state must not be saved."""


@dataclass(frozen=True)
class Point:
    """Hold what is to be saved, and its description."""

    tree: Any
    rows: Sequence[Row]
    notes: Mapping[str, Any]
    progress: Progress
    step: int
    is_best: bool
    is_finite: bool  # NaN in it is a reason to give up
    is_last: bool = False  # the process leaves after it
    results: Mapping[str, object] | None = None  # of a training that is finished

    @property
    def is_over(self) -> bool:
        return self.is_last or self.results is not None


class JaxWriter(Connection):
    """Connect a JAX training: saves are written in the background, if there is memory for a copy."""

    background_bytes = 0  # writing the smallest tree takes Orbax longer than copying it

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, state_bytes: int) -> None:
        super().__init__(contract, place, saves, state_bytes)
        self.give_up: Callable[[str], NoReturn] = sys.exit  # ends the training whose state must not be saved

    def save(self, point: Point) -> None:
        """Hand over one checkpoint; a kill inside leaves only a draft."""
        self.wait()
        draft, began = self.place.new_draft(), time.monotonic()
        self.pace.begin_save(point.step)
        leaves, structure = jax.tree.flatten(point.tree)
        if not point.is_over and self._may_be_in_background(jax_tree.size_bytes(leaves)):
            copied = replace(point, tree=jax.tree.unflatten(structure, jax_tree.held(leaves)))
            stall = time.monotonic() - began
            self._async_save = AsyncSave(lambda: self._write(copied, draft, stall), stall)
            self.pace.is_saving = True
            return
        with self._giving_up():
            self.pace.saved(self._write(point, draft))
        if point.is_over:
            self.close_place(is_paused=point.is_last)

    def wait(self) -> None:
        with self._giving_up():
            super().wait()

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except DivergedError as error:
            self.give_up(str(error))

    def _write(self, point: Point, draft: Path, stall_seconds: float | None = None) -> float:
        began = time.monotonic()
        tree = jax.tree.map(jax_tree.on_host, point.tree)
        arrays = jax.tree.leaves(tree)
        if point.is_finite and (wrong := jax_tree.not_a_number(point.rows, arrays)):
            shutil.rmtree(draft)
            raise DivergedError(f"{wrong}, at step {point.step}")
        write_tree(draft / ARRAYS, tree)
        (draft / NOTES).write_text(json.dumps({**point.notes, "leaves": point.rows}, indent=1) + "\n")
        if point.is_over:  # then no other process can write it again
            _read_back(draft, point.rows, tree)
        for name, content in (point.results or {}).items():
            write_result(draft / FINAL, name, content, _write_other)
        handover = Handover(
            point.progress,
            is_best=point.is_best,
            is_finished=point.results is not None,
            versions=self._made_with(),
            save_seconds=round(time.monotonic() - began, 3),
            stall_seconds=stall_seconds,
        )
        self.place.hand_over(draft, handover)
        return time.monotonic() - began

    def _lack_of_memory(self, size_bytes: int) -> str:
        is_enough = available_bytes() > NEEDED_MEMORY * size_bytes
        return "" if is_enough else f"a copy of {size_bytes / 1e6:,.0f} MB"

    def _made_with(self) -> dict[str, str]:
        kinds = [device.device_kind for device in jax.local_devices()]
        loaded = [name for name in ("flax", "optax", "grain") if name in sys.modules]
        return {
            "jax": jax.__version__,
            "orbax": ocp.__version__,
            **{name: metadata.version(name) for name in loaded},
            "numpy": np.__version__,
            "python": platform.python_version(),
            "devices": f"{len(kinds)} x {kinds[0]}",
            "threads": str(len(os.sched_getaffinity(0))) if kinds[0] == "cpu" else "any",  # XLA sums by them
        }


def write_tree(folder: Path, tree: Any) -> None:
    """Write a pytree of numpy arrays into a new folder, as `ocp.StandardCheckpointer` reads it."""
    tree = jax.tree.map(lambda array: array if array.size else None, tree)  # Orbax refuses what holds no numbers
    if jax.tree.leaves(tree):
        # Compressing weights takes longer than writing them, and the training waits for the processor.
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_compression=False)) as checkpointer:
            checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(tree))


def read_notes(folder: Path) -> dict[str, Any]:
    """Return the notes of a checkpoint; raise CheckpointError if it has none."""
    try:
        notes = json.loads((folder / NOTES).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / NOTES}: cannot be read: {error}") from error
    if not isinstance(notes, dict):
        raise CheckpointError(f"{folder / NOTES}: {type(notes).__name__}, allowed: an object")
    return notes


def read_tree(folder: Path, rows: Sequence[Row], tree: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a checkpoint for the leaves of `tree`, which `rows` describe."""
    leaves = [None if jax_tree.is_empty(row) else 0 for row in rows]
    wanted = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    found = iter(())
    if jax.tree.leaves(wanted):
        as_numpy = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
        try:
            with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
                args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy)
                found = iter(jax.tree.leaves(checkpointer.restore((folder / ARRAYS).absolute(), args=args)))
        except Exception as error:  # a damaged file ends in whatever its bytes lead to
            raise CheckpointError(f"{folder / ARRAYS}: cannot be read: {error}") from error
    return [np.empty(row[2], np.dtype(row[1])) if jax_tree.is_empty(row) else next(found) for row in rows]


def _read_back(draft: Path, rows: Sequence[Row], tree: Any) -> None:
    """Check that what was written reads back unchanged."""
    for row, was, now in zip(rows, jax.tree.leaves(tree), read_tree(draft, rows, tree), strict=True):
        one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (was, np.asarray(now)))
        if was.dtype != now.dtype or not np.array_equal(one, other):
            raise CheckpointError(f"{draft}: {row[0]} reads back differently from what was written; check the disk")


def _write_other(path: Path, content: object) -> None:
    """Write a pytree, or the arrays of NNX objects, as a folder of Orbax."""
    write_tree(path, jax.tree.map(jax_tree.on_host, jax_tree.State(content).tree))
