"""What `unbroken init` finds of PyTorch: a training script, its goal, and the lines that make it resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.script_edit import Script, diff_or_lines, is_adapted, last_name
from unbroken.engines.starter import Starter, as_yaml, files_like, given_file, not_installed, run_name
from unbroken.engines.torch.adapter_changes import ACCELERATE, LIGHTNING, TRANSFORMERS, Framework
from unbroken.engines.torch.own_lines import goal_anyhow, own_lines
from unbroken.engines.torch.script_changes import goal_of, make_changes
from unbroken.engines.torch.script_notes import notes
from unbroken.engines.torch.training_parts import is_optimizer

# Packages that train with torch in a loop of their own, and what makes that one resume (docs/adapters.md).
_TRAINER_LINES = (
    "from unbroken.training.transformers import UnbrokenCallback",
    "unbroken = UnbrokenCallback()",
    'TrainingArguments(output_dir=unbroken.output_dir("out"), save_strategy="no", max_steps=int(unbroken.goal), ...)',
    "trainer = Trainer(..., callbacks=[unbroken])",
    "trainer.train(resume_from_checkpoint=unbroken.resume)",
)
_LIGHTNING_LINES = (
    "from unbroken.training.lightning import UnbrokenCallback",
    "unbroken = UnbrokenCallback(seed=0)",
    "trainer = Trainer(max_epochs=unbroken.goal, callbacks=[unbroken], ...)",
    "loader = unbroken.loader(dataset, batch_size=64)",
    "trainer.fit(model, loader, ckpt_path=unbroken.resume, weights_only=True)",
)
_ACCELERATE_LINES = (
    "from unbroken.training.accelerate import Segments",
    "unbroken = Segments(accelerator, seed=0)",
    "loader = unbroken.loader(dataset, batch_size=64)  # not to be prepared",
    "for epoch in unbroken.epochs(10):",
    "    for inputs, targets in unbroken.batches(loader):",
    'unbroken.finish({"model.pt": accelerator.unwrap_model(model).state_dict()})',
)
# Lightning's scripts may import parts of transformers, and those of both may name Accelerate.
_FRAMEWORKS = ((LIGHTNING, _LIGHTNING_LINES), (TRANSFORMERS, _TRAINER_LINES), (ACCELERATE, _ACCELERATE_LINES))
_EPOCHS, _STEPS = 10, 1000


def starters(folder: Path, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
    """One for each training script of the folder, or for the file that was named."""
    given = given_file("torch", folder, words) if is_named or (words[:1] and words[0].endswith(".py")) else None
    for path in [given] if given else files_like(folder, "*.py"):
        script = Script.read(path)
        if script is not None and ((given and is_named) or _trains(script)):
            yield _starter(script, folder, words[1:])


def _trains(script: Script) -> bool:
    packages, calls = script.imports(), {last_name(call.func) for call in script.nodes(ast.Call)}
    if "torch" in packages and ("backward" in calls or "unbroken" in packages):
        return True
    return _framework(script) is not None or ("torch" in packages and _has_epochs(script))


def _has_epochs(script: Script) -> bool:
    """Return True if an optimizer is made, and a loop over epochs calls what trains one, perhaps in another file."""
    loops = [each for each in script.nodes(ast.For) if "epoch" in ast.unparse(each.target).lower()]
    called = {last_name(call.func) for each in loops for call in script.nodes(ast.Call, each)}
    return any(map(is_optimizer, script.nodes(ast.Call))) and any("train" in name for name in called)


def _framework(script: Script) -> tuple[Framework, Sequence[str]] | None:
    """What trains in the script, with the lines that make it resume; None where the script has a loop of its own."""
    return next((each for each in _FRAMEWORKS if each[0].is_in(script)), None)


def _starter(script: Script, folder: Path, args: Sequence[str]) -> Starter:
    framework = _framework(script)
    change, lines = (framework[0].change, framework[1]) if framework else (make_changes, own_lines(script))
    goal, unit = framework[0].goal(script) if framework else goal_of(script)
    diff, todo = diff_or_lines(script, change, lines)
    is_plain = framework is None and not is_adapted(script)
    todo = (*todo, *(notes(script, bool(diff)) if is_plain else ()))
    settings = [f"script: {as_yaml(str(script.path.relative_to(folder)))}"]
    settings += [f"args: {as_yaml(list(args))}"] if args else []
    if not diff and framework is None and not is_adapted(script):
        goal, unit = goal_anyhow(script)
    goal = goal or (_STEPS if unit == "steps" else _EPOCHS)
    settings += [f"goal: {goal:.10g}  # {unit}; raise it later and start again"]
    settings += ["goal_unit: steps"] if unit == "steps" else []
    todo += not_installed("torch")
    return Starter(run_name(script.path.stem, "train"), script.path.name, tuple(settings), 60, True, todo, diff)
