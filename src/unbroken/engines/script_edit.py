"""A training script as its syntax tree, and edits of its text: for the lines that `unbroken init` proposes."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class NotPlainError(Exception):
    """The script is not written as such scripts mostly are; its text says of what."""


@dataclass
class Script:
    """A Python source and the edits that were asked for; positions are those of the source as it was."""

    path: Path
    text: str
    tree: ast.Module
    newline: str = "\n"  # how the lines of the file end; those of `text` end with a plain one
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Script | None:
        """None if it is no Python of this version."""
        try:
            text = path.read_text()
            return cls(path, text, ast.parse(text), "\r\n" if b"\r\n" in path.read_bytes() else "\n")
        except (SyntaxError, ValueError, OSError):
            return None

    # --- what it says ---

    def imports(self) -> set[str]:
        """The packages that it imports anywhere, without their modules."""
        found = {alias.name for node in self.nodes(ast.Import) for alias in node.names}
        found |= {node.module for node in self.nodes(ast.ImportFrom) if node.module and not node.level}
        return {name.partition(".")[0] for name in found}

    def nodes(self, kind: type, within: ast.AST | None = None) -> Iterator:  # type: ignore[type-arg]
        """All nodes of a kind, as they stand in the text."""
        found = [node for node in ast.walk(within or self.tree) if isinstance(node, kind)]
        return iter(sorted(found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))))

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def number(self, node: ast.expr) -> float | None:
        """The value of a number, of a constant of the module, or of an option with a default; None if unknown."""
        if isinstance(node, ast.Constant):
            value = node.value
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if isinstance(node, ast.Name):
            values = [each.value for each in assignments(self.tree) if target_name(each) == node.id]
            return self.number(values[0]) if len(values) == 1 and not isinstance(values[0], ast.Name) else None
        return self.option(node.attr) if isinstance(node, ast.Attribute) else None

    def option(self, name: str) -> float | None:
        """Return the default of an option on the command line, None if it has none that is a number."""
        for call in self.nodes(ast.Call):
            if last_name(call.func) != "add_argument":
                continue
            words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            if name in [word.lstrip("-").replace("-", "_") for word in words]:
                default = keyword(call, "default")
                return self.number(default) if default is not None else None
        return None

    # --- edits ---

    def replace(self, node: ast.AST, text: str) -> None:
        """Puts a text in the place of a node."""
        self._edits.append((*self._span(node), text))

    def replace_head(self, loop: ast.While, text: str) -> None:
        """Puts a text in the place of `while ...:`."""
        start, end = self._span(loop)[0], self._span(loop.test)[1]
        self._edits.append((start, self.text.index(":", end) + 1, text))

    def indent_step(self, loop: ast.For) -> str:
        """Return by what the body of a loop is deeper than the loop."""
        lines = self.text.split("\n")
        inner, outer = (re.match(r"[ \t]*", lines[each.lineno - 1]) for each in (loop.body[0], loop))
        return inner[0][len(outer[0]) :] if inner and outer else "    "

    def remove(self, statement: ast.stmt) -> None:
        """Takes out a statement with its lines."""
        start, end = self._line_start(statement.lineno), self._line_start((statement.end_lineno or 0) + 1)
        self._edits.append((start, end, ""))

    def insert_after(self, statement: ast.stmt, *lines: str) -> None:
        """Whole lines below a statement, as deep as it."""
        self._insert(self._line_start((statement.end_lineno or 0) + 1), statement, lines)

    def insert_before(self, statement: ast.stmt, *lines: str) -> None:
        """Whole lines above a statement, as deep as it."""
        self._insert(self._line_start(statement.lineno), statement, lines)

    def append(self, node: ast.expr | ast.arg, text: str) -> None:
        """A text right behind a node."""
        end = self._span(node)[1]
        self._edits.append((end, end, text))

    def set_keywords(self, call: ast.Call, words: Mapping[str, str]) -> None:
        """Gives these arguments to a call, in place of those of the same names; NotPlainError if it hides some."""
        if any(each.arg is None for each in call.keywords) or any(isinstance(each, ast.Starred) for each in call.args):
            raise NotPlainError(f"line {call.lineno}: `{ast.unparse(call)}`")
        added = []
        for name, text in words.items():
            if (own := keyword(call, name)) is not None:
                self.replace(own, text)
            else:
                added.append(f"{name}={text}")
        if not added:
            return
        given = sorted([*call.args, *(each.value for each in call.keywords)], key=self._span)
        if not given:
            self._edits.append((self._span(call)[1] - 1, self._span(call)[1] - 1, ", ".join(added)))
            return
        last = max(given[-1].lineno, call.lineno)
        line = self.text.split("\n")[last - 1]
        indent = line[: len(line) - len(line.lstrip())]
        between = ", " if last == call.lineno else f",\n{indent}"
        self.append(given[-1], "".join(f"{between}{word}" for word in added))

    def _insert(self, at: int, beside: ast.stmt, lines: Sequence[str]) -> None:
        indent = re.match(r"[ \t]*", self.text.split("\n")[beside.lineno - 1])
        block = "".join(f"{indent[0] if indent else ''}{line}\n" for line in lines)
        is_open_end = at == len(self.text) and not self.text.endswith("\n")
        self._edits.append((at, at, "\n" * is_open_end + block))

    def edited(self) -> str:
        """The text with all edits; NotPlainError if it is no Python any more."""
        text = self.text
        # Of edits at one place the first comes first, so it is put in last; what they stand before is replaced before.
        order = sorted(enumerate(self._edits), key=lambda each: (each[1][0], each[1][1] > each[1][0], each[0]))
        for _, (start, end, new) in reversed(order):
            text = text[:start] + new + text[end:]
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise NotPlainError(f"line {error.lineno}") from error
        return text

    def diff(self) -> str:
        """From the file as it is to the one with the edits, for `patch` in the folder of the script."""
        before, after = (text.replace("\n", self.newline) for text in (self.text, self.edited()))
        return unified_diff(self.path.name, before, after)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _offset(self, line: int, column: int) -> int:
        """Columns of syntax trees count bytes of UTF-8."""
        start = self._line_start(line)
        return start + len(self.text[start:].partition("\n")[0].encode()[:column].decode())

    def _line_start(self, line: int) -> int:
        return min(len(self.text), sum(len(each) + 1 for each in self.text.split("\n")[: line - 1]))


def unified_diff(name: str, before: str, after: str) -> str:
    """As `diff -u` writes it, for one file of one name."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(_ended(line) for line in difflib.unified_diff(old, new, fromfile=name, tofile=name))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def diff_or_lines(
    script: Script, change: Callable[[Script], None], lines: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """What a training script lacks as a diff, or if that cannot be made in words; nothing if it lacks nothing."""
    if is_adapted(script):
        return "", ()
    try:
        change(script)
        return script.diff(), ()
    except NotPlainError as error:
        what = f"{script.path.name} saves nothing that unbroken can resume from"
        return "", (f"{what}; add these lines (no diff could be made: {error}):", *(f"    {line}" for line in lines))


