"""The lines that a script lacks where no diff can be made, with the names that it has."""

from __future__ import annotations

import ast
from collections.abc import Collection

from unbroken.engines.script_edit import NotPlainError, Script, function_with, keyword, last_name, target_name
from unbroken.engines.torch.loader_changes import LOADER_OPTIONS, is_plain_loader
from unbroken.engines.torch.training_loops import calls_any, find_loop, find_steps, is_one_more
from unbroken.engines.torch.training_parts import find_parts, is_optimizer


def own_lines(script: Script) -> tuple[str, ...]:
    """Return the lines that a script lacks where no diff can be made, with the names that it has."""
    parts = parts_anyhow(script)
    words = ", ".join(f"{name.rpartition('.')[2]}={name}" for name in parts)
    models = [name for name, kind in parts.items() if kind == "model"]
    files = ", ".join(f'"{name.rpartition(".")[2]}.pt": {name}.state_dict()' for name in models)
    loop, end = _any_loop(script), _end(script, _any_loop(script))
    return (
        "from unbroken.training.torch import Training",
        f"training = Training({words}){_apart(script, parts)}",
        *_loop_lines(script, loop, end),
        f"training.finish({{{files}}})  # below the loop",
    )


def goal_anyhow(script: Script) -> tuple[float | None, str]:
    """Return how far a script trains of which no diff can be made, None if that is not found, and the unit."""
    loop = _any_loop(script)
    end = ast.parse(_end(script, loop), mode="eval").body
    is_counted = loop is not None and (isinstance(loop, ast.While) or not _loader(script, _epoch_function(script))[0])
    number = script.number(end) if isinstance(loop, ast.For) and _bounds(loop) else None
    return number or script.option("epochs"), "steps" if is_counted else "epochs"


def outer_loop(script: Script) -> ast.For | ast.While | None:
    """Return the loop over epochs or steps, as far as it can be told."""
    try:
        steps = find_steps(script)
        return steps.loop if steps is not None else find_loop(script).epochs
    except NotPlainError:
        pass
    loops = [each for each in script.nodes(ast.For) if "epoch" in ast.unparse(each.target).lower()]
    return loops[0] if loops else None


def _loop_lines(script: Script, loop: ast.For | ast.While | None, end: str) -> list[str]:
    function = _epoch_function(script)
    loader, batch = _loader(script, function)
    if not loader:
        step = ast.unparse(_target(loop)) if isinstance(loop, ast.For) else "step"
        return [f"for {step} in training.steps({end}):  # in place of the loop that draws its data itself"]
    epoch = ast.unparse(_target(loop)) if isinstance(loop, ast.For) else "epoch"
    unit = ', "steps"' if isinstance(loop, ast.While) else ""
    where = f"  # in {function[1]}" if function is not None else ""
    return [
        _loader_line(script, loader),
        f"for {epoch} in training.epochs({end}{unit}):",
        f"    for {batch} in training.batches({loader}):{where}",
    ]


def _loader_line(script: Script, loader: str) -> str:
    """Return how the loader is made: from what it was made of, as far as the script says it."""
    made = [node.value for node in script.nodes(ast.Assign) if ast.unparse(node.targets[0]) == loader]
    call = made[-1] if made and isinstance(made[-1], ast.Call) else None
    if call is None or last_name(call.func) == "create_loader":
        options = f"batch_size={loader}.batch_size, collate_fn={loader}.collate_fn"
        remark = "start with --no-prefetcher" if call is not None else "shuffled"
        return f"{loader} = training.loader({loader}.dataset, {options})  # {remark}"
    data = [
        *map(ast.unparse, call.args[:1]),
        *(ast.unparse(each.value) for each in call.keywords if each.arg == "dataset"),
    ]
    kept = LOADER_OPTIONS - {"dataset", *(["shuffle"] if keyword(call, "sampler") is not None else [])}
    words = [f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords if each.arg in kept]
    order = "shuffled" if not any(word.startswith("shuffle=") for word in words) else "in place of its DataLoader"
    return f"{loader} = training.loader({', '.join([*data, *words])})  # {order}"


def _apart(script: Script, parts: Collection[str]) -> str:
    """Return a remark on parts that may be None."""
    maybe = [
        name
        for name in parts
        for node in script.nodes(ast.Assign)
        if target_name(node) == name and isinstance(node.value, ast.Constant)
    ]
    return f"  # {', '.join(dict.fromkeys(maybe))}: if not None" if maybe else "  # below the last of them"


def parts_anyhow(script: Script) -> dict[str, str]:
    """Return the parts of a training, as far as they can be told."""
    loop = outer_loop(script)
    try:
        return find_parts(script, loop) if loop is not None else _any_parts(script)
    except NotPlainError:
        return _any_parts(script)


