"""What an engine itself finds wrong with the settings of a run, where no schema of a single key can say it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from unbroken.config.load import read_runs
from unbroken.config.location import Entry
from unbroken.runs.run import Run

# A setting, and what is wrong with it.
Mistakes = Callable[[Run, Path], Iterator[tuple[str, str]]]


def read_checked_runs(config: Mapping[str, object], schemas: Path, base: Path) -> tuple[Run, ...]:
    """The runs of a configuration; ConfigError with all mistakes, those that only their engines find among them."""
    return read_runs(config, schemas, base, own_mistakes)


def own_mistakes(entry: Entry, run: Run, base: Path) -> Iterator[str]:
    """A line for each mistake that `unbroken.engines.<engine>.checks` finds; one without that finds none."""
    for setting, text in _checks(run.engine)(run, base):
        yield f"{entry.spot.at('settings', setting)}: {text}"


@functools.cache
def _checks(engine: str) -> Mistakes:
    name = f"unbroken.engines.{engine}.checks"
    try:
        is_there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # there is no package of that name
        is_there = False
    return importlib.import_module(name).mistakes if is_there else _none


def _none(_run: Run, _base: Path) -> Iterator[tuple[str, str]]:
    return iter(())
