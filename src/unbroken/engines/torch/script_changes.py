"""The lines that make a plain PyTorch training loop resume, with the names of the user's own script."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    block_with,
    function_with,
    keyword,
    last_name,
    target_name,
)
from unbroken.engines.torch import carried_variables as carried
from unbroken.engines.torch.kept_variables import Kept, find_kept
from unbroken.engines.torch.loader_changes import is_plain_loader, loader_again, loader_by
from unbroken.engines.torch.training_loops import (
    Loop,
    Steps,
    before_of,
    find_loop,
    find_steps,
    range_of,
)
from unbroken.engines.torch.training_parts import find_parts

IMPORT = "from unbroken.training.torch import Training"


def make_changes(script: Script) -> None:
    """Edits the script so that it resumes; NotPlainError naming what it was not found to have."""
    steps = find_steps(script)
    if steps is not None:
        _change_steps(script, steps)
        return
    loop = find_loop(script)
    parts, kept = find_parts(script, loop.epochs), find_kept(script)
    owners = ("training", "variables") if kept.is_any else ("training",)
    _make_training(script, loop.epochs, loop, parts, kept)
    change_loops(script, loop, "training", loop.loader_name, owners)
    _keep(script, loop, kept)
    _finish(script, loop.epochs, parts, kept)


def goal_of(script: Script) -> tuple[float | None, str]:
    """How far the script trains by itself, None if that is not found, and in which unit."""
    for node in script.nodes(ast.For):
        if isinstance(node.iter, ast.Call) and last_name(node.iter.func) in ("epochs", "steps") and node.iter.args:
            return script.number(node.iter.args[0]), last_name(node.iter.func)
    try:
        if (steps := find_steps(script)) is not None:
            return steps.number, "steps"
        count, less, _ = range_of(find_loop(script).epochs, script)
    except NotPlainError:
        return None, "epochs"
    number = script.number(count)
    return (None if number is None else number - less), "epochs"


# --- what changes ---


def _change_steps(script: Script, steps: Steps) -> None:
    """Edits a script whose one loop draws its data itself."""
    loop, parts, kept = steps.loop, find_parts(script, steps.loop), find_kept(script)
    _make_training(script, loop, None, parts, kept)
    if isinstance(loop, ast.For):
        first = range_of(loop, script)[2]
        script.replace(loop.iter, f"training.steps({steps.goal})")
        _count_from(script, loop, first)
    else:
        script.replace_head(loop, f"for _ in training.steps({steps.goal}):")
    if steps.end is not None:
        script.remove(steps.end)
    _begin(script, loop, kept.of_epochs)
    _restore(script, loop, kept)
    _put_in(script, loop, kept.of_epochs)
    _finish(script, loop, parts, kept)


def _make_training(script: Script, outer: ast.stmt, loop: Loop | None, parts: dict[str, str], kept: Kept) -> None:
    """Makes the training as soon as all its parts are there, and the loader by it."""
    before = before_of(block_with(script.tree, outer), outer)
    makers = [each for each in before if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    makers = [each for each in makers if carried.stored_in(each) & parts.keys()]
    words = [*_part_words(script, before, parts), *["variables=variables"] * kept.is_any]
    lines = ["variables = Variables()"] * kept.is_any + [f"training = Training({', '.join(words)})"]
    name = loop.loader_name if loop is not None else ""
    made = [each for each in before if isinstance(each, ast.Assign) and target_name(each) == name]
    own = made[-1] if name and made and is_plain_loader(made[-1].value) else None
    is_later = own is not None and (not makers or before.index(own) > before.index(makers[-1]))
    if own is not None and is_later:
        loader_by(script, own.value, "training")
    elif name:
        lines += loader_again(name, own, script).split("\n")
    if own is not None and not is_later and makers and not _is_used(before, own, makers[-1]):
        script.remove(own)
    if makers:
        script.insert_after(makers[-1], *lines)
    else:
        script.insert_before(own if own is not None and is_later else outer, *lines)


def _part_words(script: Script, before: list[ast.stmt], parts: Collection[str]) -> Iterator[str]:
    """Give the arguments for the parts; those that are made under one `if` alone stand in `state`."""
    certain = carried.Flow().run(before)
    known = carried.Flow().run(script.tree.body)
    rest = []
    for name in parts:
        places = [each for each in script.nodes(ast.Assign) if target_name(each) == name]
        may_be_none = any(isinstance(each.value, ast.Constant) for each in places)
        is_used = any(_uses(each, name) for each in before if not hasattr(each, "body"))
        if is_used or (not may_be_none and (name in certain or name in known)):
            yield f"{name}={name}"
        else:
            rest.append((name, places))
    if not rest:
        return
    tests = [_test_of(script, places) for _, places in rest]
    if len(set(tests)) > 1:
        raise NotPlainError(f"line {rest[0][1][0].lineno}: {rest[0][0]} is made under an `if`")
    found = ", ".join(f'"{name}": {name}' for name, _ in rest)
    yield f"state={{{found}}} if {tests[0]} else {{}}"


def _uses(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(statement)) and not (
        isinstance(statement, ast.Assign) and target_name(statement) == name
    )


def _test_of(script: Script, places: list[ast.Assign]) -> str:
    """Return the one `if` under which a variable is made; NotPlainError if there is not one, without an `else`."""
    made = [each for each in places if not isinstance(each.value, ast.Constant)]
    around = [each for each in script.nodes(ast.If) if any(place in each.body for place in made)]
    if len(made) != 1 or len(around) != 1 or around[0].orelse:
        raise NotPlainError(f"line {places[0].lineno}: {target_name(places[0])} is made under an `if`")
    return script.source(around[0].test)


def _is_used(before: list[ast.stmt], own: ast.stmt, last: ast.stmt) -> bool:
    name = target_name(own) if isinstance(own, ast.Assign) else ""
    between = before[before.index(own) + 1 : before.index(last) + 1]
    return any(isinstance(node, ast.Name) and node.id == name for each in between for node in ast.walk(each))


def change_loops(script: Script, loop: Loop, owner: str, loader: str, owners: tuple[str, ...] = ()) -> None:
    """The loops over epochs and batches, those of this loader, ask an object of ours, which such a name has.

    A function that trains an epoch is given it, with all that `owners` names.
    """
    _change_epochs(script, loop, owner)
    _change_batches(script, loop, owner, loader)
    _hand_over(script, loop, owners or (owner,))


def _change_epochs(script: Script, loop: Loop, owner: str) -> None:
    count, less, first = range_of(loop.epochs, script)
    text = script.source(count) + f" - {less}" * bool(less)
    script.replace(loop.epochs.iter, f"{owner}.epochs({text})")
    _count_from(script, loop.epochs, first)


def _count_from(script: Script, loop: ast.For, first: int) -> None:
    if first and isinstance(loop.target, ast.Name):
        script.insert_before(loop.body[0], f"{loop.target.id} += 1  # training counts from 0")


def _change_batches(script: Script, loop: Loop, owner: str, loader: str) -> None:
    if not isinstance(loop.loader, ast.Name):
        loader = f"{owner}.loader({script.source(loop.loader)}, batch_size=None, shuffle=False)"
    elif loop.loader.id != loader and loop.function is not None:
        loader = loop.loader.id  # as the function calls it
    script.replace(loop.loader, f"{owner}.batches({loader})")
    for call in _enumerates(loop.batches.iter):  # a restart begins in the middle of an epoch
        start = call.args[1] if len(call.args) > 1 else keyword(call, "start")
        if start is None:
            script.append(call.args[0], f", {owner}.batch")
        else:
            text = script.source(start)
            script.replace(start, f"{owner}.batch" if text == "0" else f"{owner}.batch + {text}")
    _log(script, loop.batches, owner)


def _enumerates(node: ast.expr) -> Iterator[ast.Call]:
    while isinstance(node, ast.Call) and node.args:
        if last_name(node.func) == "enumerate":
            yield node
        node = node.args[0]


def _log(script: Script, batches: ast.For, owner: str) -> None:
    losses = [name for node in ast.walk(batches) if (name := _loss(node, owner))]
    for statement in _steps_of(batches):
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


def _hand_over(script: Script, loop: Loop, owners: tuple[str, ...]) -> None:
    """Gives these objects to the function that trains an epoch, unless it sees them as global names."""
    function, call = loop.function, loop.call
    if function is None or call is None or function_with(script.tree, loop.epochs) is None:
        return
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or not plain:
        raise NotPlainError(f"line {function.lineno}: {function.name}() has other parameters than plain ones")
    is_named = bool(arguments.defaults or call.keywords)
    own: list[ast.expr | ast.arg] = [plain[-1], *arguments.defaults]
    last = max(own, key=_place)
    script.append(last, "".join(f", {each}{'=None' * bool(arguments.defaults)}" for each in owners))
    given = max([*call.args, *(each.value for each in call.keywords)], key=_place)
    script.append(given, "".join(f", {each}={each}" if is_named else f", {each}" for each in owners))


def _place(node: ast.expr | ast.arg) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _keep(script: Script, loop: Loop, kept: Kept) -> None:
    """Takes the variables out of the last checkpoint, and puts them where the next one finds them."""
    _begin(script, loop.epochs, kept.of_epochs)
    _begin(script, loop.batches, kept.of_batches)
    _restore(script, loop.epochs, kept)
    if kept.of_batches:
        targets = ", ".join(kept.of_batches)
        values = ", ".join(f'variables["{each}"]' for each in kept.of_batches)
        step = script.indent_step(loop.batches)
        script.insert_before(loop.batches, "if training.batch:  # resumed in this epoch", f"{step}{targets} = {values}")
    _put_in(script, loop.batches, [*kept.of_batches, *kept.changed])
    _put_in(script, loop.epochs, kept.of_epochs)


def _begin(script: Script, loop: ast.For | ast.While, names: Collection[str]) -> None:
    """Gives variables that a branch alone makes above the loop a value on the others too."""
    before = before_of(block_with(script.tree, loop), loop)
    certain = carried.certain_before(script, loop, before)
    for name in names:
        if name in certain or carried.is_written(name, loop):
            continue
        first = next((each for each in before if name in carried.changed_in([each])), None)
        if first is None:
            raise NotPlainError(f"line {loop.lineno}: {name} is not always there above the loop")
        script.insert_before(first, f"{name} = None")


def _put_in(script: Script, loop: ast.For | ast.While, names: Collection[str]) -> None:
    """Puts the variables in at the end of each turn of a loop."""
    if not names:
        return
    line = f"variables.update({', '.join(f'{each}={each}' for each in names)})"
    for jump in carried.jumps(loop):
        script.insert_before(jump, line)
    script.insert_after(loop.body[-1], line)


def _restore(script: Script, loop: ast.stmt, kept: Kept) -> None:
    script.insert_before(loop, *(f'{each} = variables.get("{each}", {each})' for each in kept.of_epochs))


def _finish(script: Script, loop: ast.stmt, parts: dict[str, str], kept: Kept) -> None:
    models = [name for name, kind in parts.items() if kind == "model"]
    files = ", ".join(f'"{name}.pt": {name}.state_dict()' for name in models)
    script.insert_after(loop, f"training.finish({{{files}}})")
    insert_import(script, IMPORT + ", Variables" * kept.is_any)


def insert_import(script: Script, line: str) -> None:
    """Below the imports at the top of the script."""
    imports = [each for each in script.tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    if not imports:
        raise NotPlainError("no import at its top")
    script.insert_after(imports[-1], line)
