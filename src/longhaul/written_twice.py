"""Keys that stand twice in a YAML file: the loader keeps the last and drops a whole run without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml


def keys_written_twice(path: Path) -> list[str]:
    """One line for each key that its mapping already had; nothing for a file that is no YAML (others say so)."""
    try:
        tree = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError):
        return []
    return list(_mistakes(tree, path, ())) if tree is not None else []


def _mistakes(node: yaml.Node, path: Path, parents: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _mistakes(child, path, parents)
    if not isinstance(node, yaml.MappingNode):
        return
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        where = ".".join((*parents, name))
        if name in first_lines:
            yield f"{path} line {line}: {where} stands there twice (first in line {first_lines[name]}); keep one"
        first_lines.setdefault(name, line)
        yield from _mistakes(value, path, (*parents, name))
