"""The variables of a script that are the state of its training: models, optimizers, schedules, scalers."""

from __future__ import annotations

import ast

from unbroken.engines.script_edit import NotPlainError, Script, dotted, function_with, last_name, target_name

_OTHER_PARTS = ("GradScaler", "NativeScaler", "NativeScalerWithGradNormCount", "AveragedModel", "EMA")
# What `Training` takes by these names is no part of the state.
_TAKEN = {"seed", "best", "guard", "validate", "folder", "saves", "own", "state"}


def find_parts(script: Script, loop: ast.stmt) -> dict[str, str]:
    """Return the variables that are the state of the training, by name; the models first."""
    scope = function_with(script.tree, loop)
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for node in script.nodes(ast.Assign):
        name, value = _first_target(node), node.value
        if not name or not isinstance(value, ast.Call) or function_with(script.tree, node) not in (scope, None):
            continue
        kind = last_name(value.func)
        models = _models_of(script, value) if is_optimizer(value) else []
        if models:
            found |= dict.fromkeys(models, "model")
            others[name] = "optimizer"
        elif any(others.get(ast.unparse(each)) == "optimizer" for each in _scheduled(value)):
            others[name] = "scheduler"
        elif kind in _OTHER_PARTS or kind.startswith("ModelEma"):
            others[name] = "other"
    if not found:  # a script that changes its parameters itself
        found = {each.func.value.id: "model" for each in ast.walk(script.tree) if _is_parameters(each)}  # type: ignore[attr-defined]
        found = {name: kind for name, kind in found.items() if _is_made(script, name, scope)}
        found = {} if _has_optimizer(script) else found
    if not found:
        raise NotPlainError("no `optimizer = ...(model.parameters(), ...)`")
    if taken := [name for name in {**found, **others} if name in _TAKEN]:
        raise NotPlainError(f"a variable named {taken[0]}, which `Training` takes for something else")
    return {**found, **others}


def is_optimizer(call: ast.Call) -> bool:
    """Return True for `torch.optim.SGD(...)`, `model.configure_optimizers(...)`, `create_optimizer(...)`."""
    kind = last_name(call.func)
    if "optimizer" in kind.lower() or ".optim." in f".{dotted(call.func)}":
        return not _is_schedule_module(call)
    return kind[:1].isupper() and any(map(_is_parameters, ast.walk(call)))


def _models_of(script: Script, call: ast.Call) -> list[str]:
    """Return the models whose parameters an optimizer is given, by their names."""
    if found := [each.func.value.id for each in ast.walk(call) if _is_parameters(each)]:  # type: ignore[attr-defined]
        return found
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = isinstance(owner, ast.Name) and "optimizer" in last_name(call.func).lower()
    if is_method and isinstance(owner, ast.Name) and _is_made(script, owner.id, function_with(script.tree, call)):
        return [owner.id]
    given = [each.id for each in (*call.args, *(word.value for word in call.keywords)) if isinstance(each, ast.Name)]
    if models := [name for name in given if _is_model(script, name)]:
        return models[:1]
    made = [node.value for node in script.nodes(ast.Assign) if target_name(node) in given[:1]]
    # Groups of parameters, which a function made of a model.
    return [name for value in made if isinstance(value, ast.Call) for name in _models_of(script, value)][:1]


def _is_model(script: Script, name: str) -> bool:
    """Return True if the script does with it what is done with models alone."""
    calls = [call.func for call in script.nodes(ast.Call) if isinstance(call.func, ast.Attribute)]
    does = {each.attr for each in calls if isinstance(each.value, ast.Name) and each.value.id == name}
    return bool(does & {"train", "eval", "parameters", "named_parameters", "cuda"}) or name.startswith("model")


def _first_target(node: ast.Assign) -> str:
    """Return `scheduler` of `scheduler = ...` and of `scheduler, epochs = ...`."""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Call) and _is_schedule(last_name(node.value.func)):
        target = target.elts[0]
    return target.id if len(node.targets) == 1 and isinstance(target, ast.Name) else ""


def _scheduled(call: ast.Call) -> list[ast.expr]:
    """Return the arguments among which a schedule finds its optimizer."""
    kind = last_name(call.func)
    if "sched" in kind.lower() or kind.endswith("LR"):
        return [*call.args[:2], *(each.value for each in call.keywords)]
    return call.args[:1] if kind[:1].isupper() else []


def _is_made(script: Script, name: str, scope: ast.FunctionDef | None) -> bool:
    made = [each for each in script.nodes(ast.Assign) if target_name(each) == name]
    return any(function_with(script.tree, each) in (scope, None) for each in made)


def _has_optimizer(script: Script) -> bool:
    return any(is_optimizer(call) for call in script.nodes(ast.Call))


def _is_schedule_module(call: ast.Call) -> bool:
    return "sched" in dotted(call.func).lower()


def _is_schedule(kind: str) -> bool:
    return kind[:1].isupper() or "sched" in kind


def _is_parameters(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("parameters", "named_parameters")
        and isinstance(node.func.value, ast.Name)
    )
