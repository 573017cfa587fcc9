"""What an engine itself finds wrong with the settings of a run, where no schema of a single key can say it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

from unbroken.config.location import Entry
from unbroken.runs.run import Run

# A setting, and what is wrong with it.
Mistakes = Callable[[Run, Path], Iterator[tuple[str, str]]]


def own_mistakes(entry: Entry, run: Run, base: Path) -> Iterator[str]:
    """A line for each mistake that `unbroken.<engine>.checks` finds; engines without such a module find none."""
    for setting, text in _checks(run.engine)(run, base):
        yield f"{entry.spot.at('settings', setting)}: {text}"


@functools.cache
def _checks(engine: str) -> Mistakes:
    name = f"unbroken.{engine}.checks"
    try:
        is_there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # there is no package of that name
        is_there = False
    return importlib.import_module(name).mistakes if is_there else _none


def _none(_run: Run, _base: Path) -> Iterator[tuple[str, str]]:
    return iter(())
