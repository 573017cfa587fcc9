"""The lines that make a plain PyTorch training loop resume, with the names of the user's own script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    assignments,
    block_with,
    dotted,
    function_with,
    holds,
    keyword,
    last_name,
    target_name,
)

IMPORT = "from unbroken.training.torch import Training"
# What `Training` takes by these names is no part of the state.
_TAKEN = {"seed", "best", "guard", "validate", "folder", "saves", "own"}
_LOADER_OPTIONS = {"batch_size", "shuffle", "drop_last", "collate_fn", "num_workers", "pin_memory", "timeout"}
_LOADER_OPTIONS |= {"worker_init_fn", "multiprocessing_context", "prefetch_factor", "persistent_workers"}


@dataclass(frozen=True)
class Loop:
    """Where a script trains: the loop over epochs, that over batches, and the variable of the loader outside."""

    epochs: ast.For
    batches: ast.For
    loader: ast.Name
    loader_name: str
    function: ast.FunctionDef | None  # that the batches are trained in, if it is another than that of the epochs
    call: ast.Call | None  # of that function


def make_changes(script: Script) -> None:
    """Edits the script so that it resumes; NotPlainError naming what it was not found to have."""
    loop = find_loop(script)
    block = block_with(script.tree, loop.epochs)
    parts = find_parts(script, loop)
    _change_loader(script, loop, block, parts)
    change_loops(script, loop, "training", loop.loader.id)
    models = [name for name, kind in parts.items() if kind == "model"]
    files = ", ".join(f'"{name}.pt": {name}.state_dict()' for name in models)
    script.insert_after(loop.epochs, f"training.finish({{{files}}})")
    insert_import(script, IMPORT)


def goal_of(script: Script) -> float | None:
    """How many epochs the script says itself, None if that is not found."""
    for node in script.nodes(ast.For):
        if isinstance(node.iter, ast.Call) and last_name(node.iter.func) == "epochs" and node.iter.args:
            return script.number(node.iter.args[0])
    try:
        count, less, _ = _range(find_loop(script).epochs)
    except NotPlainError:
        return None
    number = script.number(count)
    return None if number is None else number - less


def forgotten(script: Script) -> list[str]:
    """Variables of the loops that a restart does not bring back: sums, counters, the best value so far."""
    loop = find_loop(script)
    block = block_with(script.tree, loop.epochs)
    before = block[: next(at for at, each in enumerate(block) if holds(each, loop.epochs))]
    known = {target_name(node) for each in before if isinstance(each, ast.Assign) for node in [each]}
    again = [target_name(node) for node in script.nodes(ast.Assign, loop.epochs) if target_name(node) in known]
    added = [node.target for node in script.nodes(ast.AugAssign) if holds(loop.batches, node)]
    added += [node.target for node in script.nodes(ast.AugAssign, loop.epochs) if ast.unparse(node.target) in known]
    return list(dict.fromkeys([*again, *(node.id for node in added if isinstance(node, ast.Name))]))


# --- what there is ---


def find_loop(script: Script) -> Loop:
    """Where the script trains; NotPlainError if that is not one loop over batches inside of one over epochs."""
    inner = [loop for loop in script.nodes(ast.For) if any(map(_steps_back, ast.walk(loop)))]
    inner = [loop for loop in inner if not any(holds(loop, other) for other in inner if other is not loop)]
    if len(inner) != 1:
        raise NotPlainError(f"{len(inner) or 'no'} loops over batches with .backward()")
    batches = inner[0]
    loader = _iterated(batches.iter)
    function = function_with(script.tree, batches)
    for epochs in script.nodes(ast.For):
        if epochs is batches or not _is_range(epochs.iter):
            continue
        if holds(epochs, batches):
            return Loop(epochs, batches, loader, loader.id, None, None)
        calls = [call for call in script.nodes(ast.Call, epochs) if function and last_name(call.func) == function.name]
        if function and len(calls) == 1:
            return Loop(epochs, batches, loader, _outside(loader.id, function, calls[0]), function, calls[0])
    raise NotPlainError("no `for epoch in range(...)` around them")


def _steps_back(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange")


def _iterated(node: ast.expr) -> ast.Name:
    """The loader of `for ... in loader`, `enumerate(loader)`, `tqdm(loader)` and `enumerate(tqdm(loader))`."""
    while isinstance(node, ast.Call) and last_name(node.func) in ("enumerate", "tqdm") and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Name):
        raise NotPlainError(f"line {node.lineno}: the batches come from `{ast.unparse(node)}`")
    return node


def _outside(name: str, function: ast.FunctionDef, call: ast.Call) -> str:
    """What a parameter of a function is called where the function is called; a name that is global stays as it is."""
    parameters = [each.arg for each in function.args.args]
    if name not in parameters:
        return name
    at = parameters.index(name)
    value = call.args[at] if at < len(call.args) else keyword(call, name)
    if not isinstance(value, ast.Name):
        raise NotPlainError(f"line {call.lineno}: {function.name}() gets no variable as its {name}")
    return value.id


def find_parts(script: Script, loop: Loop) -> dict[str, str]:
    """The variables that are the state of the training, by name; the models first."""
    scope = function_with(script.tree, loop.epochs)
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for node in script.nodes(ast.Assign):
        name, value = target_name(node), node.value
        if not name or not isinstance(value, ast.Call) or function_with(script.tree, node) not in (scope, None):
            continue
        kind = last_name(value.func)
        models = [each for each in ast.walk(value) if _is_parameters(each)]
        if models and (".optim." in f".{dotted(value.func)}" or kind[:1].isupper()):
            found |= {each.func.value.id: "model" for each in models}  # type: ignore[attr-defined]
            others[name] = "optimizer"
        elif _is_schedule(kind) and value.args and others.get(ast.unparse(value.args[0])) == "optimizer":
            others[name] = "scheduler"
        elif kind in ("GradScaler", "AveragedModel", "EMA"):
            others[name] = "other"
    if not found:
        raise NotPlainError("no `optimizer = ...(model.parameters(), ...)`")
    if taken := [name for name in {**found, **others} if name in _TAKEN]:
        raise NotPlainError(f"a variable named {taken[0]}, which `Training` takes for something else")
    return {**found, **others}


def _is_schedule(kind: str) -> bool:
    return kind[:1].isupper() or "schedule" in kind


def _is_parameters(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("parameters", "named_parameters")
        and isinstance(node.func.value, ast.Name)
    )


# --- what changes ---


def _change_loader(script: Script, loop: Loop, block: list[ast.stmt], parts: dict[str, str]) -> None:
    """Makes the training as soon as all its parts are there, and the loader by it."""
    before = block[: next(at for at, each in enumerate(block) if holds(each, loop.epochs))]
    makers = [each for each in before if any(target_name(node) in parts for node in assignments(each))]
    makers = [each for each in makers if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    training = f"training = Training({', '.join(f'{name}={name}' for name in parts)})"
    made = [each for each in before if isinstance(each, ast.Assign) and target_name(each) == loop.loader_name]
    own = made[-1] if made and is_plain_loader(made[-1].value) else None
    is_later = own is not None and (not makers or before.index(own) > before.index(makers[-1]))
    lines = [training]
    if own is not None and is_later:
        loader_by(script, own.value, "training")
    else:
        lines.append(_loader_again(script, loop.loader_name, own))
    if own is not None and not is_later and makers and not _is_used(before, own, makers[-1]):
        script.remove(own)
    if makers:
        script.insert_after(makers[-1], *lines)
    else:
        script.insert_before(own if own is not None and is_later else loop.epochs, *lines)


def is_plain_loader(value: ast.expr) -> bool:
    """True of a DataLoader with such options alone as ours has too."""
    return (
        isinstance(value, ast.Call)
        and last_name(value.func) == "DataLoader"
        and 1 <= len(value.args) <= 2
        and all(each.arg is None or each.arg in _LOADER_OPTIONS for each in value.keywords)
    )


def loader_by(script: Script, call: ast.expr, owner: str) -> None:
    """Lets an object of ours make the loader that a plain DataLoader was."""
    if not isinstance(call, ast.Call):
        return
    script.replace(call.func, f"{owner}.loader")
    # A DataLoader keeps the order unless it is told otherwise, ours shuffles.
    if keyword(call, "shuffle") is None and all(each.arg for each in call.keywords):
        script.append(call.keywords[-1].value if call.keywords else call.args[-1], ", shuffle=False")


def _loader_again(script: Script, name: str, own: ast.Assign | None) -> str:
    """The loader in a line of its own, behind the training."""
    if own is None or not isinstance(own.value, ast.Call) or len(script.source(own).splitlines()) > 1:
        options = ", ".join(f"{each}={name}.{each}" for each in ("batch_size", "num_workers", "drop_last"))
        return f"{name} = training.loader({name}.dataset, {options})"
    words = [*map(script.source, own.value.args)]
    words += [f"{each.arg}={script.source(each.value)}" for each in own.value.keywords if each.arg]
    words += [f"**{script.source(each.value)}" for each in own.value.keywords if not each.arg]
    has_order = any(each.arg in ("shuffle", None) for each in own.value.keywords)
    return f"{name} = training.loader({', '.join([*words, *([] if has_order else ['shuffle=False'])])})"


def _is_used(before: list[ast.stmt], own: ast.stmt, last: ast.stmt) -> bool:
    name = target_name(own) if isinstance(own, ast.Assign) else ""
    between = before[before.index(own) + 1 : before.index(last) + 1]
    return any(isinstance(node, ast.Name) and node.id == name for each in between for node in ast.walk(each))


def _range(loop: ast.For) -> tuple[ast.expr, int, int]:
    """Of `range(...)`: what says how many epochs, what is to be taken off it, and the number of the first one."""
    call = loop.iter
    if not isinstance(call, ast.Call) or not 1 <= len(call.args) <= 2:
        raise NotPlainError(f"line {loop.lineno}: `{ast.unparse(loop.iter)}`")
    if len(call.args) == 1:
        return call.args[0], 0, 0
    first, end = call.args
    number = first.value if isinstance(first, ast.Constant) else None
    if number == 0:
        return end, 0, 0
    if number == 1:
        return (end.left, 0, 1) if _is_one_more(end) and isinstance(end, ast.BinOp) else (end, 1, 1)
    raise NotPlainError(f"line {loop.lineno}: the first epoch is `{ast.unparse(first)}`")


def _is_one_more(node: ast.expr) -> bool:
    """True of `N + 1`."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return is_sum and isinstance(node.right, ast.Constant) and node.right.value == 1  # type: ignore[attr-defined]


