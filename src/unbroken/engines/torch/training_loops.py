"""Where a plain PyTorch script trains: its loop over epochs and batches, or over steps."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    block_with,
    function_with,
    holds,
    keyword,
    last_name,
)


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
