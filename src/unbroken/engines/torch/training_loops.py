"""Where a plain PyTorch script trains: its loops, and the variables that are the state of the training."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    block_with,
    dotted,
    function_with,
    holds,
    keyword,
    last_name,
    target_name,
)

_OTHER_PARTS = ("GradScaler", "NativeScaler", "NativeScalerWithGradNormCount", "AveragedModel", "EMA")
# What `Training` takes by these names is no part of the state.
_TAKEN = {"seed", "best", "guard", "validate", "folder", "saves", "own", "state"}


@dataclass(frozen=True)
class Loop:
    """Where a script trains: the loop over epochs, that over batches, and the variable of the loader outside.

    Batches that are numbers of a `range` have no loader's name.
    """

    epochs: ast.For
    batches: ast.For
    loader: ast.expr
    loader_name: str
    function: ast.FunctionDef | None  # that the batches are trained in, if it is another than that of the epochs
    call: ast.Call | None  # of that function


@dataclass(frozen=True)
class Steps:
    """One loop of steps, for which the script draws the data itself: how many it says, and where it ends by itself."""

    loop: ast.For | ast.While
    goal: str
    number: float | None
    end: ast.If | None


def find_loop(script: Script) -> Loop:
    """Return where the script trains; NotPlainError if that is not one loop over batches inside of one over epochs."""
    inner = _inner_loops(script)
    if len(inner) != 1 or not isinstance(inner[0], ast.For):
        raise NotPlainError(f"{len(inner) if len(inner) > 1 else 'no'} loops over batches with .backward()")
    batches = inner[0]
    if "timm" in script.imports() and any(last_name(each.func) == "create_loader" for each in script.nodes(ast.Call)):
        raise NotPlainError("create_loader of timm makes batches that no plain DataLoader makes")
    loader = _iterated(batches.iter)
    name = loader.id if isinstance(loader, ast.Name) else ""
    function = function_with(script.tree, batches)
    for epochs in script.nodes(ast.For):
        if epochs is batches or not _is_range(epochs.iter):
            continue
        if holds(epochs, batches):
            return Loop(epochs, batches, loader, name, None, None)
        calls = [call for call in script.nodes(ast.Call, epochs) if function and last_name(call.func) == function.name]
        if function and len(calls) == 1:
            outside = _outside(name, function, calls[0]) if name else ""
            return Loop(epochs, batches, loader, outside, function, calls[0])
    raise NotPlainError("no `for epoch in range(...)` around them")


def find_steps(script: Script) -> Steps | None:
    """Return the loop of a script that draws its batches itself, None if it is written in another way."""
    loops = [
        each for each in (*script.nodes(ast.For), *script.nodes(ast.While)) if any(map(_steps_back, ast.walk(each)))
    ]
    outer = [each for each in loops if not any(other is not each and holds(other, each) for other in loops)]
    outer = outer or _loops_that_call(script)
    if len(outer) != 1:
        return None
    (loop,) = outer
    inner = [each for each in loops if each is not loop]
    if any(not isinstance(each, ast.For) or not _is_range(each.iter) or _has_step(each) for each in inner):
        return None
    if isinstance(loop, ast.While):
        return _while(script, loop)
    return _counted(script, loop) if _is_range(loop.iter) else None


def range_of(loop: ast.For, script: Script) -> tuple[ast.expr, int, int]:
    """Return of `range(...)`: what says how many epochs, what is to be taken off it, and the number of the first one.

    A first epoch that the script's own restart sets, such as `args.start_epoch`, is 0 unless its default says more.
    """
    call = loop.iter
    if not isinstance(call, ast.Call) or not 1 <= len(call.args) <= 2:
        raise NotPlainError(f"line {loop.lineno}: `{ast.unparse(loop.iter)}`")
    if len(call.args) == 1:
        return call.args[0], 0, 0
    first, end = call.args
    number = first.value if isinstance(first, ast.Constant) else _first_of(first, script)
    if number == 0:
        return end, 0, 0
    if number == 1:
        return (end.left, 0, 1) if is_one_more(end) and isinstance(end, ast.BinOp) else (end, 1, 1)
    raise NotPlainError(f"line {loop.lineno}: the first epoch is `{ast.unparse(first)}`")


def own_start(loop: ast.For) -> str:
    """Return what the script's own restart calls its first epoch, empty if it has none."""
    call = loop.iter
    first = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 2 else None
    return "" if first is None or isinstance(first, ast.Constant) else ast.unparse(first)