def change_loops(script: Script, loop: Loop, owner: str, loader: str) -> None:
    """The loops over epochs and batches, those of this loader, ask an object of ours, which such a name has."""
    _change_epochs(script, loop, owner)
    _change_batches(script, loop, owner, loader)
    _hand_over(script, loop, owner)


def _change_epochs(script: Script, loop: Loop, owner: str) -> None:
    count, less, first = _range(loop.epochs)
    text = script.source(count) + f" - {less}" * bool(less)
    script.replace(loop.epochs.iter, f"{owner}.epochs({text})")
    if first and isinstance(loop.epochs.target, ast.Name):
        script.insert_before(loop.epochs.body[0], f"{loop.epochs.target.id} += 1  # training counts from 0")


def _change_batches(script: Script, loop: Loop, owner: str, loader: str) -> None:
    script.replace(loop.loader, f"{owner}.batches({loader})")
    counted = loop.batches.iter
    if isinstance(counted, ast.Call) and last_name(counted.func) == "enumerate" and len(counted.args) == 1:
        script.append(counted.args[0], f", {owner}.batch")  # a restart begins in the middle of an epoch
    for statement in _steps_of(loop.batches):
        losses = [name for node in ast.walk(loop.batches) if (name := _loss(node, owner))]
        if losses:
            script.insert_after(statement, f"{owner}.log({losses[0]}={losses[0]}.item())")
        return


