"""What bash makes of sums and of parts of texts."""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

_SUMS: Mapping[type, Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv, ast.Mod: operator.mod},
}


def computed(text: str, values: Mapping[str, list[int]]) -> int | None:
    """A sum of whole numbers and of variables that have one value each; None of anything else."""
    try:
        return _of_tree(ast.parse(text, mode="eval").body, values)
    except (SyntaxError, ValueError, ZeroDivisionError, KeyError):
        return None


def _of_tree(tree: Any, values: Mapping[str, list[int]]) -> int:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if len(values[name]) == 1:
            return values[name][0]
        case ast.BinOp(left=left, op=how, right=right) if type(how) in _SUMS:
            return _SUMS[type(how)](_of_tree(left, values), _of_tree(right, values))
        case _:
            raise ValueError(ast.dump(tree))


def trimmed(text: str, how: str, pattern: str) -> str:
    """`${text%pattern}` and its three relatives."""
    pattern = shlex.split(pattern)[0] if pattern.strip() else ""
    cuts = range(len(text) + 1)
    if how.startswith("#"):
        ends = [at for at in cuts if fnmatch.fnmatchcase(text[:at], pattern)]
        return text[(max(ends) if how == "##" else min(ends)) :] if ends else text
    ends = [at for at in cuts if fnmatch.fnmatchcase(text[at:], pattern)]
    return text[: (min(ends) if how == "%%" else max(ends))] if ends else text


def unescaped(text: str) -> str:
    """What stands between double quotes, without its backslashes."""
    return re.sub(r'\\([$`"\\])', r"\1", text.replace("\\\n", ""))
