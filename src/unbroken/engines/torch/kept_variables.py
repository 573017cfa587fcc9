"""Which variables of a script a restart has to bring back, and which of them lines of ours can keep."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from unbroken.engines.script_edit import Script, function_with
from unbroken.engines.torch import carried_variables as carried
from unbroken.engines.torch.training_loops import after_of, find_loop, find_steps
from unbroken.engines.torch.training_parts import find_parts


@dataclass(frozen=True)
class Kept:
    """The variables that one turn of a loop hands to the next, and that lines of ours can keep.

    `of_epochs` are known before the loop over epochs, `of_batches` begin in each epoch; `changed` are those of
    `of_epochs` that the loop over batches changes.  `others` begin again at each restart, and so do `meters`, which
    are objects.
    """

    of_epochs: tuple[str, ...] = ()
    of_batches: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    meters: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """True if there is something for `Variables`."""
        return bool(self.of_epochs or self.of_batches)


def find_kept(script: Script) -> Kept:
    """Return the variables that a restart has to bring back; NotPlainError if the script is not plain."""
    steps = find_steps(script)
    epochs = steps.loop if steps is not None else find_loop(script).epochs
    parts = find_parts(script, epochs)
    known = carried.known_before(script, epochs)
    after = [] if steps is not None else after_of(script, epochs)
    mine = [each for each in _carried(script, epochs, after, parts) if each in known]
    inner: list[str] = []
    changed: dict[str, None] = {}
    if steps is None:
        loop = find_loop(script)
        found = _carried(script, loop.batches, after_of(script, loop.batches), parts)
        before = carried.known_before(script, loop.batches)
        inner = [each for each in found if each not in mine or loop.function is not None]
        may_skip = bool(carried.jumps(loop.batches))
        inner = [each for each in inner if each in before or (not may_skip and carried.is_written(each, loop.batches))]
        changed = carried.changed_in(loop.batches.body)
    return _sorted_out(script, epochs, parts, mine, inner, changed)


def _sorted_out(
    script: Script,
    epochs: ast.For | ast.While,
    parts: Collection[str],
    mine: list[str],
    inner: list[str],
    changed: Collection[str],
) -> Kept:
    """Leave out what cannot be kept: two variables of one name, and what is no value."""
    scope = function_with(script.tree, epochs)
    mine += [each for each in carried.globals_changed(script, epochs) if scope is None and each not in (*mine, *parts)]
    others = [each for each in inner if each in mine]
    others += [each for each in (*mine, *inner) if not carried.is_plain(script, each, parts)]
    meters = carried.meters(script, epochs if scope is None else script.tree, parts)
    no_values = {*meters, *carried.clocks(script)}
    return Kept(
        tuple(each for each in mine if each not in others),
        tuple(each for each in inner if each not in others),
        tuple(each for each in mine if each in changed and each not in others),
        tuple(dict.fromkeys(each for each in others if each not in no_values)),
        tuple(meters),
    )


def _carried(script: Script, loop: ast.For | ast.While, after: list[ast.stmt], parts: Collection[str]) -> list[str]:
    found = carried.carried_by(loop, after)
    return [each for each in found if each not in parts and each not in carried.clocks(script)]
