"""Find the variables that one turn of a loop hands to the next: a restart must restore them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from unbroken.engines.script_edit import Script, block_with, function_with, holds, last_name
from unbroken.engines.torch.training_loop import Parts, TrainingLoop

_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_CLOCKS = {"time", "perf_counter", "monotonic", "now", "process_time", "time_ns"}
# What cannot be saved as it is: iterators, progress bars, copies of whole models.
_UNSAVABLE = {"iter", "tqdm", "trange", "deepcopy"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)


@dataclass(frozen=True)
class Carried:
    """Name the variables that one turn of a loop hands to the next.

    `of_epochs` are known before the outer loop, `of_batches` begin in each epoch; `changed` are those of `of_epochs`
    that the loop over batches changes.  `others` cannot be kept by lines of ours: they begin again at each restart.
    """

    of_epochs: tuple[str, ...] = ()
    of_batches: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Return True if there is something to keep."""
        return bool(self.of_epochs or self.of_batches)


def find_carried(script: Script, loop: TrainingLoop, parts: Parts) -> Carried:
    """Return the variables that one turn of a loop hands to the next, or to what follows the loop."""
    begun, after = _around(script, loop.outer)
    mine = [name for name in _handed_on(loop.outer.body, begun, after) if name in begun]
    values, inner, others = dict(begun), list[str](), _of_function(loop, begun)
    if loop.batches is not None:
        begun, after = _around(script, loop.batches, is_inner=True)
        made = _stored(each for each in loop.batches.body if isinstance(each, ast.Assign))
        inner = [name for name in _handed_on(loop.batches.body, begun, after) if name in {*begun, *made}]
        values |= begun
        if loop.function is None:
            mine = [name for name in mine if name not in begun]  # those begin again in each epoch
    skipped = {*parts.names, loop.loader, *(name for name, value in values.items() if _calls(value) & _CLOCKS)}
    mine, inner = ([name for name in dict.fromkeys(names) if name not in skipped] for names in (mine, inner))
    others += [name for name in (*mine, *inner) if not _is_savable(values.get(name, ast.Constant(0)), parts.names)]
    others += [name for name in inner if name in mine and loop.function is not None]  # two of one name
    if any(map(_jumps, filter(None, [loop.outer, loop.batches]))):
        others = [*mine, *inner]
    of_epochs = tuple(name for name in mine if name not in others)
    of_batches = tuple(name for name in inner if name not in (*mine, *others))
    by_batches = _changed_in(loop.batches.body) if loop.batches is not None and loop.function is None else ()
    changed = tuple(name for name in of_epochs if name in by_batches)
    return Carried(of_epochs, of_batches, changed, tuple(dict.fromkeys(others)))


def _around(
    script: Script, loop: ast.For, *, is_inner: bool = False
) -> tuple[dict[str, ast.expr | None], list[ast.stmt]]:
    """Return the variables that begin above a loop, with their values if those are certain, and what is below it.

    Those of an inner loop begin in its own block.
    """
    block = block_with(script.tree, loop)
    above = block[: block.index(loop)]
    if not is_inner:
        scope = function_with(script.tree, loop) or script.tree
        above = [*(each for each in scope.body if each.lineno < loop.lineno and not holds(each, loop)), *above]
    found: dict[str, ast.expr | None] = {}
    for statement in above:
        is_plain = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        value = getattr(statement, "value", None) if is_plain else None
        found |= dict.fromkeys(_stored([statement]), value)
    return found, block[block.index(loop) + 1 :]


def _handed_on(body: Sequence[ast.stmt], begun: Collection[str], after: Sequence[ast.stmt]) -> list[str]:
    """Return what one turn changes and the next one, or what follows the loop, reads."""
    read_after = set[str]().union(*map(_loads, after))
    return [name for name in _changed_in(body) if name in read_after or (name in begun and _is_read_first(name, body))]


def _is_read_first(name: str, body: Sequence[ast.stmt]) -> bool:
    for statement in body:
        if name in _loads(statement):
            return True
        if isinstance(statement, ast.Assign) and name in _stored([statement]):
            return False
    return False


def _of_function(loop: TrainingLoop, begun: Collection[str]) -> list[str]:
    """Return what the function that trains an epoch changes outside, by `global` or by adding to a container."""
    if loop.function is None:
        return []
    own = {each.arg for each in ast.walk(loop.function.args) if isinstance(each, ast.arg)}
    own |= _stored(loop.function.body)
    own -= {name for node in ast.walk(loop.function) if isinstance(node, ast.Global) for name in node.names}
    return [name for name in _changed_in(loop.function.body) if name in begun and name not in own]


def _is_savable(value: ast.expr | None, parts: Collection[str]) -> bool:
    """Return False for iterators, copies of models, objects of classes, and what has no certain value."""
    is_part = isinstance(value, ast.Name) and value.id in parts
    return (
        value is not None
        and not is_part
        and not any(name in _UNSAVABLE or name[:1].isupper() for name in _calls(value))
    )


def _jumps(loop: ast.For) -> bool:
    """Return True if a `continue` leaves out the last line of the loop's body."""
    inner = [each for each in _walk(loop.body) if isinstance(each, ast.For | ast.While)]
    found = [each for each in _walk(loop.body) if isinstance(each, ast.Continue)]
    return any(not any(holds(other, each) for other in inner) for each in found)


def _changed_in(block: Iterable[ast.stmt]) -> list[str]:
    """Return the names that a block assigns, or to whose containers it adds, each once."""
    return list(dict.fromkeys(name for each in _walk(block) for name in _changed(each)))


def _changed(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    method = node.func if isinstance(node, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in _ADDING and isinstance(method.value, ast.Name):
        return {method.value.id}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def _stored(block: Iterable[ast.stmt]) -> set[str]:
    return {each.id for each in _walk(block) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _loads(statement: ast.stmt) -> set[str]:
    """Return the names that are read; `x += 1` reads x."""
    found = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    added = [each.target for each in ast.walk(statement) if isinstance(each, ast.AugAssign)]
    return found | {each.id for each in added if isinstance(each, ast.Name)}


def _calls(value: ast.expr | None) -> set[str]:
    """Return the names of all that is called in an expression."""
    return {last_name(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)} if value else set()


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of the same scope."""
    for node in nodes:
        if not isinstance(node, _APART):
            yield node
            yield from _walk(ast.iter_child_nodes(node))
