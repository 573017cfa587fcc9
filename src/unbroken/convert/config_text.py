"""A conversion as text for config/config.yaml: each line with where it comes from behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unbroken.convert.conversion import Conversion, remarks_text
from unbroken.convert.job import Line
from unbroken.engines.starter import as_yaml

_COLUMN = 40


def config_text(found: Conversion, is_in_workflow: bool = False) -> str:
    """The whole configuration; below a key of its own where it belongs to another workflow."""
    lines = ["# All keys: docs/config.md. What would be done: snakemake -n"]
    lines += [f"# not carried over: {text}" for text in remarks_text(found.lost, found.script)]
    own = [*_many(found)] if found.tasks else [*_one(found)]
    if is_in_workflow:
        own = ["unbroken:", *(f"  {line}" for line in own)]
    return "\n".join([*lines, *own, ""])


def _one(found: Conversion) -> Iterator[str]:
    yield "runs:"
    yield _placed(f"  {as_yaml(found.run)}:", found.script)
    yield from _lines(found.lines, "    ")
    yield "    settings:"
    yield from _lines(found.settings, "      ")


def _many(found: Conversion) -> Iterator[str]:
    """What the runs of an array have in common, then each with what is its own."""
    common = [line for line in found.lines if all(line in task.lines for task in found.tasks)]
    settings = [line for line in found.settings if all(line in task.settings for task in found.tasks)]
    yield _placed("defaults:", found.script)
    yield from _lines(common, "  ")
    yield "  settings:"
    yield from _lines(settings, "    ")
    yield "runs:"
    for task in found.tasks:
        yield _placed(f"  {as_yaml(task.run)}:", f"task {task.run.rpartition('_')[2]} of the array")
        yield from _lines([line for line in task.lines if line not in common], "    ")
        if own := [line for line in task.settings if line not in settings]:
            yield "    settings:"
            yield from _lines(own, "      ")


def _lines(lines: Sequence[Line], indent: str) -> Iterator[str]:
    for line in lines:
        text = f"{indent}{line.key}: {line.value}" if line.key else f"{indent}# {line.value}"
        yield _placed(text, line.comment) if line.comment else text


def _placed(text: str, comment: str) -> str:
    return f"{text:<{_COLUMN}}  # {comment}"
