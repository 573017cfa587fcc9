"""What a training script does that its diff alone does not say: variables, files and loaders, each with its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from unbroken.engines.script_edit import NotPlainError, Script, function_with, keyword, last_name, target_name
from unbroken.engines.torch import carried_variables as carried
from unbroken.engines.torch.kept_variables import Kept, find_kept
from unbroken.engines.torch.loader_changes import is_plain_loader
from unbroken.engines.torch.own_lines import outer_loop, parts_anyhow
from unbroken.engines.torch.training_loops import (
    find_loop,
    find_steps,
    own_start,
)


def notes(script: Script, is_changed: bool) -> tuple[str, ...]:
    """Return a line for each thing to know, those to type below it."""
    found = [*_of_variables(script, is_changed), *_of_loader(script, is_changed), *_of_start(script)]
    return (*found, *_of_files(script))


# --- variables ---


def _of_variables(script: Script, is_changed: bool) -> Iterator[str]:
    try:
        kept = find_kept(script)
    except NotPlainError:
        kept = Kept(others=tuple(_carried_anyhow(script)))
    if not is_changed:  # what the diff would have kept
        kept = replace(kept, others=(*kept.of_epochs, *kept.of_batches, *kept.others))
    name = script.path.name
    if is_changed and kept.is_any:
        by_batch = [*kept.of_batches, *kept.changed]
        by_epoch = [each for each in kept.of_epochs if each not in kept.changed]
        turns = "step to step" if find_steps(script) is not None else "epoch to epoch"
        found = [f"{', '.join(by_batch)} from batch to batch"] * bool(by_batch)
        found += [f"{', '.join(by_epoch)} from {turns}"] * bool(by_epoch)
        yield f"{name} carries {', '.join(found)}: the diff keeps that in `variables`, a part of the training"
    if kept.others:
        first = kept.others[0]
        yield f"{name} also has {_begin_again(kept.others)}; to keep the value of one, add:"
        yield f'    {first} = variables.get("{first}", {first})  # above the loop; Training(..., variables=Variables())'
        yield f'    variables["{first}"] = {first}  # where it was changed; an object with state_dict is a part itself'
    if kept.meters:
        yield f"{name} also has {_begin_again(kept.meters)}; to have means of all batches of an epoch, add:"
        yield "    training.log(loss=loss.item())  # for each batch"
        yield '    training.mean("loss")  # of this epoch, with the batches before a restart'


def _carried_anyhow(script: Script) -> list[str]:
    """Return what a loop over epochs carries of which no diff can be made."""
    loop = outer_loop(script)
    if loop is None:
        return []
    known, parts = carried.known_before(script, loop), parts_anyhow(script)
    found = [each for each in carried.carried_by(loop) if each in known and each not in parts]
    return [each for each in found if carried.is_plain(script, each, parts)]


def _begin_again(names: tuple[str, ...]) -> str:
    return f"{', '.join(names)}, which {'begins' if len(names) == 1 else 'begin'} again at each restart"


# --- files ---


def _of_files(script: Script) -> Iterator[str]:
    for call, mode in _emptied(script):
        line = f"{script.path.name}, line {call.lineno}: `{ast.unparse(call)}`"
        yield f"{line} empties the file at each restart; to keep its rows, type one of:"
        again = mode.replace("w", "a").replace("x", "a")
        given = [ast.unparse(each) for each in call.args]
        place = next((at for at, each in enumerate(call.args) if _text(each) == mode), None)
        choice = f'"{again}" if training.step else "{mode}"'
        if place is not None:
            given[place] = choice
        given += [
            f"{each.arg}={choice if _text(each.value) == mode else ast.unparse(each.value)}" for each in call.keywords
        ]
        yield f"    {ast.unparse(call.func)}({', '.join(given)})  # below Training(...); a kill repeats rows"
        yield "    training.log(accuracy=accuracy)  # each row once, in final/metrics.csv"


def _emptied(script: Script) -> list[tuple[ast.Call, str]]:
    """Return the calls that open a file to write it from its start, which is then written as long as it trains."""
    loop = outer_loop(script)
    found = [(call, mode) for call in script.nodes(ast.Call) if (mode := _mode(call))]
    held = {id(node.value): node for node in script.nodes(ast.Assign)}
    appended = {_file(call) for call in script.nodes(ast.Call) if (_any_mode(call) or "").startswith("a")}
    kept = []
    for call, mode in found:
        is_above = loop is None or call.lineno < loop.lineno or _is_elsewhere(script, call, loop)
        is_around = any(loop is not None and _holds_with(each, call, loop) for each in script.nodes(ast.With))
        is_added_to = _file(call) in appended and is_above
        if (is_above and (id(call) in held or "logging" in ast.unparse(call.func) or is_added_to)) or is_around:
            kept.append((call, mode))
    return kept


def _is_elsewhere(script: Script, call: ast.Call, loop: ast.stmt) -> bool:
    return function_with(script.tree, call) is not function_with(script.tree, loop) and id(call) not in {
        id(node) for node in ast.walk(loop)
    }


def _holds_with(each: ast.With, call: ast.Call, loop: ast.stmt) -> bool:
    is_opened = any(call is node for item in each.items for node in ast.walk(item.context_expr))
    return is_opened and any(node is loop for node in ast.walk(each))


def _mode(call: ast.Call) -> str:
    mode = _any_mode(call) or ""
    return mode if mode[:1] in ("w", "x") else ""


def _any_mode(call: ast.Call) -> str | None:
    """Return how a call opens a file, None if it opens none."""
    name = last_name(call.func)
    if name == "open":
        is_method = isinstance(call.func, ast.Attribute) and last_name(call.func.value) not in ("io", "codecs", "gzip")
        given = [keyword(call, "mode"), *call.args[0 if is_method else 1 :][:1]]
        return next((text for each in given if (text := _text(each))), None)
    if name in ("FileHandler", "basicConfig"):
        given = [keyword(call, "mode"), keyword(call, "filemode"), *call.args[1:2]]
        return next((text for each in given if (text := _text(each))), None)
    return None


def _file(call: ast.Call) -> str:
    is_method = isinstance(call.func, ast.Attribute) and last_name(call.func.value) not in ("io", "codecs", "gzip")
    if is_method and isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value)
    return ast.unparse(call.args[0]) if call.args else ""


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# --- loader and first epoch ---


def _of_loader(script: Script, is_changed: bool) -> Iterator[str]:
    try:
        name = find_loop(script).loader_name
    except NotPlainError:
        return
    made = [node.value for node in script.nodes(ast.Assign) if target_name(node) == name]
    if not is_changed or not name or find_steps(script) is not None or any(map(is_plain_loader, made[-1:])):
        return
    was = f"`{ast.unparse(made[-1].func)}(...)`" if made and isinstance(made[-1], ast.Call) else "another function"
    yield (
        f"{script.path.name}: {name} comes from {was}; the diff makes it again from {name}.dataset, shuffled; if it "
        "was not, add shuffle=False; if it had a sampler, add order=lambda generator: ..., which returns the indices"
    )


def _of_start(script: Script) -> Iterator[str]:
    loop = outer_loop(script)
    if isinstance(loop, ast.For) and (first := own_start(loop)):
        yield (
            f"{script.path.name}: {first} belongs to the script's own restart; leave out the options that load a "
            "checkpoint (--resume): unbroken brings back everything"
        )
