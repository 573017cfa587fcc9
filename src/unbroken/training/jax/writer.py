"""Write the checkpoints of a JAX training by Orbax, and hand them over when they are complete."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from unbroken.errors import CheckpointError
from unbroken.system import fs
from unbroken.training.core.notes import write_notes
from unbroken.training.core.point import NonFiniteState, Point
from unbroken.training.core.session import Connection
from unbroken.training.jax import tree as jax_tree
from unbroken.training.jax.tree import Row

ARRAYS = "state"  # in a checkpoint: what Orbax writes


@dataclass(frozen=True, kw_only=True)
class JaxPoint(Point):
    """Hold what is to be saved, and its description."""

    tree: Any
    rows: Sequence[Row]
    notes: Mapping[str, Any]
    is_finite: bool  # NaN in it is a reason to give up


class JaxWriter(Connection):
    """Connect a JAX training: saves are written in the background, if there is memory for a copy."""

    background_bytes = 0  # writing the smallest tree takes Orbax longer than copying it

    def save(self, point: JaxPoint) -> None:
        """Hand over one checkpoint; a kill inside leaves only a draft."""
        self.complete(self.begin(point), self._write, _held, jax_tree.size_bytes(jax.tree.leaves(point.tree)))

    def _write(self, point: JaxPoint) -> None:
        tree = jax.tree.map(jax_tree.on_host, point.tree)
        if point.is_finite and (wrong := jax_tree.not_a_number(point.rows, jax.tree.leaves(tree))):
            raise NonFiniteState(f"{wrong}, at step {point.step}")
        write_tree(point.draft / ARRAYS, tree)
        write_notes(point.draft, {**point.notes, "leaves": point.rows})
        if point.is_over:  # then no other process can write it again
            _read_back(point.draft, point.rows, tree)
        point.write_results(_write_other)
        self.hand_over(point)

    def _made_with(self) -> dict[str, str]:
        kinds = [device.device_kind for device in jax.local_devices()]
        others = {name: sys.modules.get(name) for name in ("flax", "optax", "grain")}
        return {
            "jax": jax.__version__,
            "orbax": ocp.__version__,
            **{name: str(getattr(module, "__version__", "unknown")) for name, module in others.items() if module},
            "numpy": np.__version__,
            "python": platform.python_version(),
            "devices": f"{len(kinds)} x {kinds[0]}",
            "threads": str(len(os.sched_getaffinity(0))) if kinds[0] == "cpu" else "any",  # XLA sums by them
        }


def _held(point: JaxPoint) -> JaxPoint:
    """Return the point with numbers that stay as they are."""
    leaves, structure = jax.tree.flatten(point.tree)
    return replace(point, tree=jax.tree.unflatten(structure, jax_tree.held(leaves)))


def write_tree(folder: Path, tree: Any) -> None:
    """Write a pytree of numpy arrays into a new folder, as `ocp.StandardCheckpointer` reads it.

    Raise StorageError if the disk has no room for it.
    """
    tree = jax.tree.map(lambda array: array if array.size else None, tree)  # Orbax refuses what holds no numbers
    if jax.tree.leaves(tree):
        # Compressing weights takes longer than writing them, and the training waits for the processor.
        handler = ocp.PyTreeCheckpointHandler(use_compression=False)
        size_bytes = jax_tree.size_bytes(jax.tree.leaves(tree))
        with fs.room_errors(folder.parent, size_bytes), ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(tree))


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
