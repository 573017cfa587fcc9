"""Fill in the variables of a script as far as their values are known before any job runs."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from operator import add, floordiv, mod, mul, sub
from typing import Any

from unbroken.convert.script import Command, Script, Statement, Token

TASK_ID = "SLURM_ARRAY_TASK_ID"
# These differ from job to job of one chain; `unbroken exec` leaves the number of the job out of its comparison.
_OF_EACH_JOB = {"SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "HOSTNAME", "RANDOM"}
_NAME = re.compile(r"\$\{?#?([A-Za-z_]\w*)")
_SUBSTITUTION = re.compile(r"\$\((?!\()|`")
_EXPANSION = re.compile(
    r"""(?P<quoted>'[^']*')
    | \$\(\((?P<formula>[^()]*(?:\([^()]*\)[^()]*)*)\)\)
    | \$\{(?P<list>\w+)\[(?P<index>[^]]+)\]\}
    | \$\(\s*sed\s+-n\s+["']?\$\{?(?P<row>\w+)\}?p["']?\s+["']?(?P<file>[\w./${}-]+)["']?\s*\)
    | \$\(\s*printf\s+["']?(?P<format>%0?\d*d)["']?\s+["']?\$\{?(?P<number>\w+)\}?["']?\s*\)
    | \$\{(?P<braced>\w+)(?::-(?P<default>[^}$]*))?\}
    | \$(?P<plain>[A-Za-z_]\w*|\d)""",
    re.VERBOSE,
)
_OPERATORS: Mapping[type, Any] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod}


def names_in(text: str) -> set[str]:
    """Return the variables that a text names; in arithmetic and indices those without a `$` too."""
    bare = re.findall(r"\(\((.*?)\)\)|\[(.*?)\]", text)
    return {*_NAME.findall(text), *re.findall(r"[A-Za-z_]\w*", " ".join(first + second for first, second in bare))}


def assigned(commands: Iterable[Command]) -> Iterator[tuple[Command, str, Token]]:
    """Yield the variables that commands set, by `export`, `read` and loops too, with the word that does it."""
    for command in commands:
        is_setting = command.name in ("export", "declare", "local", "readonly", "read") or "for" in command.lead
        more = command.words[0 if "for" in command.lead else 1 :] if is_setting else []
        for word in [*([] if command.words else command.assignments), *more]:
            if found := re.match(r"([A-Za-z_]\w*)(?:\[.*?\])?(?:\+?=|$)", word.text):
                yield command, found[1], word


def varying(statements: list[Statement]) -> set[str]:
    """Return the variables that may have another value in each job of a chain."""
    found, seen = set(_OF_EACH_JOB), set[str]()
    for statement in statements:
        is_alone = len(statement.commands) == 1 and not statement.kind
        for _, name, word in assigned(statement.commands):
            is_fixed = is_alone and name not in seen and "=" in word.text and not _SUBSTITUTION.search(word.text)
            if not is_fixed or names_in(word.text) & found:
                found.add(name)
            seen.add(name)
    return found


def varies(word: str, names: set[str]) -> bool:
    """Return True if a word may come to something else in each job."""
    return bool(names_in(word) & names or _SUBSTITUTION.search(word))


def numbered(statements: list[Statement]) -> set[str]:
    """Return the variables whose values come from the number of the array's task."""
    found = {TASK_ID}
    for _, name, word in assigned(command for statement in statements for command in statement.commands):
        if names_in(word.text) & found:
            found.add(name)
    return found


class Names:
    """The values of variables; None, or nothing, for those that are not known."""

    def __init__(self, script: Script, known: Mapping[str, str | None]) -> None:
        self.script = script
        self.values = dict(known)
        self.lists: dict[str, list[str]] = {}

    def assign(self, word: str) -> None:
        """Set a variable as a word of the script does; one whose value is not known is forgotten."""
        name, _, value = word.partition("=")
        items = self.words(value[1:-1]) if value.startswith("(") else None
        self.lists[name] = items or []
        self.values[name.rstrip("+")] = None if items or name.endswith("+") else self.text(value)

    def text(self, raw: str) -> str | None:
        """Return what a word comes to; None if that is not known."""
        words = self.words(raw)
        return None if words is None else " ".join(words)

    def words(self, raw: str) -> list[str] | None:
        """Return the words that bash makes of a text; None if that is not known."""
        try:
            text = _EXPANSION.sub(self._value, raw)
            return None if re.search(r"(?<!\\)[$`]", re.sub(r"'[^']*'", "", text)) else shlex.split(text)
        except (KeyError, IndexError, ValueError, SyntaxError, ZeroDivisionError, OSError):
            return None

    def _value(self, found: re.Match[str]) -> str:
        """Return the value of an expansion; an error if it is not known."""
        if found["quoted"]:
            return found[0]
        if found["formula"]:
            return self._number(found["formula"])
        if found["list"]:
            return self.lists[found["list"]][int(self._number(found["index"]))]
        if found["format"]:
            return found["format"] % int(self.values[found["number"]] or "")
        if found["row"]:
            lines = (self.script.folder / (self.text(found["file"]) or "")).read_text().splitlines()
            return ["", *lines][int(self.values[found["row"]] or "")]
        name = found["braced"] or found["plain"]
        value = self.values.get(name, found["default"])
        if value is None:
            raise KeyError(name)
        return value or found["default"] or ""

    def _number(self, formula: str) -> str:
        text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", lambda found: self.values[found[1]] or "?", formula)
        return str(_computed(ast.parse(text.strip().replace("/", "//"), mode="eval").body))


def _computed(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_computed(node.left), _computed(node.right)))
    raise ValueError
