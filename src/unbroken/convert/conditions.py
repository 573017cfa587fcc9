"""Whether a condition of a script holds, as far as that is known before any job runs."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from unbroken.convert.bash import command_name, line_of, text_of
from unbroken.convert.expand import Scope
from unbroken.convert.seen import World
from unbroken.convert.words import Kind, Word, split

if TYPE_CHECKING:
    from tree_sitter import Node

_FILE_TESTS = ("-e", "-f", "-s", "-r", "-d", "-L", "-h", "-w", "-x", "-a")
_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    **{"-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-lt": operator.lt, "-ge": operator.ge},
    **{"-le": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt},
    **{">=": operator.ge, "<=": operator.le},
}
_OF_EVERY_JOB = re.compile(
    r"\$\{?(SLURM_(JOB_?ID|JOB_NAME|(JOB_)?NODELIST|(JOB_)?PARTITION|CLUSTER_NAME)|HOME|USER|PATH)\}?"
)
_TRUE, _FALSE = ("true", ":"), ("false",)


def holds(node: Node, scope: Scope) -> bool | None:
    """True, False, or None where the job alone knows."""
    match node.type:
        case "test_command":
            inner = node.named_children
            return _test(inner[0], scope) if inner else None
        case "compound_statement" if text_of(node).startswith("(("):
            return _test(node.named_children[0], scope)
        case "negated_command":
            return _not(holds(node.named_children[0], scope))
        case "redirected_statement":
            body = node.child_by_field_name("body")
            return holds(body, scope) if body is not None else None
        case "list":
            return _list(node, scope)
        case "pipeline":
            return _of_pipeline(node, scope)
        case "command":
            return _command(node, scope)
        case _:
            return None


def _test(node: Node, scope: Scope) -> bool | None:
    """The inside of `[ ]`, `[[ ]]` or `(( ))`."""
    match node.type:
        case "unary_expression":
            first, last = node.children[0], node.named_children[-1]
            if first.type == "!":
                return _not(_test(last, scope))
            return unary(text_of(first), scope.word(last, is_quoted=True), scope, line_of(node))
        case "parenthesized_expression":
            return _test(node.named_children[0], scope)
        case "negated_command":
            return _not(_test(node.named_children[0], scope))
        case "binary_expression":
            left, how, right = node.children[0], text_of(node.children[1]), node.children[-1]
            if how in ("&&", "-a"):
                return _both(_test(left, scope), _test(right, scope))
            if how in ("||", "-o"):
                return _either(_test(left, scope), _test(right, scope))
            return binary(_operand(left, scope), how, _operand(right, scope), scope)
        case _:
            word = _operand(node, scope)
            return _not_empty(word)


def _operand(node: Node, scope: Scope) -> Word:
    """Inside `(( ))` a bare name is a variable."""
    if node.type == "variable_name":
        return scope.value(text_of(node), line_of(node)) or Word.of("0")
    return scope.word(node, is_quoted=node.type != "extglob_pattern")


def unary(how: str, word: Word, scope: Scope, line: int) -> bool | None:
    """`-f file`, `-n text` and their like."""
    word = _without_arguments(word)
    if how in ("-n", "-z"):
        found = _not_empty(word)
        return found if how == "-n" else _not(found)
    if how not in _FILE_TESTS or word.has(Kind.UNSURE):
        return None
    if not word.parts:
        return False
    if word.has(Kind.PLACEHOLDER) and word.source == "{file}":
        return scope.world is World.RESUMED
    if (text := word.text) is not None and how == "-d" and os.path.isdir(scope.path(text)):
        return True
    return scope.file(word, line)


def binary(left: Word, how: str, right: Word, scope: Scope) -> bool | None:
    """A comparison of numbers or texts."""
    left, right = _without_arguments(left), _without_arguments(right)
    ours, theirs = scope.numbers(left), scope.numbers(right)
    if how in _NUMBERS and ours and theirs:
        found = {_NUMBERS[how](one, other) for one in ours for other in theirs}
        return found.pop() if len(found) == 1 else None
    if how in ("=", "==", "!=") and left.text is not None and right.text is not None:
        return (left.text == right.text) == (how != "!=")
    return None


def _without_arguments(word: Word) -> Word:
    """An argument that was not typed is empty."""
    return Word(tuple(part for part in word.parts if part.kind is not Kind.ARGUMENT))


def _not_empty(word: Word) -> bool | None:
    if any(part.kind is Kind.SHELL and _OF_EVERY_JOB.fullmatch(part.text) for part in word.parts):
        return True
    if word.has(Kind.UNSURE):
        return None
    if all(part.kind is Kind.TEXT for part in word.parts):
        return bool(word.text)
    # A variable alone that the job's environment may have or not.
    return None if all(part.kind is Kind.SHELL for part in word.parts) else True


def _command(node: Node, scope: Scope) -> bool | None:
    name, arguments = command_name(node), node.children_by_field_name("argument")
    words = [scope.word(child, is_quoted=True) for child in arguments]
    if name in _TRUE or name in _FALSE:
        return name in _TRUE
    if name in ("[", "test") and len(words) in (2, 3):
        sources = [word.source for word in words]
        if len(words) == 2:
            return unary(sources[0], words[1], scope, line_of(node))
        return (
            _not(unary(sources[1], words[2], scope, line_of(node)))
            if sources[0] == "!"
            else binary(words[0], sources[1], words[2], scope)
        )
    if name in ("ls", "compgen"):
        plain = [scope.word(child) for child in arguments if not text_of(child).startswith("-")]
        return scope.file(plain[0], line_of(node)) if len(plain) == 1 and split(plain[0]) else None
    return None


def _of_pipeline(node: Node, scope: Scope) -> bool | None:
    """`ls restart.* | grep -q .`"""
    first = node.named_children[0]
    return holds(first, scope) if text_of(first).startswith("ls ") else None


def _list(node: Node, scope: Scope) -> bool | None:
    left, how, right = node.children[0], text_of(node.children[1]), node.children[-1]
    both = holds(left, scope), holds(right, scope)
    return _both(*both) if how == "&&" else _either(*both)


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return True if left and right else None


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return False if left is False and right is False else None
