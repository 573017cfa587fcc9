"""The lines that make a script with a framework's own loop resume (docs/adapters.md), with the script's own names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    assignments,
    block_with,
    function_with,
    keyword,
    last_name,
    statement_with,
    target_name,
)
from unbroken.engines.torch import script_changes, training_loops
from unbroken.engines.torch.loader_changes import is_plain_loader, loader_by
from unbroken.engines.torch.script_changes import insert_import
from unbroken.engines.torch.training_parts import find_parts


@dataclass(frozen=True)
class Framework:
    """What calls of a script show that it trains so, and what its own words for a goal are, steps first.

    `epochs_by_default` is how far it trains where the script does not say it.
    """

    packages: frozenset[str]
    call: str
    change: Callable[[Script], None]
    goals: tuple[str, ...] = ()
    epochs_by_default: int = 10

    def is_in(self, script: Script) -> bool:
        """True if the script trains by this framework."""
        calls = {last_name(call.func) for call in script.nodes(ast.Call)}
        return bool(self.packages & script.imports()) and any(name.endswith(self.call) for name in calls)

    def goal(self, script: Script) -> tuple[float | None, str]:
        """How far the script trains by itself, None if that is not found, and in which unit."""
        for name, unit in zip(self.goals, ("steps", "epochs"), strict=False):
            for call in script.nodes(ast.Call):
                if (value := _said(call, name)) is not None:
                    return script.number(_by_hand(value)), unit
        if not self.goals:
            return script_changes.goal_of(script)
        return self.epochs_by_default, "epochs"


def change_transformers(script: Script) -> None:
    """Edits a script that trains by a Trainer; NotPlainError naming what it was not found to have."""
    trainer = _one(script, "Trainer")
    arguments = _arguments_of(script, trainer)
    if keyword(arguments, "load_best_model_at_end") is not None:
        raise NotPlainError(f"line {arguments.lineno}: load_best_model_at_end, which unbroken refuses")
    train = _method(script, trainer, "train")
    own = keyword(arguments, "output_dir") or next(iter(arguments.args), None)
    by_hand = script.source(own) if own is not None else '"out"'
    if own is not None:
        script.replace(own, f"unbroken.output_dir({by_hand})")
    given = {} if own is not None else {"output_dir": f"unbroken.output_dir({by_hand})"}
    goal = _goal(script, arguments, TRANSFORMERS)
    script.set_keywords(arguments, {**given, "save_strategy": '"no"', **goal})
    script.set_keywords(trainer, {"callbacks": _callbacks(script, trainer)})
    script.set_keywords(train, {"resume_from_checkpoint": "unbroken.resume"})
    _before(script, [arguments, trainer], "unbroken = UnbrokenCallback()")
    insert_import(script, "from unbroken.training.transformers import UnbrokenCallback")


def change_lightning(script: Script) -> None:
    """As `change_transformers`, with a Trainer of Lightning."""
    trainer = _one(script, "Trainer")
    fit = _method(script, trainer, "fit")
    loader = _loader_of(script, fit)
    loader_by(script, loader, "unbroken")
    goal = _goal(script, trainer, LIGHTNING)
    script.set_keywords(trainer, {**goal, "callbacks": _callbacks(script, trainer)})
    script.set_keywords(fit, {"ckpt_path": "unbroken.resume", "weights_only": "True"})
    seeds = [call for call in script.nodes(ast.Call) if last_name(call.func) == "seed_everything" and call.args]
    seed = script.source(seeds[0].args[0]) if seeds and isinstance(seeds[0].args[0], ast.Constant) else "0"
    _before(script, [loader, trainer], f"unbroken = UnbrokenCallback(seed={seed})")
    insert_import(script, "from unbroken.training.lightning import UnbrokenCallback")


def change_accelerate(script: Script) -> None:
    """As `change_transformers`, with a loop of the script's own around an Accelerator."""
    call = _one(script, "Accelerator")
    made = statement_with(script.tree, call)
    accelerator = target_name(made) if isinstance(made, ast.Assign) else ""
    if not accelerator:
        raise NotPlainError(f"line {call.lineno}: an Accelerator without a name")
    loop = training_loops.find_loop(script)
    loader = _not_prepared(script, accelerator, loop.loader_name)
    own = _made(script, loader)
    if not is_plain_loader(own):
        raise NotPlainError(f"line {own.lineno}: the batches come from `{ast.unparse(own)}`")
    if own.lineno < made.lineno:
        raise NotPlainError(f"line {own.lineno}: the loader is made before the Accelerator")
    loader_by(script, own, "unbroken")
    script_changes.change_loops(script, loop, "unbroken", loader)
    models = [name for name, kind in find_parts(script, loop.epochs).items() if kind == "model"]
    files = ", ".join(f'"{name}.pt": {accelerator}.unwrap_model({name}).state_dict()' for name in models)
    script.insert_after(loop.epochs, f"unbroken.finish({{{files}}})")
    script.insert_after(made, f"unbroken = Segments({accelerator}, seed=0)")
    insert_import(script, "from unbroken.training.accelerate import Segments")


