"""Read a script as its syntax tree and edit its text: for the lines that `unbroken init` shows."""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class NotPlainError(Exception):
    """Report that the script is not written in the usual way; the text names the part."""


@dataclass
class Script:
    """Hold a Python source and edits of it; places are bytes of the source as it was."""

    path: Path
    text: str
    tree: ast.Module
    newline: str = "\n"  # how the lines of the file end; those of `text` end with a plain one
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Script | None:
        """Return the script of a file; None if it is no Python of this version."""
        try:
            text = path.read_text()
            return cls(path, text, ast.parse(text), "\r\n" if b"\r\n" in path.read_bytes() else "\n")
        except (SyntaxError, ValueError, OSError):
            return None

    # --- what it says ---

    def imports(self) -> set[str]:
        """Return the packages that it imports anywhere, without their modules."""
        found = {alias.name for node in self.nodes(ast.Import) for alias in node.names}
        found |= {node.module for node in self.nodes(ast.ImportFrom) if node.module and not node.level}
        return {name.partition(".")[0] for name in found}

    def calls(self) -> set[str]:
        """Return the names of all functions and methods that are called."""
        return {last_name(call.func) for call in self.nodes(ast.Call)}

    def nodes(self, kind: Any, within: ast.AST | None = None) -> Iterator:  # type: ignore[type-arg]
        """Return all nodes of a kind, in the order of the text."""
        found = [node for node in ast.walk(within or self.tree) if isinstance(node, kind)]
        return iter(sorted(found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))))

    def source(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def number(self, node: ast.expr) -> float | None:
        """Return the value of a number, of a constant of the module, or of an option with a default; else None."""
        if isinstance(node, ast.Constant):
            value = node.value
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if isinstance(node, ast.Name):
            values = [each.value for each in self.nodes(ast.Assign) if target_name(each) == node.id]
            return self.number(values[0]) if len(values) == 1 and not isinstance(values[0], ast.Name) else None
        return self.option(node.attr) if isinstance(node, ast.Attribute) else None

    def option(self, name: str) -> float | None:
        """Return the default of an option on the command line; None if it has none that is a number."""
        for call in self.nodes(ast.Call):
            words = [word.value for word in call.args if isinstance(word, ast.Constant)]
            if last_name(call.func) == "add_argument" and f"--{name}" in words:
                default = keyword(call, "default")
                return self.number(default) if default is not None else None
        return None

    # --- edits ---

    def replace(self, node: ast.AST, text: str) -> None:
        """Replace a node by a text."""
        self._edits.append((*self._span(node), text))

    def remove(self, statement: ast.stmt) -> None:
        """Remove a statement with its lines."""
        self._edits.append((self._at(statement.lineno), self._at((statement.end_lineno or 0) + 1), ""))

    def insert_after(self, statement: ast.stmt, *lines: str) -> None:
        """Insert lines below a statement, as deep as it."""
        self._insert(self._at((statement.end_lineno or 0) + 1), statement, lines)

    def insert_before(self, statement: ast.stmt, *lines: str) -> None:
        """Insert lines above a statement, as deep as it."""
        self._insert(self._at(statement.lineno), statement, lines)

    def insert_import(self, line: str) -> None:
        """Insert a line below the imports at the top; raise NotPlainError if there are none."""
        imports = [each for each in self.tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
        if not imports:
            raise NotPlainError("no import at its top")
        self.insert_after(imports[-1], line)

    def append(self, node: ast.expr | ast.arg, text: str) -> None:
        """Insert a text right after a node."""
        end = self._span(node)[1]
        self._edits.append((end, end, text))

    def _insert(self, at: int, beside: ast.stmt, lines: Sequence[str]) -> None:
        indent = re.match(r"[ \t]*", self.text.split("\n")[beside.lineno - 1])
        block = "".join(f"{indent[0] if indent else ''}{line}\n" for line in lines)
        is_open_end = at == len(self.text.encode()) and not self.text.endswith("\n")
        self._edits.append((at, at, "\n" * is_open_end + block))

    def edited(self) -> str:
        """Return the text with all edits; raise NotPlainError if it is no Python any more."""
        text = self.text.encode()
        # The first of several edits at one place comes first, so it is put in last; what follows is replaced before.
        order = sorted(self._edits, key=lambda edit: (edit[0], edit[1] > edit[0]))
        for start, end, new in reversed(order):
            text = text[:start] + new.encode() + text[end:]
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise NotPlainError(f"line {error.lineno}") from error
        return text.decode()

    def diff(self) -> str:
        """Return the edits as a diff, for `patch` in the folder of the script."""
        before, after = (text.replace("\n", self.newline) for text in (self.text, self.edited()))
        return unified_diff(self.path.name, before, after)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._at(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._at(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _at(self, line: int, column: int = 0) -> int:
        """Return the place in the text in bytes of UTF-8, which syntax trees count."""
        text = self.text.encode()
        return min(len(text), sum(len(each) + 1 for each in text.split(b"\n")[: line - 1]) + column)


def unified_diff(name: str, before: str, after: str) -> str:
    """Return what `diff -u` writes, for one file of one name."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(_ended(line) for line in difflib.unified_diff(old, new, fromfile=name, tofile=name))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def diff_or_lines(
    script: Script, change: Callable[[Script], Iterator[str]], lines: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return what a script needs as a diff, with what `change` says, or as lines if no diff can be made.

    A script that takes part in unbroken already needs nothing.
    """
    if "unbroken" in script.imports() or "UNBROKEN_SAVE" in script.text:
        return "", ()
    try:
        said = tuple(change(script))
        return script.diff(), said
    except NotPlainError as error:
        what = f"{script.path.name} saves nothing that unbroken can resume from"
        todo = [f"{what}; add these lines (no diff could be made: {error}):", *(f"    {line}" for line in lines)]
        return "", (*todo, *notes_on_files(script))


def notes_on_files(script: Script, training: float = math.inf) -> Iterator[str]:
    """Yield a line for each file that a restart empties, with the two lines that keep its rows.

    Those are files that are opened to be written above the line where the training begins, and stay open.
    """
    for statement in script.nodes(ast.Assign | ast.Expr | ast.With):
        is_around = isinstance(statement, ast.With) and training <= (statement.end_lineno or 0)
        is_held = isinstance(statement, ast.Assign) or "logging" in ast.unparse(statement)
        if statement.lineno > training or not (is_around or (is_held and not isinstance(statement, ast.With))):
            continue
        opened = [each.context_expr for each in statement.items] if is_around else [statement.value]
        for call in (each for each in opened if isinstance(each, ast.Call)):
            yield from _note_on_file(script, call)


def _note_on_file(script: Script, call: ast.Call) -> Iterator[str]:
    values = [*call.args, *(each.value for each in call.keywords)]
    texts = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    mode = next((text for text in texts if re.fullmatch("[wx][bt+]{0,2}", text)), "")
    if not mode or last_name(call.func) not in ("open", "FileHandler", "basicConfig"):
        return
    again = mode.replace("w", "a").replace("x", "a")
    shown, choice = ast.unparse(call), f'"{again}" if training.step else "{mode}"'
    yield f"{script.path.name}, line {call.lineno}: `{shown}` empties the file at each restart; type one of:"
    yield f"    {shown.replace(repr(mode), choice)}  # below Training(...); a kill repeats rows"
    yield "    training.log(accuracy=accuracy)  # each row once, in final/metrics.csv"


def last_name(node: ast.expr) -> str:
    """Return `DataLoader` of `torch.utils.data.DataLoader`; empty if it is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of an argument that is given by its name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def target_name(node: ast.Assign) -> str:
    """Return the one name that is assigned to; empty if there is not one."""
    return node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else ""


def holds(statement: ast.AST, node: ast.AST) -> bool:
    """Return True if the node is somewhere inside."""
    return any(each is node for each in ast.walk(statement))


def block_with(tree: ast.AST, node: ast.AST) -> list[ast.stmt]:
    """Return the list of statements that has the node."""
    for each in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(each, name, None)
            if isinstance(block, list) and node in block:
                return block
    raise NotPlainError("no statement of its own")


def function_with(tree: ast.Module, node: ast.AST) -> ast.FunctionDef | None:
    """Return the innermost function around a node; None in the module itself."""
    around = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and holds(each, node)]
    return max(around, key=lambda each: each.lineno, default=None)
