"""Find the variables that one iteration of a loop hands to the next: a restart must restore them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from unbroken.engines.script_edit import Script, block_with, function_with, holds, last_name, target_name
from unbroken.engines.torch.training_loop import AnyLoop, TrainingLoop

_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_CONTAINERS = {"list", "dict", "set", "OrderedDict", "Counter"}
_LITERALS = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.Tuple
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
    known, certain = _known_before(script, loop.outer, before)
    mine = dict.fromkeys([*_handed_on(loop.outer, after), *_globals_changed(loop)])
    mine = {name: None for name in mine if name in known - skipped}
    inner: list[str] = []
    if loop.batches is not None:
        above, below = _around(script, loop.batches)
        surely = _stored(above) | (set() if jumps(loop.batches) else _certain(loop.batches.body))
        inner = [name for name in _handed_on(loop.batches, below) if name in surely - skipped]
    others = [name for name in mine if name not in certain]
    others += [name for name in inner if name in mine and loop.function is not None]  # two of one name
    others += [name for name in (*mine, *inner) if not _is_savable(script, name, parts)]
    of_epochs = tuple(name for name in mine if name not in others)
    of_batches = tuple(name for name in inner if name not in (*mine, *others))
    by_batches = _changed_in(loop.batches.body) if loop.batches is not None else ()
    changed = tuple(name for name in of_epochs if name in by_batches)
    return Carried(of_epochs, of_batches, changed, tuple(dict.fromkeys(others)))


def jumps(loop: AnyLoop) -> list[ast.Continue]:
    """Return each `continue` that leaves out the last line of the loop's body."""
    nodes = list(_walk(loop.body))
    inner = [each for each in nodes if isinstance(each, ast.For | ast.While)]
    found = [each for each in nodes if isinstance(each, ast.Continue)]
    return [each for each in found if not any(holds(other, each) for other in inner)]


def _around(script: Script, loop: AnyLoop) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements above and below a loop in its own block."""
    block = block_with(script.tree, loop)
    at = block.index(loop)
    return block[:at], block[at + 1 :]


def _known_before(script: Script, loop: AnyLoop, before: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """Return the variables of a loop's scope that are assigned above it, and those that are there for certain."""
    function = function_with(script.tree, loop)
    body, parameters = (script.tree.body if function is None else function.body), _parameters(function)
    known = {each.id for each in _walk(body) if _is_stored(each) and each.lineno < loop.lineno}  # type: ignore[attr-defined]
    above = [each for each in body if each.lineno < loop.lineno and not holds(each, loop)]
    return known | parameters, _certain([*before, *above]) | parameters


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


def _parameters(function: ast.FunctionDef | None) -> set[str]:
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} if function else set()


def _is_savable(script: Script, name: str, parts: Collection[str]) -> bool:
    """Return False for iterators, copies of models, and objects of a class that are added to."""
    values = [node.value for node in script.nodes(ast.Assign) if name in _names(*node.targets)]
    calls = {last_name(each.func) for value in values for each in ast.walk(value) if isinstance(each, ast.Call)}
    if calls & _UNSAVABLE or any(isinstance(each, ast.Name) and each.id in parts for each in values):
        return False
    is_added_to = any(name in _added_to(call) for call in script.nodes(ast.Call))
    return not is_added_to or all(isinstance(each, _LITERALS) or _made_by(each) in _CONTAINERS for each in values)


def _clocks(script: Script) -> set[str]:
    """Return the variables that hold a time, or a difference of such."""
    found: set[str] = set()
    for _ in range(3):  # t1 = time.time(); dt = t1 - t0; t0 = t1
        for node in script.nodes(ast.Assign):
            loads = _loads(node.value) - {"time"}
            if any(_made_by(each) in _CLOCKS for each in ast.walk(node.value)) or (loads and loads <= found):
                found.add(target_name(node))
    return found


# --- names ---


def _exposed(block: Sequence[ast.stmt], written: Collection[str]) -> set[str]:
    """Return the names that a block may read before it writes them."""
    found, known = set[str](), set(written)
    for statement in block:
        if isinstance(statement, _APART):
            continue
        for each in ast.iter_child_nodes(statement):
            if not isinstance(each, ast.stmt | ast.excepthandler):
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
    return list(dict.fromkeys(name for each in _walk(block) for name in _changed(each)))


def _changed(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _names(node.value)
    return _names(node) if _is_stored(node) else _added_to(node)


def _added_to(node: ast.AST) -> set[str]:
    """Return the container of `losses.append(...)`."""
    call = node.func if isinstance(node, ast.Call) else None
    is_it = isinstance(call, ast.Attribute) and call.attr in _ADDING and isinstance(call.value, ast.Name)
    return {call.value.id} if is_it else set()  # type: ignore[union-attr]


def _made_by(node: ast.AST) -> str:
    """Return the name of what is called; empty if nothing is."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def _stored(block: Sequence[ast.stmt]) -> set[str]:
    return {each.id for each in _walk(block) if _is_stored(each)}  # type: ignore[attr-defined]


def _loads(node: ast.AST) -> set[str]:
    """Return the names that are read, also in comprehensions and lambdas."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _names(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of the same scope."""
    for node in nodes:
        if not isinstance(node, _APART):
            yield node
            yield from _walk(ast.iter_child_nodes(node))