TRANSFORMERS = Framework(
    frozenset({"transformers"}), "Trainer", change_transformers, ("max_steps", "num_train_epochs"), 3
)
LIGHTNING = Framework(
    frozenset({"lightning", "pytorch_lightning"}), "Trainer", change_lightning, ("max_steps", "max_epochs"), 1000
)
ACCELERATE = Framework(frozenset({"accelerate"}), "Accelerator", change_accelerate)


# --- what there is ---


def _one(script: Script, ending: str) -> ast.Call:
    """The one call of something whose name ends so."""
    calls: list[ast.Call] = [call for call in script.nodes(ast.Call) if last_name(call.func).endswith(ending)]
    if len(calls) != 1:
        raise NotPlainError(f"{len(calls) or 'no'} `{ending}(...)`")
    return calls[0]


def _made(script: Script, name: str) -> ast.Call:
    """The call that a variable is assigned, once."""
    values = [each.value for each in assignments(script.tree) if target_name(each) == name]
    if len(values) != 1 or not isinstance(values[0], ast.Call):
        raise NotPlainError(f"{len(values) or 'no'} `{name} = ...(...)`")
    return values[0]


def _method(script: Script, made: ast.Call, name: str) -> ast.Call:
    """The one call of a method of what a call has made."""
    statement = statement_with(script.tree, made)
    owner = target_name(statement) if isinstance(statement, ast.Assign) else ""
    calls: list[ast.Call] = [
        call
        for call in script.nodes(ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == name
        and ast.unparse(call.func.value) == (owner or ast.unparse(made))
    ]
    if len(calls) != 1:
        raise NotPlainError(f"{len(calls) or 'no'} `{owner or 'Trainer(...)'}.{name}(...)`")
    return calls[0]


def _arguments_of(script: Script, trainer: ast.Call) -> ast.Call:
    """The call that makes the arguments of a Trainer."""
    value = keyword(trainer, "args") or (trainer.args[1] if len(trainer.args) > 1 else None)
    if isinstance(value, ast.Name):
        value = _made(script, value.id)
    if not isinstance(value, ast.Call) or not last_name(value.func).endswith(("Arguments", "Config")):
        raise NotPlainError(f"line {trainer.lineno}: no `args=TrainingArguments(...)`")
    return value


def _goal(script: Script, call: ast.Call, framework: Framework) -> dict[str, str]:
    """How far it trains, with the goal of the configuration first; where the script says both, steps count."""
    steps, epochs = framework.goals
    if (count := _said(call, steps)) is not None:
        return {steps: f"int(unbroken.goal or {script.source(count)})"}
    count = _said(call, epochs)
    number = framework.epochs_by_default if count is None else script.source(count)
    return {epochs: f"unbroken.goal or {number}"}


def _said(call: ast.Call, name: str) -> ast.expr | None:
    """What a call gives for a goal; both frameworks take a number below zero for none."""
    value = keyword(call, name)
    is_none = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    return None if is_none or (isinstance(value, ast.Constant) and value.value is None) else value


def _by_hand(value: ast.expr) -> ast.expr:
    """The number in `int(unbroken.goal or 60)`, and in `60`."""
    if isinstance(value, ast.Call) and last_name(value.func) == "int" and value.args:
        value = value.args[0]
    return value.values[-1] if isinstance(value, ast.BoolOp) else value


def _callbacks(script: Script, trainer: ast.Call) -> str:
    """Those that there are, and ours, which comes last."""
    own = keyword(trainer, "callbacks")
    if own is None:
        return "[unbroken]"
    if isinstance(own, ast.List):
        return f"[{', '.join([*map(script.source, own.elts), 'unbroken'])}]"
    made = [each.value for each in assignments(script.tree) if target_name(each) == ast.unparse(own)]
    if len(made) != 1 or not isinstance(made[0], ast.List):
        raise NotPlainError(f"line {own.lineno}: callbacks={ast.unparse(own)}")
    return f"[*{script.source(own)}, unbroken]"


def _loader_of(script: Script, fit: ast.Call) -> ast.Call:
    """The DataLoader that `fit` is given, or that a method of the model or of the data makes."""
    given = keyword(fit, "train_dataloaders") or (fit.args[1] if len(fit.args) > 1 else None)
    if isinstance(given, ast.Name):
        value = _made(script, given.id)
        if is_plain_loader(value):
            return value
    elif isinstance(given, ast.Call) and is_plain_loader(given):
        return given
    methods = [each for each in script.nodes(ast.FunctionDef) if each.name == "train_dataloader"]
    made: list[ast.Call] = [call for each in methods for call in script.nodes(ast.Call, each) if is_plain_loader(call)]
    if len(made) != 1:
        raise NotPlainError(f"line {fit.lineno}: no plain `DataLoader(...)` for the training")
    return made[0]


def _not_prepared(script: Script, accelerator: str, name: str) -> str:
    """Takes the loader out of `prepare`, which may give it another name; returns the name that it has before."""
    for call in script.nodes(ast.Call):
        if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == f"{accelerator}.prepare"):
            continue
        statement = statement_with(script.tree, call)
        targets = statement.targets[0] if isinstance(statement, ast.Assign) else None
        names = targets.elts if isinstance(targets, ast.Tuple) else [targets]
        at = [place for place, each in enumerate(names) if isinstance(each, ast.Name) and each.id == name]
        if not at:
            continue
        given = call.args[at[0]] if len(names) == len(call.args) else None
        if not isinstance(given, ast.Name):
            raise NotPlainError(f"line {call.lineno}: `{ast.unparse(call)}`")
        uses = [each.lineno for each in script.nodes(ast.Name) if each.id == name and isinstance(each.ctx, ast.Load)]
        if given.id != name and len(uses) > 1:
            raise NotPlainError(f"line {uses[0]}: {name}, which `prepare` makes of {given.id}")
        if len(names) == 1:
            script.remove(statement)
            return given.id
        _leave_out(script, statement, call, names, at[0])
        return given.id
    return name


def _leave_out(script: Script, statement: ast.stmt, call: ast.Call, names: Sequence[ast.AST | None], at: int) -> None:
    left = ", ".join(script.source(each) for place, each in enumerate(names) if place != at and each is not None)
    words = ", ".join(script.source(each) for place, each in enumerate(call.args) if place != at)
    script.replace(statement, f"{left} = {script.source(call.func)}({words})")


# --- where the lines go ---


def _before(script: Script, calls: Sequence[ast.Call], line: str) -> None:
    """Above the first of the statements that need it, where all of them see it."""
    tree = script.tree
    # A method is called when the Trainer is at work; until then the name is there if it is a global one.
    last = calls[-1]
    seen = [call for call in calls if function_with(tree, call) is function_with(tree, last)]
    if len(seen) < len(calls) and function_with(tree, last) is not None:
        raise NotPlainError(f"line {last.lineno}: the Trainer is made inside of a function, the data elsewhere")
    statements = [statement_with(tree, call) for call in seen]
    first = min(statements, key=lambda each: each.lineno)
    if any(block_with(tree, each) is not block_with(tree, first) for each in statements):
        raise NotPlainError(f"line {first.lineno}: not beside the Trainer")
    script.insert_before(first, line)
