"""Make a plain PyTorch training loop resume: the changes of the script, in its own names, with their notes."""

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
    notes_on_files,
    target_name,
)
from unbroken.engines.torch.carried_variables import Carried, find_carried
from unbroken.engines.torch.training_loop import Parts, TrainingLoop, find_loop, find_parts

LINES = (
    "from unbroken.training.torch import Training",
    'training = Training(state={"model": model, "optimizer": optimizer})  # below the last of them',
    "loader = training.loader(dataset, batch_size=64)  # shuffled, in place of the DataLoader",
    "for epoch in training.epochs(10):  # or: for step in training.steps(1000):",
    "    for batch in training.batches(loader):",
    'training.finish({"model.pt": model.state_dict()})  # below the loop',
    "# what one batch or epoch hands to the next: Variables, docs/engines/torch.md",
)
_LOADER_OPTIONS = {"batch_size", "shuffle", "drop_last", "collate_fn", "num_workers", "pin_memory", "timeout"}
_LOADER_OPTIONS |= {"dataset", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "persistent_workers"}
_COPIED_OPTIONS = ("batch_size", "num_workers", "drop_last", "collate_fn", "pin_memory")


def make_changes(script: Script) -> Iterator[str]:
    """Edit the script so that it resumes; return what the user has to know, a line each.

    Raise NotPlainError naming what is not as usual.
    """
    loop = find_loop(script)
    parts = find_parts(script, loop)
    carried = find_carried(script, loop, parts)
    _insert_training(script, loop, parts, carried)
    _change_outer(script, loop)
    if loop.batches is not None:
        _change_batches(script, loop.batches)
        _hand_over(script, loop, ("training", "variables") if carried.is_any else ("training",))
    _keep(script, loop, carried)
    files = ", ".join(f'"{name}.pt": {name}.state_dict()' for name in parts.models)
    script.insert_after(loop.outer, f"training.finish({{{files}}})")
    script.insert_import(f"from unbroken.training.torch import Training{', Variables' * carried.is_any}")
    return _notes(script, loop, carried)


def goal_of(script: Script) -> tuple[float | None, str]:
    """Return how far the script trains by itself, None if that is not found, and the unit."""
    for node in script.nodes(ast.For):  # where the changes were made
        if isinstance(node.iter, ast.Call) and last_name(node.iter.func) in ("epochs", "steps") and node.iter.args:
            return script.number(node.iter.args[0]), last_name(node.iter.func)
    try:
        loop = find_loop(script)
    except NotPlainError:
        return script.option("epochs"), "epochs"
    return loop.number, "steps" if loop.batches is None else "epochs"


def _notes(script: Script, loop: TrainingLoop, carried: Carried) -> Iterator[str]:
    name, kept = script.path.name, (*carried.of_epochs, *carried.of_batches)
    if kept:
        yield f"{name} carries {', '.join(kept)} from turn to turn: the diff keeps them in `variables`"
    if others := carried.others:
        begin = f"{', '.join(others)}, which {'begins' if len(others) == 1 else 'begin'} again at each restart"
        yield f"{name} also has {begin}; to keep the value of one, add:"
        name = others[0]
        yield f'    {name} = variables.get("{name}", {name})  # above; "variables": variables in state, Variables()'
        yield f'    variables["{others[0]}"] = {others[0]}  # where it was changed; means: training.log, training.mean'
    yield from notes_on_files(script, loop.outer.lineno)


# --- the training and its loader ---


def _insert_training(script: Script, loop: TrainingLoop, parts: Parts, carried: Carried) -> None:
    """Insert the training, its loader and the variables of the last checkpoint above the outer loop."""
    block = block_with(script.tree, loop.outer)
    before = block[: block.index(loop.outer)]
    _refuse_uncertain(script, before, parts)
    names = [*parts.names, *["variables"] * carried.is_any]
    state = ", ".join(f'"{name}": {name}' for name in names)
    lines = ["variables = Variables()"] * carried.is_any + [f"training = Training(state={{{state}}})"]
    if loop.loader:
        lines.append(_loader_line(script, before, loop.loader))
    lines += [f'{name} = variables.get("{name}", {name})' for name in carried.of_epochs]
    script.insert_before(loop.outer, *lines)


def _refuse_uncertain(script: Script, before: list[ast.stmt], parts: Parts) -> None:
    """Raise NotPlainError for a part that only a branch makes: no statement of the block itself has it."""
    plain = [each for each in [*before, *script.tree.body] if not hasattr(each, "body")]
    used = {node.id for each in plain for node in ast.walk(each) if isinstance(node, ast.Name)}
    for name in parts.names:
        if name not in used:
            line = next(each.lineno for each in script.nodes(ast.Assign) if target_name(each) == name)
            raise NotPlainError(f"line {line}: {name} is made under an `if`")


