"""Finds the variables that one turn of a loop hands to the next: a restart must bring them back."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from unbroken.engines.script_edit import Script, block_with, function_with, holds, last_name, target_name
from unbroken.engines.torch.training_loop import AnyLoop, TrainingLoop

_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_CONTAINERS = {"list", "dict", "set", "OrderedDict", "Counter"}
_CLOCKS = {"time", "perf_counter", "monotonic", "now", "process_time", "time_ns"}
# What cannot be saved as it is: iterators, progress bars, copies of whole models.
_UNSAVABLE = {"iter", "tqdm", "trange", "deepcopy"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)


@dataclass(frozen=True)
class Carried:
    """Name the variables that a restart has to bring back.

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


def find_carried(script: Script, loop: TrainingLoop, parts: Collection[str]) -> Carried:
    """Return the variables that one turn of a loop hands to the next."""
    skipped = {*parts, loop.loader, *_clocks(script)}
    before, after = _around(script, loop.outer)
    mine = [*_handed_on(loop.outer, after), *_globals_changed(loop)]
    mine = [name for name in dict.fromkeys(mine) if name in _known_before(script, loop.outer) - skipped]
    inner: list[str] = []
    if loop.batches is not None:
        above, below = _around(script, loop.batches)
        surely = _stored(above) | (set() if jumps(loop.batches) else _certain(loop.batches.body))
        inner = [name for name in _handed_on(loop.batches, below) if name in surely - skipped]
    others = [name for name in mine if name not in _certain_before(script, loop.outer, before)]
    others += [name for name in inner if name in mine and loop.function is not None]  # two of one name
    others += [name for name in (*mine, *inner) if not _is_savable(script, name, parts)]
    of_epochs = tuple(name for name in mine if name not in others)
    of_batches = tuple(name for name in inner if name not in (*mine, *others))
    changed = _changed_in(loop.batches.body) if loop.batches is not None else ()
    return Carried(
        of_epochs, of_batches, tuple(name for name in of_epochs if name in changed), tuple(dict.fromkeys(others))
    )


def _around(script: Script, loop: AnyLoop) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements above and below a loop in its own block."""
    block = block_with(script.tree, loop)
    at = block.index(loop)
    return block[:at], block[at + 1 :]


def jumps(loop: AnyLoop) -> list[ast.Continue]:
    """Return each `continue` that leaves out the last line of the loop's body."""
    nodes = [each for statement in loop.body for each in _walk(statement)]
    inner = [each for each in nodes if isinstance(each, ast.For | ast.While)]
    found = [each for each in nodes if isinstance(each, ast.Continue)]
    return [each for each in found if not any(holds(other, each) for other in inner)]


def _handed_on(loop: AnyLoop, after: Sequence[ast.stmt]) -> list[str]:
    """Return what one turn changes and the next one, or what follows the loop, reads."""
    read = _exposed(loop.body, _names(loop.target) if isinstance(loop, ast.For) else set())
    read |= _exposed(after, set()) | (_loads(loop.test) if isinstance(loop, ast.While) else set())
    return [name for name in _changed_in(loop.body) if name in read]


def _globals_changed(loop: TrainingLoop) -> list[str]:
    """Return what the function that trains an epoch changes outside, by `global` or by adding to a container."""
    if loop.function is None:
        return []
    declared = {name for node in ast.walk(loop.function) if isinstance(node, ast.Global) for name in node.names}
    own = _stored(loop.function.body) | _parameters(loop.function)
    return [name for name in _changed_in(loop.function.body) if name in declared or name not in own]


def _known_before(script: Script, loop: AnyLoop) -> set[str]:
    """Return the variables of a loop's scope that are assigned above it."""
    function = function_with(script.tree, loop)
    body = script.tree.body if function is None else function.body
    nodes = [each for statement in body for each in _walk(statement)]
    found = {each.id for each in nodes if _is_stored(each) and each.lineno < loop.lineno}  # type: ignore[attr-defined]
    return found | _parameters(function)


