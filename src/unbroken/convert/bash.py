"""Bash, parsed by tree-sitter-bash; what cannot be carried over into a config is refused by its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unbroken.config.package_files import install_line
from unbroken.errors import ConfigError

if TYPE_CHECKING:
    from tree_sitter import Node

_HEREDOCS = {
    "heredoc_redirect": "a heredoc writes text that no config can hold; put it into a file of its own",
    "herestring_redirect": "a here-string is text that no config can hold; put it into a file of its own",
    "process_substitution": "`<(...)` starts a second program beside the first; write its output into a file first",
}


@dataclass(frozen=True)
class Script:
    """A script as it stands on disk; `folder` is where it is submitted, so where its paths begin."""

    name: str
    text: str
    folder: Path

    @classmethod
    def read(cls, path: Path, folder: Path) -> Script:
        """ConfigError in one line if it cannot be read as text."""
        try:
            return cls(path.name, path.read_text(), folder)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"convert: {path} cannot be read: {error}"]) from error

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def refused(self, line: int, why: str) -> ConfigError:
        """The error that ends the conversion, with the line that it is about."""
        return ConfigError([f"{self.name} line {line}: {why}"])


def parse(script: Script) -> Node:
    """The tree of a whole script; ConfigError by line if it is no bash, or if it holds what no config can hold."""
    root = _tree(script.text)
    for node in walk(root):
        if node.type == "ERROR" or node.is_missing:
            raise script.refused(line_of(node), "this is not understood as bash; look for a quote or bracket before it")
        if why := _HEREDOCS.get(node.type):
            raise script.refused(line_of(node), why)
        if node.type == "command_name" and text_of(node) == "eval":
            raise script.refused(
                line_of(node), "`eval` runs what is known in the job alone; write out the command that it comes to"
            )
    return root


def fragment(text: str) -> Node:
    """The tree of a piece of script, such as the text of a trap."""
    return _tree(text)


def _tree(text: str) -> Node:
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise ConfigError([f"convert: {error.name} is not installed; type: {install_line(extra='convert')}"]) from error
    return Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from walk(child)


def text_of(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode()


def line_of(node: Node) -> int:
    """The line that a node begins in, counted from 1."""
    return node.start_point.row + 1


def command_name(node: Node) -> str:
    """The name of a simple command as it is written, empty if it has none."""
    name = node.child_by_field_name("name")
    return text_of(name) if name is not None else ""


def commands_in(node: Node) -> Iterator[Node]:
    """All simple commands below a node."""
    yield from (found for found in walk(node) if found.type == "command")


def assigned_in(node: Node) -> frozenset[str]:
    """The names of all variables that a script sets for itself; those that it exports may come from its environment."""
    found: set[str] = set()
    exported: set[str] = set()
    for each in walk(node):
        name = each.child_by_field_name("name") if each.type == "variable_assignment" else None
        if name is not None:
            is_exported = each.parent is not None and text_of(each.parent).startswith("export")
            (exported if is_exported else found).add(text_of(name))
    return frozenset(name for name in found - exported if not name.endswith("PATH"))