def _loader_line(script: Script, before: list[ast.stmt], name: str) -> str:
    """Return the line that makes the loader; the one that made it goes where nothing else needs it."""
    made = [each for each in before if isinstance(each, ast.Assign) and target_name(each) == name]
    call = made[-1].value if made else None
    if not isinstance(call, ast.Call) or not _is_plain_loader(call):
        options = ", ".join(f"{each}={name}.{each}" for each in _COPIED_OPTIONS)
        return f"{name} = training.loader({name}.dataset, {options})  # shuffled; if it was not: shuffle=False"
    words = [*map(script.source, call.args), *(f"{each.arg}={script.source(each.value)}" for each in call.keywords)]
    words += ["shuffle=False"] * (keyword(call, "shuffle") is None)  # a DataLoader keeps the order, ours shuffles
    later = before[before.index(made[-1]) + 1 :]
    if not any(isinstance(node, ast.Name) and node.id == name for each in later for node in ast.walk(each)):
        script.remove(made[-1])
    return f"{name} = training.loader({' '.join(', '.join(words).split())})"


def _is_plain_loader(call: ast.Call) -> bool:
    """Return True for a DataLoader with such options alone as that of unbroken has too."""
    is_loader = last_name(call.func) == "DataLoader" and len(call.args) <= 2
    return is_loader and all(each.arg in _LOADER_OPTIONS for each in call.keywords)


# --- the loops ---


def _change_outer(script: Script, loop: TrainingLoop) -> None:
    script.replace(loop.outer.iter, f"training.{'steps' if loop.batches is None else 'epochs'}({loop.goal})")
    if loop.first and isinstance(loop.outer.target, ast.Name):
        script.insert_before(loop.outer.body[0], f"{loop.outer.target.id} += 1  # training counts from 0")


def _change_batches(script: Script, batches: ast.For) -> None:
    node = batches.iter
    while isinstance(node, ast.Call):  # enumerate, tqdm
        if last_name(node.func) == "enumerate":  # a restart begins in the middle of an epoch
            start = node.args[1] if len(node.args) > 1 else keyword(node, "start")
            script.append(start or node.args[0], " + training.batch" if start else ", training.batch")
        node = node.args[0]
    script.replace(node, f"training.batches({script.source(node)})")
    _log(script, batches)


def _log(script: Script, batches: ast.For) -> None:
    """Log the loss below the step of the optimizer, where that is a statement of the loop itself."""
    calls: list[ast.Call] = [call for call in script.nodes(ast.Call, batches) if isinstance(call.func, ast.Attribute)]
    owners = [call.func.value for call in calls if last_name(call.func) == "backward"]  # type: ignore[attr-defined]
    losses = [each.id for each in owners if isinstance(each, ast.Name)]
    steps = [
        each for each in batches.body if any(last_name(call.func) == "step" for call in script.nodes(ast.Call, each))
    ]
    if losses and steps:
        script.insert_after(steps[-1], f"training.log({losses[0]}={losses[0]}.item())")


def _hand_over(script: Script, loop: TrainingLoop, names: tuple[str, ...]) -> None:
    """Give these objects to the function that trains an epoch, unless it sees them as global names."""
    function, call = loop.function, loop.call
    if function is None or call is None or function_with(script.tree, loop.outer) is None:
        return
    arguments = function.args
    if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or arguments.defaults or not arguments.args:
        raise NotPlainError(f"line {function.lineno}: {function.name}() has other parameters than plain ones")
    script.append(arguments.args[-1], "".join(f", {each}" for each in names))
    given = [*call.args, *(each.value for each in call.keywords)]
    script.append(given[-1], "".join(f", {each}={each}" if call.keywords else f", {each}" for each in names))


# --- variables ---


def _keep(script: Script, loop: TrainingLoop, carried: Carried) -> None:
    """Put the variables where the next checkpoint finds them, and take those of the epoch out of the last one."""
    if loop.batches is not None:
        _put_in(script, loop.batches, (*carried.of_batches, *carried.changed))
    _put_in(script, loop.outer, carried.of_epochs)
    if loop.batches is not None and carried.of_batches:
        values = ", ".join(f'variables["{each}"]' for each in carried.of_batches)
        line = f"if training.batch: {', '.join(carried.of_batches)} = {values}  # resumed in this epoch"
        script.insert_before(loop.batches, line)


def _put_in(script: Script, loop: ast.For, names: Collection[str]) -> None:
    if names:
        script.insert_after(loop.body[-1], f"variables.update({', '.join(f'{each}={each}' for each in names)})")
