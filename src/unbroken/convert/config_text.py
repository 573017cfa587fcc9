"""A conversion as text for config/config.yaml: each line with where it comes from behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unbroken.convert.conversion import Conversion, remarks_text
from unbroken.convert.job import Line

_COLUMN = 40


def config_text(found: Conversion, is_in_workflow: bool = False) -> str:
    """The whole configuration; below a key of its own where it belongs to another workflow."""
    lines = ["runs:", *config_lines(found)]
    if is_in_workflow:
        lines = ["unbroken:", *(f"  {line}" for line in lines)]
    return "\n".join(["# All keys: docs/config.md. What would be done: snakemake -n", *lines, ""])


def config_lines(found: Conversion) -> Iterator[str]:
    """The lines of the run, below `runs:`."""
    for text in remarks_text(found.lost, found.script):
        yield f"  # not carried over: {text}"
    yield f"  {found.run}:{' ' * max(1, _COLUMN - len(found.run) - 3)}# {found.script}"
    yield from _lines(found.lines, "    ")
    yield "    settings:"
    yield from _lines(found.settings, "      ")


def _lines(lines: Sequence[Line], indent: str) -> Iterator[str]:
    for line in lines:
        text = f"{indent}{line.key}: {line.value}" if line.key else f"{indent}# {line.value}"
        yield f"{text:<{_COLUMN}}  # {line.comment}" if line.comment else text