def _loss(node: ast.AST, owner: str) -> str:
    """`loss` of `loss.backward()`; in a loop with Accelerate of `accelerator.backward(loss)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        loss = node.args[0] if owner != "training" and node.args else node.func.value
        return loss.id if isinstance(loss, ast.Name) else ""
    return ""


def _steps_of(batches: ast.For) -> Iterator[ast.stmt]:
    """The statement of the loop itself that steps the optimizer, the last one."""
    for statement in reversed(batches.body):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        if any(last_name(call.func) in ("step", "backward") for call in calls):
            yield statement


def _hand_over(script: Script, loop: Loop, owner: str) -> None:
    """Gives that object to the function that trains an epoch, unless it sees it as a global name."""
    function, call = loop.function, loop.call
    if function is None or call is None or function_with(script.tree, loop.epochs) is None:
        return
    arguments = function.args
    if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or arguments.defaults or not arguments.args:
        raise NotPlainError(f"line {function.lineno}: {function.name}() has other parameters than plain ones")
    script.append(arguments.args[-1], f", {owner}")
    if call.keywords:
        script.append(call.keywords[-1].value, f", {owner}={owner}")
    else:
        script.append(call.args[-1], f", {owner}")


def insert_import(script: Script, line: str) -> None:
    """Below the imports at the top of the script."""
    imports = [each for each in script.tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    if not imports:
        raise NotPlainError("no import at its top")
    script.insert_after(imports[-1], line)
