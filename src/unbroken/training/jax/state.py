"""Describe the leaves of a pytree, write them by Orbax, and make them again exactly as they were.

Orbax restores values.  It does not restore that a number was weakly typed (`state.step + 1` of a Python number), which
changes the types of what is computed from it, nor that an array was free to move to other devices.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from unbroken.errors import CheckpointError
from unbroken.system import fs
from unbroken.training.core.notes import NotedConnection, NotedPoint, versions_of
from unbroken.training.core.point import NonFiniteState

ARRAYS = "state"  # in a checkpoint: what Orbax writes
# A leaf in a checkpoint's notes: its path, type, shape and form.
Row = Sequence[Any]
_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex}
_ALLOWED = "arrays of JAX or numpy, PRNG keys and numbers"


class State:
    """Hold the state of a training: a pytree that `update` replaces, or NNX objects, which change in place."""

    def __init__(self, given: Any) -> None:
        leaves = jax.tree.leaves(given, is_leaf=_is_nnx)
        others = [type(leaf).__name__ for leaf in leaves if not _is_nnx(leaf)]
        if 0 < len(others) < len(leaves):
            raise TypeError(
                f"Training(state): NNX objects next to a {others[0]}, whose changes are not seen; allowed: NNX objects "
                "alone, such as {'model': model, 'optimizer': optimizer}, or nnx.state(...) and update() in each step"
            )
        self.given, self.is_in_place = given, bool(leaves) and not others
        self.table()  # what cannot be saved is better known now than after the first hour

    @property
    def tree(self) -> Any:
        """Return the arrays as a pytree."""
        return sys.modules["flax.nnx"].state(self.given) if self.is_in_place else self.given

    def replace(self, tree: Any) -> None:
        """Take the arrays of another tree."""
        if self.is_in_place:
            sys.modules["flax.nnx"].update(self.given, tree)
        else:
            self.given = tree

    def table(self) -> list[Row]:
        """Describe all leaves; raise TypeError for one that cannot be saved."""
        return [row_of(path, leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(self.tree)[0]]


def _is_nnx(node: object) -> bool:
    nnx = sys.modules.get("flax.nnx")  # without it loaded there are no such objects
    return nnx is not None and isinstance(node, nnx.Pytree)


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def row_of(path: Any, leaf: Any) -> Row:
    """Describe a leaf; raise TypeError if it cannot be saved."""
    name, form = f"state{jax.tree_util.keystr(path)}", type(leaf).__name__
    if isinstance(leaf, jax.Array) and (leaf.size or not _is_key(leaf)):
        return [name, str(leaf.dtype), list(leaf.shape), "weak" if getattr(leaf, "weak_type", False) else "jax"]
    if form in _NUMBERS or (isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype != object):
        array = np.asarray(leaf)
        if array.dtype != object:  # a number of more than 64 bits
            own = form if form in _NUMBERS else "numpy" if isinstance(leaf, np.ndarray) else "numpy number"
            return [name, str(array.dtype), list(array.shape), own]
    raise TypeError(f"Training(state): {name} is a {form}, allowed: {_ALLOWED}")


def matched(saved: Sequence[Row], own: Sequence[Row], source: str) -> list[Row]:
    """Return the saved rows in the script's order; raise CheckpointError if they are not those of its leaves."""
    known, given = ({row[0]: row for row in rows} for rows in (saved, own))
    if new := [name for name in given if name not in known]:
        raise CheckpointError(f"{source}: holds no {new[0]}, which the script has")
    if lost := [name for name in known if name not in given]:
        raise CheckpointError(f"{source}: holds {lost[0]}, which the script does not have")
    for name, row in given.items():
        if not _fits(known[name], row):
            then, now = (f"{dtype}{tuple(shape)}" for _, dtype, shape, _ in (known[name], row))
            raise CheckpointError(f"{source}: {name} is {then}, and the script's is {now}")
    return [known[name] for name in given]


def _fits(saved: Row, own: Row) -> bool:
    """Return True for the same shape and type; a step makes arrays of JAX of numbers and of numpy's arrays."""
    is_other_form = saved[3] != own[3] and _kind(saved[1]) == _kind(own[1])
    return saved[2] == own[2] and (saved[1] == own[1] or is_other_form)


def _kind(dtype: str) -> str:
    return next((kind for kind in _NUMBERS if dtype.lstrip("u").startswith(kind)), dtype)


# --- to the host and back ---


def on_host(leaf: Any) -> np.ndarray[Any, Any]:
    """Return a leaf's numbers, without copying what lies in this memory."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def size_bytes(tree: Any) -> int:
    """Return the bytes of all leaves."""
    return sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(tree))


def held(tree: Any) -> Any:
    """Return the numbers of all leaves, which stay as they are while the training changes, or donates, the originals.

    On a CPU nothing is copied, as Orbax does it too: JAX gives donated memory away only when nobody looks at it.
    """
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and not _is_key(leaf):
            leaf.copy_to_host_async()
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else on_host(leaf), tree)


def restored(array: np.ndarray[Any, Any], row: Row, own: Any) -> Any:
    """Return a leaf as it was saved, on the devices of the script's own one."""
    form = row[3]
    if form in _NUMBERS:
        return _NUMBERS[form](array.item())
    if form.startswith("numpy"):
        return array if form == "numpy" else array[()]
    value = jax.random.wrap_key_data(array, impl=jax.random.key_impl(own)) if _is_key(own) else jnp.array(array)
    if str(value.dtype) != row[1]:
        raise CheckpointError(f"{row[0]} was {row[1]}, and becomes {value.dtype} here; set jax_enable_x64 as it was")
    if form == "weak":
        zero = jnp.full(array.shape, _NUMBERS[_kind(row[1])](0))
        value = zero.at[...].set(value) if zero.dtype == value.dtype else value
    is_placed = isinstance(own, jax.Array) and own.committed
    return jax.device_put(value, own.sharding) if is_placed else value


