"""A YAML file, with lines for what the usual loader accepts silently: duplicate keys, where it keeps the last, and
aliases that expand to far too much.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from unbroken.errors import ConfigError

# Thousands of runs are some megabytes; what is larger takes the loader minutes.
MOST_MEGABYTES = 20
# An alias expands to all that it names: ten lines of them can mean a billion values.
MOST_VALUES = 1_000_000
_ERRORS = (ValueError, RecursionError, yaml.YAMLError)


def read(path: Path) -> Any:
    """Return what the file says; raise FileNotFoundError, or ConfigError with a line for each mistake."""
    text = _text(path)
    tree = _tree(path, text)
    if lines := _refused(tree, path):
        raise ConfigError(lines)
    try:
        return None if tree is None else yaml.SafeLoader("").construct_document(tree)
    except _ERRORS as error:
        raise ConfigError([f"{path}{_problem(error, text.splitlines())}"]) from error


def unreadable(path: Path) -> list[str]:
    """Return what keeps a file from being read as a mapping; nothing where there is no file.  Quick for megabytes."""
    try:
        first = _first_node(path, _text(path))
    except OSError:  # Snakemake finds it too
        return []
    except ConfigError as error:
        return error.mistakes
    if isinstance(first, yaml.MappingStartEvent | yaml.MappingNode):
        return []
    is_list = isinstance(first, yaml.SequenceStartEvent | yaml.SequenceNode)
    found = "nothing" if first is None else "a list" if is_list else "a value"
    return [f"{path}: found {found}, allowed: names with a colon, `runs:` among them"]


def mistakes(path: Path) -> list[str]:
    """Return the lines of `read` for a file that Snakemake has read, which may be no YAML (JSON with tabs)."""
    try:
        return _refused(_tree(path, _text(path)), path)
    except (OSError, ConfigError):
        return []


def _text(path: Path) -> str:
    if path.is_dir():
        raise ConfigError([f"{path}: a folder, allowed: a YAML file"])
    megabytes = path.stat().st_size / 1e6
    if megabytes > MOST_MEGABYTES:
        limit = f"at most {MOST_MEGABYTES} MB; name large data by its path"
        raise ConfigError([f"{path}: {megabytes:.0f} MB, allowed: {limit}"])
    data = path.read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError([f"{path}: UTF-16, allowed: text saved as UTF-8"])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path} line {line}: bytes that are not UTF-8, allowed: text saved as UTF-8"]) from error


def _first_node(path: Path, text: str) -> yaml.NodeEvent | yaml.Node | None:
    """Parse all of the file; the parser in C is quick, the one in Python says more of a mistake."""
    try:
        events = list(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError:
        return _tree(path, text)
    return next((event for event in events if isinstance(event, yaml.NodeEvent)), None)


def _tree(path: Path, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except _ERRORS as error:
        raise ConfigError([f"{path}{_problem(error, text.splitlines())}"]) from error


def _problem(error: Exception, lines: Sequence[str]) -> str:
    """Return ` line 3: a tab; type spaces`: words for users, where those of YAML's parser say less."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f": not YAML: {' '.join(str(error).split())}"
    problem, here = error.problem or "", error.problem_mark.line
    began = error.context_mark.line if error.context_mark else here
    line = lines[here] if here < len(lines) else ""
    if "\\t" in problem or "\t" in line[: len(line) - len(line.lstrip())]:
        return f" line {here + 1}: a tab; type spaces"
    if "could not find expected ':'" in problem:
        return f" line {began + 1}: a colon is missing; type `name: value`, with a space behind it"
    if "mapping values are not allowed" in problem:
        todo = "is a colon missing in the line above, or is a value with a colon to be put into quotes?"
        return f" line {here + 1}: `{line.strip()}` cannot stand here; {todo}"
    if "expected <block end>" in problem or "expected <block mapping start>" in problem:
        return f" line {here + 1}: `{line.strip()}` is indented otherwise than the lines that it belongs to"
    if "quoted scalar" in str(error.context):
        return f" line {began + 1}: a quotation mark that nothing closes"
    if "flow" in str(error.context):
        return f" line {began + 1}: a [ or {{ that nothing closes, or a comma is missing in it"
    return f" line {here + 1}: not YAML: {problem}"


def _refused(tree: yaml.Node | None, path: Path) -> list[str]:
    if tree is None:
        return []
    if _count(tree, {}) > MOST_VALUES:
        return [f"{path}: its aliases (*name) stand for more than {MOST_VALUES:,} values; write out what is meant"]
    return list(_duplicates(tree, path, ()))


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values below a node, those of an alias each time that it stands there."""
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
