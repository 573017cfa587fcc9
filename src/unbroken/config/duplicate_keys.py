"""What the YAML loader takes without a word: keys that stand twice, of which it keeps the last, and far too much."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

# Thousands of runs are some megabytes; what is larger takes the loader minutes.
MOST_MEGABYTES = 20
# An alias stands for all that it names: ten lines of them can mean a billion values.
MOST_VALUES = 1_000_000


def too_large(path: Path) -> list[str]:
    """A line for a file that the loader must not even begin to read."""
    megabytes = path.stat().st_size / 1e6 if path.is_file() else 0
    if megabytes <= MOST_MEGABYTES:
        return []
    return [f"{path}: {megabytes:.0f} MB, allowed: at most {MOST_MEGABYTES} MB; name large data by its path"]


def keys_written_twice(path: Path) -> list[str]:
    """One line for each key that its mapping already had, or for too many aliases.

    Nothing for a file that is no YAML: others say so.
    """
    try:
        tree = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return []
    if tree is None:
        return []
    if _count(tree, {}) > MOST_VALUES:
        return [f"{path}: its aliases (*name) stand for more than {MOST_VALUES:,} values; write out what is meant"]
    return list(_mistakes(tree, path, ()))


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The values below a node, those of an alias each time that it stands there."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # for a node that holds itself
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = (child for pair in children for child in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_count(child, known) for child in flat)
    return known[id(node)]


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