def is_adapted(script: Script) -> bool:
    """Return True if the script takes part in unbroken already."""
    return "unbroken" in script.imports() or "UNBROKEN_SAVE" in script.text


def last_name(node: ast.expr) -> str:
    """`DataLoader` of `torch.utils.data.DataLoader`; empty if it is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """`optim.SGD` as it is written."""
    return ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of an argument that is given by its name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def assignments(within: ast.AST) -> Iterator[ast.Assign]:
    """All `name = ...`, those inside of functions among them."""
    return (node for node in ast.walk(within) if isinstance(node, ast.Assign) and target_name(node))


def target_name(node: ast.Assign) -> str:
    """The one name that is assigned to, empty if there is not one."""
    return node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else ""


def holds(statement: ast.AST, node: ast.AST) -> bool:
    """True if the node stands somewhere inside."""
    return any(each is node for each in ast.walk(statement))


def block_with(tree: ast.AST, node: ast.AST) -> list[ast.stmt]:
    """The innermost list of statements that has the node, itself or inside one of its expressions."""
    for each in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(each, name, None)
            if isinstance(block, list) and node in block:
                return block
    raise NotPlainError("no statement of its own")


def statement_with(tree: ast.AST, node: ast.AST) -> ast.stmt:
    """The innermost statement that has the node."""
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and holds(each, node)]
    return min(around, key=lambda each: sum(1 for _ in ast.walk(each)))


def function_with(tree: ast.Module, node: ast.AST) -> ast.FunctionDef | None:
    """The innermost function around a node; None in the module itself."""
    around = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and holds(each, node)]
    return max(around, key=lambda each: each.lineno, default=None)
