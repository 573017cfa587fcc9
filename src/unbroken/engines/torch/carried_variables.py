"""Variables of a script that one turn of a loop hands to the next: a restart must bring them back."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from unbroken.engines.script_edit import Script, function_with, last_name, target_name

_ADDING = {"append", "appendleft", "extend", "insert", "add", "update"}
_CONTAINERS = {"list", "dict", "set", "OrderedDict", "Counter"}
_CLOCKS = {"time", "perf_counter", "monotonic", "now", "process_time", "time_ns"}
# What cannot be saved as it is: iterators, progress bars, copies of whole models.
_UNSAVABLE = {"iter", "tqdm", "trange", "deepcopy"}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Flow:
    """Follows a block in the order in which it runs; `exposed` are the names that are read before they are written."""

    exposed: dict[str, None] = field(default_factory=dict)

    def run(self, block: Sequence[ast.stmt], written: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the names that are written for certain once the block has run."""
        for statement in block:
            written = self._statement(statement, written)
        return written

    def _statement(self, node: ast.stmt, written: frozenset[str]) -> frozenset[str]:
        match node:
            case ast.If():
                self._read(node.test, written)
                return written | (self.run(node.body, written) & self.run(node.orelse, written))
            case ast.For():
                self._read(node.iter, written)
                self.run(node.body, written | _names(node.target))
                return self.run(node.orelse, written)
            case ast.While():
                self._read(node.test, written)
                self.run(node.body, written)
                return self.run(node.orelse, written)
            case ast.With():
                for item in node.items:
                    self._read(item.context_expr, written)
                return self.run(node.body, written | _names(*(item.optional_vars for item in node.items)))
            case ast.Try():
                for block in (node.body, *(each.body for each in node.handlers), node.orelse):
                    self.run(block, written)
                return self.run(node.finalbody, written)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return written | {node.name}
        self._read(node, written)
        return written | stored_in(node)

    def _read(self, node: ast.AST, written: frozenset[str]) -> None:
        bound = _bound_inside(node)
        read = [each.id for each in _walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        read += _names(node.target) if isinstance(node, ast.AugAssign) else []
        self.exposed.update((name, None) for name in read if name not in written and name not in bound)


def changed_in(block: Sequence[ast.stmt]) -> dict[str, None]:
    """Return the names that a block assigns, or to whose containers it adds."""
    nodes = [each for statement in block for each in _walk(statement)]
    names = [each.id for node in nodes if isinstance(each := _changed(node), ast.Name)]
    bound = {name for statement in block for name in _bound_inside(statement)}
    return {name: None for name in names if name not in bound}


def _changed(node: ast.AST) -> ast.AST | None:
    """Return what is assigned, or added to."""
    if isinstance(node, ast.Name | ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
        return node.func.value
    return None


def carried_by(loop: ast.For | ast.While, after: Sequence[ast.stmt] = ()) -> list[str]:
    """Return what one turn of a loop reads of the one before, and what the statements after it read of the last."""
    flow, later = Flow(), Flow()
    flow.run(loop.body, _names(loop.target) if isinstance(loop, ast.For) else frozenset())
    later.run(after)
    if isinstance(loop, ast.While):
        flow._read(loop.test, frozenset())
    changed = changed_in([loop])
    return [name for name in changed if name in flow.exposed or name in later.exposed]


def jumps(loop: ast.For | ast.While) -> list[ast.Continue]:
    """Return each `continue` that leaves out the last line of the loop's body."""
    inner = [each for each in _walk(loop) if isinstance(each, ast.For | ast.While) and each is not loop]
    skipped = {id(node) for each in inner for node in ast.walk(each)}
    return [node for node in _walk(loop) if isinstance(node, ast.Continue) and id(node) not in skipped]


def is_written(name: str, loop: ast.For | ast.While) -> bool:
    """Return True if each turn of a loop writes the variable for certain."""
    return name in Flow().run(loop.body)


def globals_changed(script: Script, within: ast.AST) -> list[str]:
    """Return the global variables that functions change which are called there."""
    functions = {each.name: each for each in script.tree.body if isinstance(each, ast.FunctionDef)}
    called = [functions[name] for call in script.nodes(ast.Call, within) if (name := last_name(call.func)) in functions]
    known = {name for each in script.tree.body for name in stored_in(each)}
    found = [name for each in called for name in _changed_globals(script, each) if name in known]
    return list(dict.fromkeys(found))


def _changed_globals(script: Script, function: ast.FunctionDef) -> list[str]:
    """Return what a function changes outside: by `global`, or by adding to a container."""
    declared = {name for each in script.nodes(ast.Global, function) for name in each.names}
    own = {name for each in function.body for name in stored_in(each)} | {each.arg for each in function.args.args}
    return [name for name in changed_in(function.body) if name in declared or name not in own]


def known_before(script: Script, node: ast.stmt) -> set[str]:
    """Return the variables that have been assigned above a statement, parameters among them."""
    function = function_with(script.tree, node)
    around: ast.AST = function or script.tree
    found = {each.id for each in _walk_all(around) if _is_stored(each) and each.lineno < node.lineno}  # type: ignore[attr-defined]
    if function is None:
        return found
    arguments = function.args
    found |= {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    declared = {name for each in script.nodes(ast.Global, function) for name in each.names}
    return found | (declared & {each.id for each in _walk_all(script.tree) if _is_stored(each)})  # type: ignore[attr-defined]


def certain_before(script: Script, node: ast.stmt, before: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that a block, up to the loop in it, has for certain, whatever its branches do."""
    function = function_with(script.tree, node)
    found = set(Flow().run(before)) | set(Flow().run(script.tree.body))
    if function is not None:
        arguments = function.args
        found |= {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        found |= Flow().run(function.body)
    return found


def is_plain(script: Script, name: str, parts: Collection[str]) -> bool:
    """Return False for what no line of ours can keep: clocks, iterators, copies of models, objects of a class."""
    values = [value for node in script.nodes(ast.Assign) for value in _values_of(node, name)]
    if name in clocks(script) or any(last_name(each.func) in _UNSAVABLE for each in _calls(values)):
        return False
    if any(isinstance(each, ast.Name) and each.id in parts for each in values):
        return False
    is_added_to = any(_is_adding(call, name) for call in script.nodes(ast.Call))
    return not is_added_to or all(_is_container(each) for each in values)


def clocks(script: Script) -> set[str]:
    """Return the variables that hold a time, or a difference of such."""
    found: set[str] = set()
    for _ in range(3):  # t1 = time.time(); dt = t1 - t0; t0 = t1
        for node in script.nodes(ast.Assign):
            uses = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            is_clock = any(last_name(call.func) in _CLOCKS for call in _calls([node.value]))
            if target_name(node) and (is_clock or (uses and uses <= found)):
                found.add(target_name(node))
    return found


def meters(script: Script, within: ast.AST, parts: Collection[str]) -> list[str]:
    """Return the objects of a class that a loop updates, such as an AverageMeter."""
    made = {
        target_name(node)
        for node in script.nodes(ast.Assign)
        if isinstance(node.value, ast.Call) and last_name(node.value.func)[:1].isupper()
    }
    calls = [call for call in script.nodes(ast.Call, within) if isinstance(call.func, ast.Attribute)]
    names = [last_name(call.func.value) for call in calls if call.func.attr in ("update", "add")]
    return [name for name in dict.fromkeys(names) if name in made and name not in parts]


# --- inside ---


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Give the nodes that belong to the same scope."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from _walk(child)


def _walk_all(around: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(around):
        if not isinstance(child, _SCOPES):
            yield from _walk(child)


def _names(*targets: ast.AST | None) -> frozenset[str]:
    return frozenset(
        each.id for target in targets if target is not None for each in ast.walk(target) if isinstance(each, ast.Name)
    )


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def stored_in(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement assigns."""
    return {each.id for each in _walk(statement) if _is_stored(each)} - set(_bound_inside(statement))  # type: ignore[attr-defined]


def _bound_inside(node: ast.AST) -> set[str]:
    """Return the variables of comprehensions, which are seen nowhere else."""
    found = [each for each in _walk(node) if isinstance(each, _COMPREHENSIONS)]
    return {name for each in found for part in each.generators for name in _names(part.target)}


def _calls(values: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (each for value in values for each in ast.walk(value) if isinstance(each, ast.Call))


def _values_of(node: ast.Assign, name: str) -> list[ast.expr]:
    return [node.value] if any(name in _names(target) for target in node.targets if not _is_item(target)) else []


def _is_item(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript | ast.Attribute)


def _is_adding(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING and last_name(call.func.value) == name


def _is_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return last_name(value.func) in _CONTAINERS
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.Tuple)
