"""Files that a training script opens to write them from their start: each restart empties them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unbroken.engines.script_edit import Script, function_with, keyword, last_name


def notes_on_files(script: Script, loop: ast.stmt | None) -> Iterator[str]:
    """Give a line for each file that a restart empties, with the two lines that keep its rows."""
    for call, mode in _emptied(script, loop):
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


def _emptied(script: Script, loop: ast.stmt | None) -> list[tuple[ast.Call, str]]:
    """Return the calls that open a file to write it from its start, which is then written as long as it trains."""
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