def _any_parts(script: Script) -> dict[str, str]:
    """Return what optimizers are made of, wherever it is; `self.model` too."""
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for node in script.nodes(ast.Assign):
        if len(node.targets) != 1 or not isinstance(node.value, ast.Call) or not is_optimizer(node.value):
            continue
        for call in (each for each in ast.walk(node.value) if isinstance(each, ast.Call)):
            if last_name(call.func) in ("parameters", "named_parameters") and isinstance(call.func, ast.Attribute):
                found[ast.unparse(call.func.value)] = "model"
        others[ast.unparse(node.targets[0])] = "optimizer"
    return {**(found or {"model": "model"}), **(others or {"optimizer": "optimizer"})}


def _any_loop(script: Script) -> ast.For | ast.While | None:
    """Return the loop that trains, of whatever form: one that steps back, or calls what does."""
    if (loop := outer_loop(script)) is not None:
        return loop
    functions = [each for each in script.nodes(ast.FunctionDef) if _steps_back(each)]
    names = {each.name for each in functions}
    loops: list[ast.For | ast.While] = [*script.nodes(ast.While), *script.nodes(ast.For)]
    return next((each for each in loops if _steps_back(each) or calls_any(script, each, names)), None)


def _bounds(loop: ast.For) -> list[ast.expr]:
    """Return the arguments of the `range` that a loop runs over, if it does."""
    node = _inner(loop.iter)
    return list(node.args) if isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange") else []


def _end(script: Script, loop: ast.For | ast.While | None) -> str:
    """Return how far a loop runs, in the script's own words; some number where it does not say it."""
    if isinstance(loop, ast.For) and (bounds := _bounds(loop)):
        end = bounds[min(1, len(bounds) - 1)]
        is_from_one = len(bounds) == 2 and ast.unparse(bounds[0]) == "1" and is_one_more(end)
        return ast.unparse(end.left if is_from_one and isinstance(end, ast.BinOp) else end)
    ends = [each.test for each in script.nodes(ast.If, loop) if isinstance(each.body[0], ast.Break)] if loop else []
    limits = [
        ast.unparse(each.comparators[0])
        for test in ends
        for each in ast.walk(test)
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Gt | ast.GtE)
    ]
    return limits[0] if limits else "1000" if loop is not None else "10"


def _target(loop: ast.For) -> ast.expr:
    """Return the variable of a loop, without that of `enumerate`."""
    is_counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
    return loop.target.elts[1] if is_counted and isinstance(loop.target, ast.Tuple) else loop.target


def _epoch_function(script: Script) -> tuple[ast.Call, str] | None:
    """Return the call of what trains one epoch, and in which file it is to be found."""
    names = {"train_one_epoch", "train_epoch", "train"}
    calls: list[ast.Call] = [call for call in script.nodes(ast.Call) if last_name(call.func) in names]
    calls = [call for call in calls if isinstance(call.func, ast.Name)]
    if not calls:
        return None
    name = last_name(calls[0].func)
    for node in script.nodes(ast.ImportFrom):
        if any(alias.name == name for alias in node.names) and node.module:
            return calls[0], f"{name}() of {node.module.replace('.', '/')}.py, which is given training too"
    return calls[0], f"{name}(), which is given training too"


def _loader(script: Script, function: tuple[ast.Call, str] | None) -> tuple[str, str]:
    """Return the loader's name, empty if there is none, and what each batch is taken apart into."""
    loops = sorted((each for each in script.nodes(ast.For) if _is_over_batches(script, each)), key=_rank)
    batch = ast.unparse(_target(loops[0])).strip("()") if loops else "batch"
    if function is not None:
        given = [ast.unparse(each) for each in (*function[0].args, *(word.value for word in function[0].keywords))]
        if named := [each for each in given if "loader" in each.lower()]:
            return named[0], batch
    made = [each for each in script.nodes(ast.Assign) if is_plain_loader(each.value) or "DataLoader" in _kind(each)]
    names = [ast.unparse(each.targets[0]) for each in made]
    names = [each for each in names if "train" in each] or names
    return (ast.unparse(_inner(loops[0].iter)) if loops else next(iter(names), "")), batch


def _rank(loop: ast.For) -> bool:
    return not _steps_back(loop)


def _kind(node: ast.Assign) -> str:
    return last_name(node.value.func) if isinstance(node.value, ast.Call) else ""


def _is_over_batches(script: Script, loop: ast.For) -> bool:
    node = _inner(loop.iter)
    if isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange", "count"):
        return False
    text, function = ast.unparse(node).lower(), function_with(script.tree, loop)
    is_of_epoch = function is not None and "epoch" in function.name and isinstance(node, ast.Name | ast.Attribute)
    return _steps_back(loop) or is_of_epoch or ("loader" in text and not {"val", "test"} & set(text.split("_")))


def _steps_back(loop: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop))


def _inner(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and node.args and last_name(node.func) in ("enumerate", "tqdm"):
        node = node.args[0]
    return node
