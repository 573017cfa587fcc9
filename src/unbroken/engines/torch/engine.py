"""Recognize a script of PyTorch, or of a library over it, and find what it needs to resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from unbroken.engines.script_edit import NotPlainError, Script, diff_or_lines, keyword
from unbroken.engines.torch import script_changes
from unbroken.engines.training import Advice, TrainingEngine

_TRAINER_LINES = (
    "from unbroken.training.transformers import UnbrokenCallback",
    "unbroken = UnbrokenCallback(seed=0)",
    'TrainingArguments(output_dir=unbroken.output_dir("out"), save_strategy="no", max_steps=unbroken.goal, ...)',
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
    "from unbroken.training.accelerate import UnbrokenLoop",
    "unbroken = UnbrokenLoop(accelerator, seed=0)",
    "loader = unbroken.loader(dataset, batch_size=64)  # not to be prepared",
    "for epoch in unbroken.epochs(10):",
    "    for inputs, targets in unbroken.batches(loader):",
    'unbroken.finish({"model.pt": accelerator.unwrap_model(model).state_dict()})',
)


@dataclass(frozen=True)
class Framework:
    """Describe a library that trains in a loop of its own: how a script shows it, and the lines that it needs.

    `goals` are its words for a goal, steps first; `epochs` is how far it trains where the script does not say it.
    """

    packages: frozenset[str]
    call: str
    lines: tuple[str, ...]
    goals: tuple[str, ...] = ()
    epochs: int = 10

    def is_in(self, script: Script) -> bool:
        """Return True if the script trains by this library."""
        return bool(self.packages & script.imports()) and any(name.endswith(self.call) for name in script.calls())

    def goal(self, script: Script) -> tuple[float | None, str]:
        """Return how far the script trains by itself, None if that is not found, and the unit."""
        if not self.goals:
            return script_changes.goal_of(script)
        for name, unit in zip(self.goals, ("steps", "epochs"), strict=True):
            for call in script.nodes(ast.Call):
                value = keyword(call, name)
                while isinstance(value, ast.BoolOp | ast.Call):  # int(unbroken.goal or 60)
                    value = value.values[-1] if isinstance(value, ast.BoolOp) else next(iter(value.args), None)
                if value is not None and (number := script.number(value)) is not None:
                    return number, unit
        return self.epochs, "epochs"


# Lightning's scripts may import parts of transformers, and those of both may name Accelerate.
_FRAMEWORKS = (
    Framework(
        frozenset({"lightning", "pytorch_lightning"}), "Trainer", _LIGHTNING_LINES, ("max_steps", "max_epochs"), 1000
    ),
    Framework(frozenset({"transformers"}), "Trainer", _TRAINER_LINES, ("max_steps", "num_train_epochs"), 3),
    Framework(frozenset({"accelerate"}), "Accelerator", _ACCELERATE_LINES),
)


class TorchEngine(TrainingEngine):
    """Run trainings of PyTorch, on one rank or several."""

    name = "torch"
    processes = "ranks"

    def trains(self, script: Script) -> bool:
        packages = script.imports()
        if "torch" in packages and ("backward" in script.calls() or "unbroken" in packages):
            return True
        return _framework(script) is not None

    def advice(self, script: Script) -> Advice:
        if framework := _framework(script):
            return Advice(*diff_or_lines(script, _refuse_framework, framework.lines), *framework.goal(script))
        changes = diff_or_lines(script, script_changes.make_changes, script_changes.LINES)
        return Advice(*changes, *script_changes.goal_of(script))


def _framework(script: Script) -> Framework | None:
    """Return what trains in the script; None where the script has a loop of its own."""
    return next((each for each in _FRAMEWORKS if each.is_in(script)), None)


def _refuse_framework(_script: Script) -> Iterator[str]:
    raise NotPlainError("a library has the loop; see docs/adapters.md")
