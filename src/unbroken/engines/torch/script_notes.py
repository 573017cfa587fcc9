"""What a training script does that its diff alone does not say: variables, files and loaders, each with its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from unbroken.engines.script_edit import NotPlainError, Script, target_name
from unbroken.engines.script_files import notes_on_files
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
    return (*found, *notes_on_files(script, outer_loop(script)))


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
