"""Finds TensorFlow scripts for `unbroken init`: a training script, its goal, and what it needs to resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.script_edit import Script, diff_or_lines, is_adapted, last_name
from unbroken.engines.script_files import notes_on_files
from unbroken.engines.starter import Starter, as_yaml, files_like, given_file, not_installed, run_name
from unbroken.engines.tensorflow.script_changes import goal_of, make_changes

_LINES = (
    "from unbroken.training.tensorflow import Training",
    "training = Training(model)  # compiled",
    "data = training.data(images, labels, batch_size=64)",
    "training.fit(data, epochs=10)  # in place of model.fit",
    'training.finish({"model.keras": model})',
)
_PACKAGES = {"tensorflow", "keras"}
_EPOCHS = 10


def starters(folder: Path, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
    """Yield one for each training script of the folder, or for the file that was named."""
    given = given_file("tensorflow", folder, words) if is_named or (words[:1] and words[0].endswith(".py")) else None
    for path in [given] if given else files_like(folder, "*.py"):
        script = Script.read(path)
        if script is not None and ((given and is_named) or _trains(script)):
            yield _starter(script, folder, words[1:])


def _trains(script: Script) -> bool:
    calls = {last_name(call.func) for call in script.nodes(ast.Call)}
    return bool(script.imports() & _PACKAGES) and bool(calls & {"fit", "GradientTape", "train_on_batch"})


def _starter(script: Script, folder: Path, args: Sequence[str]) -> Starter:
    diff, todo = diff_or_lines(script, make_changes, _LINES)
    settings = [f"script: {as_yaml(str(script.path.relative_to(folder)))}"]
    settings += [f"args: {as_yaml(list(args))}"] if args else []
    settings += [f"goal: {goal_of(script) or _EPOCHS:.10g}  # epochs; raise it later and start again"]
    fits = [call for call in script.nodes(ast.Call) if last_name(call.func) == "fit"]
    loop = next((each for each in script.nodes(ast.stmt) if fits and getattr(each, "value", None) is fits[0]), None)
    todo += () if is_adapted(script) else tuple(notes_on_files(script, loop))
    todo += not_installed("tensorflow")
    return Starter(run_name(script.path.stem, "train"), script.path.name, tuple(settings), 60, True, todo, diff)
