"""A YAML file, read with what the usual loader takes without a word: duplicate keys, of which it keeps the last, and
far too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from unbroken.errors import ConfigError

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


def read(path: Path) -> Any:
    """What the file says; FileNotFoundError, or ConfigError with a line for each mistake."""
    if lines := too_large(path):
        raise ConfigError(lines)
    loader = yaml.SafeLoader(path.read_text())
    try:
        tree = loader.get_single_node()
        if lines := _refused(tree, path):
            raise ConfigError(lines)
        return None if tree is None else loader.construct_document(tree)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: not YAML: {' '.join(str(error).split())}"]) from error
    finally:
        loader.dispose()


def mistakes(path: Path) -> list[str]:
    """The lines of `read` for a file that Snakemake has read, which may be no YAML (JSON with tabs)."""
    try:
        return _refused(yaml.compose(path.read_text(), Loader=yaml.SafeLoader), path)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return []


def _refused(tree: yaml.Node | None, path: Path) -> list[str]:
    if tree is None:
        return []
    if _count(tree, {}) > MOST_VALUES:
        return [f"{path}: its aliases (*name) stand for more than {MOST_VALUES:,} values; write out what is meant"]
    return list(_duplicates(tree, path, ()))


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The values below a node, those of an alias each time that it stands there."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # for a node that holds itself
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = (child for pair in children for child in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_count(child, known) for child in flat)
    return known[id(node)]


def _duplicates(node: yaml.Node, path: Path, parents: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _duplicates(child, path, parents)
    if not isinstance(node, yaml.MappingNode):
        return
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        where = ".".join((*parents, name))
        if name in first_lines:
            yield f"{path} line {line}: duplicate key {where} (first in line {first_lines[name]}); keep one"
        first_lines.setdefault(name, line)
        yield from _duplicates(value, path, (*parents, name))