def is_one_more(node: ast.expr) -> bool:
    """Return True for `N + 1`."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return is_sum and isinstance(node.right, ast.Constant) and node.right.value == 1  # type: ignore[attr-defined]


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


def before_of(block: list[ast.stmt], loop: ast.stmt) -> list[ast.stmt]:
    """Return the statements of a block above the one that has the loop."""
    return block[: next(at for at, each in enumerate(block) if holds(each, loop))]


def after_of(script: Script, loop: ast.stmt) -> list[ast.stmt]:
    """Return the statements below a loop in its own block."""
    block = block_with(script.tree, loop)
    return block[block.index(loop) + 1 :]


# --- inside ---


def _inner_loops(script: Script) -> list[ast.For | ast.While]:
    found = [each for each in script.nodes(ast.For) if any(map(_steps_back, ast.walk(each)))]
    return [each for each in found if not any(holds(each, other) for other in found if other is not each)]


def _steps_back(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange")


def _has_step(node: ast.AST) -> bool:
    """Return True if something is stepped there, as optimizers are."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    return any(call.func.attr == "step" for call in calls)  # type: ignore[attr-defined]


def _loops_that_call(script: Script) -> list[ast.For | ast.While]:
    """Return the loops over a range that call a function of the script which makes one step without a loop."""
    functions = [each for each in script.tree.body if isinstance(each, ast.FunctionDef)]
    names = {each.name for each in functions if any(map(_steps_back, ast.walk(each)))}
    loops = [each for each in script.nodes(ast.For) if _is_range(each.iter)]
    return [each for each in loops if calls_any(script, each, names)]


def calls_any(script: Script, within: ast.AST, names: set[str]) -> bool:
    """Return True if one of these functions is called there."""
    return any(last_name(call.func) in names for call in script.nodes(ast.Call, within))


def _while(script: Script, loop: ast.While) -> Steps | None:
    """Return the steps of `while step < N` and of `while True` with `if step >= N: break`."""
    is_endless = isinstance(loop.test, ast.Constant)
    ends = [each for each in loop.body if isinstance(each, ast.If) and is_endless and _is_end(each)]
    end = ends[-1] if ends else None
    test = end.test if end is not None else loop.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or (is_endless and end is None):
        return None
    limit, number = script.source(test.comparators[0]), script.number(test.comparators[0])
    is_one_beyond = isinstance(test.ops[0], ast.Gt | ast.LtE)
    if not isinstance(test.ops[0], (ast.Gt, ast.GtE) if is_endless else (ast.Lt, ast.LtE)):
        return None
    goal = f"{limit} + 1" if is_one_beyond else limit
    return Steps(loop, goal, None if number is None else number + is_one_beyond, end)


def _is_end(node: ast.If) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], ast.Break) and not node.orelse and _is_limit(node.test)


def _is_limit(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt | ast.GtE)


def _counted(script: Script, loop: ast.For) -> Steps:
    count, less, _ = range_of(loop, script)
    number = script.number(count)
    return Steps(
        loop, script.source(count) + f" - {less}" * bool(less), None if number is None else number - less, None
    )


def _first_of(first: ast.expr, script: Script) -> float | None:
    """Return the number of the first epoch that the script itself sets, 0 for what its own restart changes."""
    if (number := script.number(first)) is not None:
        return number
    return 0 if last_name(first) in ("start_epoch", "start_iter", "begin_epoch", "initial_epoch") else None


def _iterated(node: ast.expr) -> ast.expr:
    """Return the loader of `for ... in loader`, `enumerate(loader)`, `tqdm(loader)`; a `range` stands for itself."""
    while isinstance(node, ast.Call) and last_name(node.func) in ("enumerate", "tqdm") and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Name) and not _is_range(node):
        raise NotPlainError(f"line {node.lineno}: the batches come from `{ast.unparse(node)}`")
    return node


def _outside(name: str, function: ast.FunctionDef, call: ast.Call) -> str:
    """Return what a parameter of a function is called where it is called; a name that is global stays as it is."""
    parameters = [each.arg for each in function.args.args]
    if name not in parameters:
        return name
    at = parameters.index(name)
    value = call.args[at] if at < len(call.args) else keyword(call, name)
    if not isinstance(value, ast.Name):
        raise NotPlainError(f"line {call.lineno}: {function.name}() gets no variable as its {name}")
    return value.id


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