def _certain_before(script: Script, loop: AnyLoop, before: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that are there for certain where a loop begins."""
    function = function_with(script.tree, loop)
    body = script.tree.body if function is None else function.body
    above = [each for each in body if each.lineno < loop.lineno and not holds(each, loop)]
    return _certain([*before, *above]) | _parameters(function)


def _parameters(function: ast.FunctionDef | None) -> set[str]:
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} if function else set()


def _is_savable(script: Script, name: str, parts: Collection[str]) -> bool:
    """Return False for iterators, copies of models, and objects of a class that are added to."""
    values = [node.value for node in script.nodes(ast.Assign) if name in _names(*node.targets)]
    calls = {last_name(each.func) for value in values for each in ast.walk(value) if isinstance(each, ast.Call)}
    if calls & _UNSAVABLE or any(isinstance(each, ast.Name) and each.id in parts for each in values):
        return False
    is_added_to = any(name in _added_to(call) for call in script.nodes(ast.Call))
    return not is_added_to or all(_is_container(each) for each in values)


def _is_container(value: ast.expr) -> bool:
    literals = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.Tuple
    return isinstance(value, literals) or (isinstance(value, ast.Call) and last_name(value.func) in _CONTAINERS)


def _clocks(script: Script) -> set[str]:
    """Return the variables that hold a time, or a difference of such."""
    found: set[str] = set()
    for _ in range(3):  # t1 = time.time(); dt = t1 - t0; t0 = t1
        for node in script.nodes(ast.Assign):
            calls = (each for each in ast.walk(node.value) if isinstance(each, ast.Call))
            loads = _loads(node.value) - {"time"}
            if any(last_name(call.func) in _CLOCKS for call in calls) or (loads and loads <= found):
                found.add(target_name(node))
    return found


# --- names ---


def _exposed(block: Sequence[ast.stmt], written: Collection[str]) -> set[str]:
    """Return the names that a block may read before it writes them."""
    found, known = set[str](), set(written)
    for statement in block:
        if isinstance(statement, _APART):
            continue
        inner = [each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt | ast.excepthandler)]
        for each in ast.iter_child_nodes(statement):
            if each not in inner:
                found |= _loads(each) - known
        if isinstance(statement, ast.AugAssign):
            found |= _names(statement.target) - known
        targets = _names(statement.target) if isinstance(statement, ast.For) else set()
        for name in ("body", "orelse", "finalbody"):
            found |= _exposed(getattr(statement, name, []), known | targets)
        known |= _certain([statement])
    return found


def _certain(block: Sequence[ast.stmt]) -> set[str]:
    """Return the names that a block writes for certain; branches and loops may be skipped."""
    found = set[str]()
    for statement in block:
        if isinstance(statement, ast.With | ast.Try):
            found |= _certain(statement.body)
        elif isinstance(statement, ast.If):
            found |= _certain(statement.body) & _certain(statement.orelse)
        elif not isinstance(statement, ast.For | ast.While):
            found |= _stored([statement])
    return found


def _changed_in(block: Sequence[ast.stmt]) -> list[str]:
    """Return the names that a block assigns, or to whose containers it adds."""
    nodes = [each for statement in block for each in _walk(statement)]
    return list(dict.fromkeys(name for each in nodes for name in _changed(each)))


def _changed(node: ast.AST) -> set[str]:
    if _is_stored(node):
        return {node.id}  # type: ignore[attr-defined]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _names(node.value)
    return _added_to(node) if isinstance(node, ast.Call) else set()


def _added_to(call: ast.Call) -> set[str]:
    is_it = isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING and isinstance(call.func.value, ast.Name)
    return {call.func.value.id} if is_it else set()  # type: ignore[attr-defined]


def _stored(block: Sequence[ast.stmt]) -> set[str]:
    return {each.id for part in block for each in _walk(part) if _is_stored(each)}  # type: ignore[attr-defined]


def _loads(node: ast.AST) -> set[str]:
    """Return the names that are read, also in comprehensions and lambdas."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _names(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of the same scope."""
    if isinstance(node, _APART):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)
