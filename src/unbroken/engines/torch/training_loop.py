"""Find where a plain PyTorch script trains, and the variables that are the state of its training."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from unbroken.engines.script_edit import NotPlainError, Script, function_with, holds, keyword, last_name, target_name

_OTHER_PARTS = ("GradScaler", "AveragedModel")
# What `Training` takes by these names is no part of the state.
_TAKEN = {"seed", "best", "guard", "validate", "folder", "saves", "own", "state"}


@dataclass(frozen=True)
class TrainingLoop:
    """Describe the loop over epochs or steps, and that over batches inside of it or of a function that it calls.

    Without `batches` it is a loop over steps, which draws its data itself.  `goal` is how many turns it makes, in the
    script's words, `number` the same as a number if it is known.  `loader` is the variable of the loader where the
    outer loop stands.
    """

    outer: ast.For
    goal: str
    number: float | None
    first: int = 0  # the number of the first turn
    batches: ast.For | None = None
    loader: str = ""
    function: ast.FunctionDef | None = None
    call: ast.Call | None = None  # of the function


@dataclass(frozen=True)
class Parts:
    """Name the variables that are the state of a training."""

    models: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.models, *self.others)


def find_loop(script: Script) -> TrainingLoop:
    """Return where the script trains; raise NotPlainError naming what is not as usual."""
    loops = [each for each in script.nodes(ast.For | ast.While) if _has_backward(each)]
    inner = [each for each in loops if not any(other is not each and holds(each, other) for other in loops)]
    if len(inner) != 1:
        raise NotPlainError(f"{len(inner) or 'no'} loops over batches with .backward()")
    if other := next((each for each in loops if isinstance(each, ast.While)), None):
        raise NotPlainError(f"line {other.lineno}: `while {ast.unparse(other.test)}`")
    batches = inner[0]
    function = function_with(script.tree, batches)
    is_in_epoch = len(loops) > 1 or any(_calls_of(function, script, each) for each in script.nodes(ast.For))
    if _is_range(batches.iter) and not is_in_epoch:
        return TrainingLoop(batches, *_turns(batches, script))
    return _find_epochs(script, batches, function)


def _find_epochs(script: Script, batches: ast.For, function: ast.FunctionDef | None) -> TrainingLoop:
    node = batches.iter
    while isinstance(node, ast.Call) and last_name(node.func) in ("enumerate", "tqdm") and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Name):
        raise NotPlainError(f"line {node.lineno}: the batches come from `{ast.unparse(node)}`")
    for epochs in script.nodes(ast.For):
        if epochs is batches or not _is_range(epochs.iter):
            continue
        if holds(epochs, batches):
            return TrainingLoop(epochs, *_turns(epochs, script), batches, node.id)
        calls = _calls_of(function, script, epochs)
        if function is not None and len(calls) == 1:
            outside = _outside(node.id, function, calls[0])
            return TrainingLoop(epochs, *_turns(epochs, script), batches, outside, function, calls[0])
    raise NotPlainError("no `for epoch in range(...)` around them")


def _turns(loop: ast.For, script: Script) -> tuple[str, float | None, int]:
    """Return of `range(...)` how many turns it makes, as a number too if that is known, and the number of the first."""
    call = loop.iter
    if not isinstance(call, ast.Call) or not 1 <= len(call.args) <= 2:
        raise NotPlainError(f"line {loop.lineno}: `{ast.unparse(loop.iter)}`")
    end, number = call.args[-1], script.number(call.args[-1])
    first = script.number(call.args[0]) if len(call.args) == 2 else 0
    if first == 0:
        return script.source(end), number, 0
    if first != 1:
        raise NotPlainError(f"line {loop.lineno}: the first epoch is `{ast.unparse(call.args[0])}`")
    if isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and ast.unparse(end.right) == "1":
        return script.source(end.left), script.number(end.left), 1
    return f"{script.source(end)} - 1", None if number is None else number - 1, 1


def _outside(name: str, function: ast.FunctionDef, call: ast.Call) -> str:
    """Return what a parameter of a function is called where it is called; a global name stays as it is."""
    parameters = [each.arg for each in function.args.args]
    if name not in parameters:
        return name
    at = parameters.index(name)
    value = call.args[at] if at < len(call.args) else keyword(call, name)
    if not isinstance(value, ast.Name):
        raise NotPlainError(f"line {call.lineno}: {function.name}() gets no variable as its {name}")
    return value.id


def _calls_of(function: ast.FunctionDef | None, script: Script, loop: ast.AST) -> list[ast.Call]:
    return [call for call in script.nodes(ast.Call, loop) if function and last_name(call.func) == function.name]


def _has_backward(loop: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in calls)


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange")


# --- the state of the training ---


def find_parts(script: Script, loop: TrainingLoop) -> Parts:
    """Return the variables that are the state of the training.

    Raise NotPlainError if one cannot be found: whatever has a `step()` in the loop must be among them.
    """
    scope = function_with(script.tree, loop.outer)
    models: dict[str, None] = {}
    others: dict[str, None] = {}
    for node in script.nodes(ast.Assign):
        name, call = target_name(node), node.value
        if not name or not isinstance(call, ast.Call) or function_with(script.tree, node) not in (scope, None):
            continue
        given = {last_name(each) for each in (*call.args, *(word.value for word in call.keywords))}
        is_schedule = last_name(call.func).endswith("LR") or "sched" in ast.unparse(call.func).lower()
        if _is_optimizer(call):
            models |= dict.fromkeys(_owners(call))
            others[name] = None
        elif (is_schedule and given & others.keys()) or last_name(call.func) in _OTHER_PARTS:
            others[name] = None
    if not models:
        raise NotPlainError("no `optimizer = ...(model.parameters(), ...)`")
    parts = Parts(tuple(models), tuple(others))
    _refuse_unknown(script, loop, parts)
    return parts


def _refuse_unknown(script: Script, loop: TrainingLoop, parts: Parts) -> None:
    if taken := [name for name in parts.names if name in _TAKEN]:
        raise NotPlainError(f"a variable named {taken[0]}, which `Training` takes for something else")
    inside = [loop.outer, *([loop.function] if loop.function else [])]
    given = {each.arg for each in loop.function.args.args} if loop.function else set()
    for call in (each for part in inside for each in script.nodes(ast.Call, part)):
        owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "step" else None
        if isinstance(owner, ast.Name) and owner.id not in {*parts.names, *given}:
            raise NotPlainError(f"line {call.lineno}: `{owner.id}.step()`, and it is not told what {owner.id} is")


def _is_optimizer(call: ast.Call) -> bool:
    """Return True for the call of a class that is given a model's parameters."""
    return last_name(call.func)[:1].isupper() and bool(_owners(call))


def _owners(call: ast.Call) -> list[str]:
    """Return the models of the `model.parameters()` in a call."""
    methods = [node.func for node in ast.walk(call) if isinstance(node, ast.Call)]
    found = [each for each in methods if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
    return [last_name(each.value) for each in found if each.attr in ("parameters", "named_parameters")]
