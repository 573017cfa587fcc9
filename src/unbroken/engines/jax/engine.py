"""Recognize a training script of JAX, and import the newest complete step of a folder that Orbax has written."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from unbroken.engines.imports import ImportedFiles, ImportSource
from unbroken.engines.script_edit import NotPlainError, Script, diff_or_lines, last_name
from unbroken.engines.training import Advice, TrainingEngine
from unbroken.errors import CheckpointError
from unbroken.store.run import RunSpec

LINES = (
    "from unbroken.training.jax import Training",
    'training = Training({"model": model, "optimizer": optimizer}, data=batches)  # NNX; batches: an iterator of Grain',
    "for step in training.steps(1000):",
    "    loss = train_step(model, optimizer, next(batches))",
    "    training.log(loss=loss)",
    'training.finish({"model": model})',
    "# of a TrainState or another pytree: state = Training(state, ...).state, and training.update(state) in each step",
)
_TRAINS = {"grad", "value_and_grad", "apply_gradients", "apply_updates"}
# What Orbax writes into a folder: this name as long as it is not complete, and these files.
_TEMPORARY = ".orbax-checkpoint-tmp"
_METADATA, _COMMITTED = "_CHECKPOINT_METADATA", "commit_success.txt"


class JaxEngine(TrainingEngine):
    """Run trainings of JAX, in one process that may use all devices of its node."""

    name = "jax"

    def trains(self, script: Script) -> bool:
        return bool(script.imports() & {"jax", "flax"}) and bool(script.calls() & _TRAINS)

    def advice(self, script: Script) -> Advice:
        goals = [call.args[0] for call in script.nodes(ast.Call) if last_name(call.func) == "steps" and call.args]
        goal = script.number(goals[0]) if goals else None
        return Advice(*diff_or_lines(script, _refuse_loop, LINES), goal, "steps")

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str]]:
        if run.resources.tasks > 1:
            yield "script", f"the run has {run.resources.tasks} tasks, allowed: one, which uses all devices of its node"

    def import_files(self, run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
        """Import a folder that Orbax has written; of a folder of steps the newest complete one."""
        steps = [(None, source.path)] if _is_orbax(source.path) else orbax_steps(source.path)
        if not steps:
            return super().import_files(run, source, draft)
        lines: list[str] = []
        for step, path in steps:
            if lack := why_incomplete(path):
                lines.append(f"left out: {path}: {lack}")
                continue
            done = source.done if step is None or source.done is not None else float(step)
            found = super().import_files(run, ImportSource(path, done), draft)
            return replace(found, checked=(*found.checked, f"Orbax has completed {path}", *lines))
        raise CheckpointError(f"{source.path}: holds nothing that Orbax has completed; {'; '.join(lines)}")


def orbax_steps(folder: Path) -> list[tuple[int, Path]]:
    """Return the steps below the folder of a CheckpointManager, the newest first, with those that are not complete."""
    below = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    named = [(re.search(r"(\d+)$", path.name.partition(_TEMPORARY)[0]), path) for path in below]
    steps = [(int(match[1]), path) for match, path in named if match]
    return sorted(steps, reverse=True) if any(_is_orbax(path) or _TEMPORARY in path.name for _, path in steps) else []


def _is_orbax(folder: Path) -> bool:
    return (folder / _METADATA).is_file() or (folder / _COMMITTED).is_file()


def why_incomplete(folder: Path) -> str:
    """Return why Orbax has not completed a folder; empty if it has."""
    if torn := [path.name for path in (folder, *folder.rglob("*")) if _TEMPORARY in path.name]:
        return f"{torn[0]} is of a save that was killed"
    if (folder / _COMMITTED).is_file():
        return ""
    try:
        committed = json.loads((folder / _METADATA).read_text()).get("commit_timestamp_nsecs")
    except (OSError, ValueError, AttributeError):
        committed = None
    return "" if committed else f"neither {_COMMITTED} nor {_METADATA} says that it was completed"


def _refuse_loop(_script: Script) -> Iterator[str]:
    raise NotPlainError("a loop of JAX; see docs/engines/jax.md")
