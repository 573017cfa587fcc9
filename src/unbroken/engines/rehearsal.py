"""What an engine offers to try before a long run: does the program survive being saved and brought back?"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.runs.run import Run

# The run, the working directory, how long to work before a save; returns what to tell the user.
Rehearsal = Callable[[Run, Path, float], str]


def rehearsal_of(run: Run) -> Rehearsal:
    """`rehearse` of `unbroken.engines.<engine>.rehearsal`; ConfigError if the engine of the run has none."""
    name = f"unbroken.engines.{run.engine}.rehearsal"
    try:
        is_there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # there is no package of that name
        is_there = False
    if not is_there:
        raise ConfigError([f"{run.name}: engine {run.engine} needs no rehearsal; type: snakemake"])
    rehearse: Rehearsal = importlib.import_module(name).rehearse
    return rehearse
