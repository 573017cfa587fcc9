"""Find where a plain PyTorch script trains, and the variables that are the state of its training."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.engines.script_edit import NotPlainError, Script, function_with, holds, keyword, last_name, target_name

_OTHER_PARTS = ("GradScaler", "NativeScaler", "AveragedModel", "EMA", "ModelEma", "ModelEmaV2")
# What `Training` takes by these names is no part of the state.
_TAKEN = {"seed", "best", "guard", "validate", "folder", "saves", "own", "state"}
_RESTARTS = ("start_epoch", "start_iter", "begin_epoch", "initial_epoch")
AnyLoop = ast.For | ast.While


@dataclass(frozen=True)
class TrainingLoop:
    """Describe the loop over epochs or steps, and that over batches inside of it or of a function that it calls.

    Without `batches` it is a loop over steps, which draws its data itself.  `goal` is how many turns it makes, in the
    script's words, `number` the same as a number if it is known.  `loader` is the variable of the loader where the
    outer loop stands; batches that are numbers of a `range` have none.
    """

    outer: AnyLoop
    goal: str
    number: float | None
    first: int = 0  # the number of the first turn
    batches: ast.For | None = None
    loader: str = ""
    function: ast.FunctionDef | None = None
    call: ast.Call | None = None  # of the function
    end: ast.If | None = None  # `if step >= N: break`


def find_loop(script: Script) -> TrainingLoop:
    """Return where the script trains; NotPlainError naming what is not as usual."""
    loops = [each for each in (*script.nodes(ast.For), *script.nodes(ast.While)) if _has_call(each, "backward")]
    outer = [each for each in loops if not any(other is not each and holds(other, each) for other in loops)]
    inner = [each for each in loops if not any(other is not each and holds(each, other) for other in loops)]
    if "timm" in script.imports() and "create_loader" in script.calls():
        raise NotPlainError("create_loader of timm makes batches that no plain DataLoader makes")
    if len(outer) == 1 and (found := _find_steps(script, outer[0], loops)) is not None:
        return found
    if len(inner) != 1 or not isinstance(inner[0], ast.For):
        raise NotPlainError(f"{len(inner) if len(inner) > 1 else 'no'} loops over batches with .backward()")
    return _find_epochs(script, inner[0])


def _find_steps(script: Script, loop: AnyLoop, loops: Sequence[AnyLoop]) -> TrainingLoop | None:
    """Return the loop if it is one over steps: loops inside of it only add up gradients."""
    inner = [each for each in loops if each is not loop]
    if any(isinstance(each, ast.While) or not _is_range(each.iter) or _has_call(each, "step") for each in inner):
        return None
    if isinstance(loop, ast.While):
        return _find_while(script, loop)
    function = function_with(script.tree, loop)
    is_of_an_epoch = function and any(_calls_in(script, each, function) for each in script.nodes(ast.For))
    return None if is_of_an_epoch or not _is_range(loop.iter) else TrainingLoop(loop, *range_of(loop, script))


def _find_while(script: Script, loop: ast.While) -> TrainingLoop | None:
    """Return the loop of `while step < N`, and of `while True` with `if step >= N: break`."""
    is_endless = isinstance(loop.test, ast.Constant)
    ends = [each for each in loop.body if isinstance(each, ast.If) and isinstance(each.body[0], ast.Break)]
    end = ends[-1] if is_endless and ends and not ends[-1].orelse else None
    test = end.test if end is not None else loop.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], (ast.Gt, ast.GtE) if is_endless else (ast.Lt, ast.LtE)):
        return None
    one = isinstance(test.ops[0], ast.Gt | ast.LtE)
    limit, number = script.source(test.comparators[0]), script.number(test.comparators[0])
    return TrainingLoop(loop, f"{limit} + 1" if one else limit, None if number is None else number + one, end=end)


def _find_epochs(script: Script, batches: ast.For) -> TrainingLoop:
    node = batches.iter
    while isinstance(node, ast.Call) and last_name(node.func) in ("enumerate", "tqdm") and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Name) and not _is_range(node):
        raise NotPlainError(f"line {node.lineno}: the batches come from `{ast.unparse(node)}`")
    name, function = node.id if isinstance(node, ast.Name) else "", function_with(script.tree, batches)
    for epochs in script.nodes(ast.For):
        if epochs is batches or not _is_range(epochs.iter):
            continue
        if holds(epochs, batches):
            return TrainingLoop(epochs, *range_of(epochs, script), batches, name)
        calls = _calls_in(script, epochs, function) if function else []
        if function and len(calls) == 1:
            outside = _outside(name, function, calls[0])
            return TrainingLoop(epochs, *range_of(epochs, script), batches, outside, function, calls[0])
    raise NotPlainError("no `for epoch in range(...)` around them")


def range_of(loop: ast.For, script: Script) -> tuple[str, float | None, int]:
    """Return of `range(...)` how many turns it makes, as a number too if that is known, and the number of the first.

    A first epoch that the script's own restart sets, such as `args.start_epoch`, is 0 unless its default says more.
    """
    call = loop.iter
    if not isinstance(call, ast.Call) or not 1 <= len(call.args) <= 2:
        raise NotPlainError(f"line {loop.lineno}: `{ast.unparse(loop.iter)}`")
    end, number = call.args[-1], script.number(call.args[-1])
    first = script.number(call.args[0]) if len(call.args) == 2 else 0
    if first == 0 or (first is None and last_name(call.args[0]) in _RESTARTS):
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


def _calls_in(script: Script, loop: ast.AST, function: ast.FunctionDef) -> list[ast.Call]:
    return [call for call in script.nodes(ast.Call, loop) if last_name(call.func) == function.name]


def _has_call(loop: ast.AST, method: str) -> bool:
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Attribute) and each.attr == method for each in calls)


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange")


# --- the state of the training ---


def find_parts(script: Script, loop: TrainingLoop) -> dict[str, str]:
    """Return the variables that are the state of the training, with their kinds; the models first.

    Raise NotPlainError if one cannot be found: whatever has a `step()` in the loop must be among them.
    """
    scope = function_with(script.tree, loop.outer)
    models: dict[str, str] = {}
    others: dict[str, str] = {}
    for node in script.nodes(ast.Assign):
        target, call = node.targets[0], node.value
        is_tuple = isinstance(target, ast.Tuple) and target.elts  # scheduler, epochs = create_scheduler(...)
        name = last_name(target.elts[0]) if is_tuple else target_name(node)
        if not name or not isinstance(call, ast.Call) or function_with(script.tree, node) not in (scope, None):
            continue
        if is_optimizer(call):
            if not (found := _models_of(script, call)):
                break
            models |= dict.fromkeys(found, "model")
            others[name] = "optimizer"
        elif _is_schedule(call) and any(others.get(each) == "optimizer" for each in _names_given(call)):
            others[name] = "scheduler"
        elif last_name(call.func) in _OTHER_PARTS:
            others[name] = "other"
    else:
        # A script without an optimizer changes its parameters itself.
        models = models or dict.fromkeys((name for call in script.nodes(ast.Call) if (name := _owner(call))), "model")
        if models:
            _refuse_unknown(script, loop, {**models, **others})
            return {**models, **others}
    raise NotPlainError("no `optimizer = ...(model.parameters(), ...)`")


def _refuse_unknown(script: Script, loop: TrainingLoop, parts: dict[str, str]) -> None:
    if taken := [name for name in parts if name in _TAKEN]:
        raise NotPlainError(f"a variable named {taken[0]}, which `Training` takes for something else")
    inside = [loop.outer, *([loop.function] if loop.function else [])]
    given = {each.arg for each in loop.function.args.args} if loop.function else set()
    for call in (each for part in inside for each in script.nodes(ast.Call, part)):
        owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "step" else None
        if isinstance(owner, ast.Name) and owner.id not in {*parts, *given}:
            raise NotPlainError(f"line {call.lineno}: `{owner.id}.step()`, and it is not told what {owner.id} is")


def is_optimizer(call: ast.Call) -> bool:
    """Return True for `torch.optim.SGD(...)`, `model.configure_optimizers(...)`, `Muon(model.parameters())`."""
    kind, text = last_name(call.func), f".{ast.unparse(call.func)}"
    if "optimizer" in kind.lower() or ".optim." in text:
        return "sched" not in text.lower()
    return kind[:1].isupper() and any(isinstance(each, ast.Call) and _owner(each) for each in ast.walk(call))


def _models_of(script: Script, call: ast.Call) -> list[str]:
    """Return the models whose parameters an optimizer is given, or whose method makes it."""
    if found := [name for each in script.nodes(ast.Call, call) if (name := _owner(each))]:
        return found
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = {target_name(node) for node in script.nodes(ast.Assign)}
    names = [owner.id] if isinstance(owner, ast.Name) and owner.id in made else []
    return names or [name for name in _names_given(call) if name in ("model", "net")][:1]


def _owner(call: ast.Call) -> str:
    """Return the model of `model.parameters()`; empty of another call."""
    is_it = isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters")
    return last_name(call.func.value) if is_it and isinstance(call.func.value, ast.Name) else ""  # type: ignore[attr-defined]


def _names_given(call: ast.Call) -> list[str]:
    return [last_name(each) for each in (*call.args, *(word.value for word in call.keywords))]


def _is_schedule(call: ast.Call) -> bool:
    return last_name(call.func).endswith("LR") or "sched" in ast.unparse(call.func).lower()