def not_a_number(rows: Sequence[Row], arrays: Sequence[np.ndarray[Any, Any]]) -> str:
    """Return a line on the first leaf that holds NaN; empty if none does.  Infinity may be a first `best value`."""
    for row, array in zip(rows, arrays, strict=True):
        if jnp.issubdtype(array.dtype, jnp.inexact) and bool(np.isnan(array).any()):
            return f"{row[0]} holds NaN"
    return ""


# --- checkpoints ---


class Writer(NotedConnection):
    """Connect a JAX training: saves are written in the background, if there is memory for a copy."""

    background_bytes = 0  # writing the smallest tree takes Orbax longer than copying it

    def __init__(self, *args: Any, is_finite: bool = True) -> None:
        super().__init__(*args)
        self._is_finite = is_finite  # NaN in the state is a reason to give up

    def save(self, point: NotedPoint) -> None:
        """Hand over one checkpoint; a kill inside leaves only a draft."""
        began, size = self.begin(point), size_bytes(point.state)
        self.complete(began, self._fill, lambda point: replace(point, state=held(point.state)), size)

    def _write_state(self, folder: Path, point: NotedPoint) -> None:
        rows, tree = point.notes["leaves"], jax.tree.map(on_host, point.state)
        if self._is_finite and (wrong := not_a_number(rows, jax.tree.leaves(tree))):
            raise NonFiniteState(f"{wrong}, at step {point.step}")
        write_tree(folder / ARRAYS, tree)
        if point.is_over:  # then no other process can write it again
            _read_back(folder, rows, tree)

    def _write_result(self, path: Path, content: object) -> None:
        """Write a pytree, or the arrays of NNX objects, as a folder of Orbax, which is equal for equal arrays."""
        write_tree(path, jax.tree.map(on_host, State(content).tree), is_result=True)
        _forget_time_and_place(path)

    def _made_with(self) -> dict[str, str]:
        kinds = [device.device_kind for device in jax.local_devices()]
        threads = str(len(os.sched_getaffinity(0))) if kinds[0] == "cpu" else "any"  # XLA sums by them
        versions = versions_of("jax", "orbax.checkpoint", "flax", "optax", "grain", "numpy")
        return {**versions, "devices": f"{len(kinds)} x {kinds[0]}", "threads": threads}


def write_tree(folder: Path, tree: Any, *, is_result: bool = False) -> None:
    """Write a pytree of numpy arrays into a new folder, as `ocp.StandardCheckpointer` reads it.

    In a result each array has files of its own name; in a checkpoint they share some, whose names differ each time.
    Raise StorageError if the disk has no room for it.
    """
    tree = jax.tree.map(lambda array: array if array.size else None, tree)  # Orbax refuses what holds no numbers
    if jax.tree.leaves(tree):
        # Compressing weights takes longer than writing them, and the training waits for the processor.
        handler = ocp.PyTreeCheckpointHandler(use_compression=False, use_ocdbt=not is_result)
        with fs.room_errors(folder.parent, size_bytes(tree)), ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(tree))


def _forget_time_and_place(folder: Path) -> None:
    """Take out of a folder of Orbax when and where it was written, which its readers need not know."""
    if (metadata := folder / "_CHECKPOINT_METADATA").exists():  # there is no folder for a tree without numbers
        told = json.loads(metadata.read_text())
        metadata.write_text(json.dumps({key: None if key.endswith("_nsecs") else told[key] for key in told}))
    if (committed := folder / "commit_success.txt").exists():
        committed.write_text("Checkpoint commit was successful")


def read_tree(folder: Path, rows: Sequence[Row], tree: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a checkpoint for the leaves of `tree`, which `rows` describe."""
    empty = [np.empty(row[2], np.dtype(row[1])) if 0 in row[2] else None for row in rows]
    wanted = jax.tree.unflatten(jax.tree.structure(tree), [0 if each is None else None for each in empty])
    found = iter(())
    if jax.tree.leaves(wanted):
        as_numpy = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
        try:
            with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
                args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy)
                found = iter(jax.tree.leaves(checkpointer.restore((folder / ARRAYS).absolute(), args=args)))
        except Exception as error:  # a damaged file ends in whatever its bytes lead to
            raise CheckpointError(f"{folder / ARRAYS}: cannot be read: {error}") from error
    return [next(found) if each is None else each for each in empty]


def _read_back(draft: Path, rows: Sequence[Row], tree: Any) -> None:
    """Check that what was written reads back unchanged."""
    for row, was, now in zip(rows, jax.tree.leaves(tree), read_tree(draft, rows, tree), strict=True):
        one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (was, np.asarray(now)))
        if was.dtype != now.dtype or not np.array_equal(one, other):
            raise CheckpointError(f"{draft}: {row[0]} reads back differently from what was written; check the disk")
