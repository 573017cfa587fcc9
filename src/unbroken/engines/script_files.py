"""Find files that a training script opens to write them from their start: each restart empties them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unbroken.engines.script_edit import Script, holds, keyword, last_name


def notes_on_files(script: Script, loop: ast.stmt | None) -> Iterator[str]:
    """Yield a line for each file that a restart empties, with the two lines that keep its rows."""
    for call in script.nodes(ast.Call):
        mode = next((text for each in _modes(call) if (text := _text(each))), "")
        if mode[:1] not in ("w", "x") or not _is_open_while_training(script, call, loop):
            continue
        again = mode.replace("w", "a").replace("x", "a")
        shown, choice = ast.unparse(call), f'"{again}" if training.step else "{mode}"'
        yield f"{script.path.name}, line {call.lineno}: `{shown}` empties the file at each restart; type one of:"
        yield f"    {shown.replace(repr(mode), choice)}  # below Training(...); a kill repeats rows"
        yield "    training.log(accuracy=accuracy)  # each row once, in final/metrics.csv"


def _is_open_while_training(script: Script, call: ast.Call, loop: ast.stmt | None) -> bool:
    """Return True for a file that is opened above the loop to stay open, or around it."""
    if any(loop is not None and holds(each, loop) and holds(each.items[0], call) for each in script.nodes(ast.With)):
        return True
    is_above = loop is None or (call.lineno < loop.lineno and not holds(loop, call))
    is_held = any(node.value is call for node in script.nodes(ast.Assign)) or "logging" in ast.unparse(call.func)
    return is_above and is_held


def _modes(call: ast.Call) -> list[ast.expr | None]:
    """Return the arguments of a call that may say how it opens a file."""
    name, named = last_name(call.func), [keyword(call, "mode"), keyword(call, "filemode")]
    if name == "open":
        is_method = isinstance(call.func, ast.Attribute) and last_name(call.func.value) not in ("io", "codecs", "gzip")
        return [*named, *call.args[0 if is_method else 1 :][:1]]
    return [*named, *call.args[1:2]] if name in ("FileHandler", "basicConfig") else []


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
