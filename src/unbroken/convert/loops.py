"""How often a loop goes round, as far as that is known before any job runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from unbroken.convert.bash import text_of
from unbroken.convert.expand import Scope

if TYPE_CHECKING:
    from tree_sitter import Node


def times(node: Node, scope: Scope) -> int | None:
    """How often a `for` goes round; None if the job alone knows."""
    values = node.children_by_field_name("value") if node.type == "for_statement" else []
    count = 0
    for value in values:
        text = text_of(value)
        if found := re.fullmatch(r"\{(\d+)\.\.(\d+)\}", text):
            count += abs(int(found[2]) - int(found[1])) + 1
        elif found := re.fullmatch(r"[$`]\(?seq (?:(-?\d+) )?(\d+)[)`]", text):
            count += int(found[2]) - int(found[1] or 1) + 1
        elif value.type == "command_substitution":
            return None
        else:
            count += len(scope.words(value))
    if found := re.search(r"\(\(\s*\w+\s*=\s*(\d+)\s*;\s*\w+\s*(<=?)\s*(\d+)\s*;\s*\w+\+\+", text_of(node)):
        return int(found[3]) - int(found[1]) + (found[2] == "<=")
    return count or None
