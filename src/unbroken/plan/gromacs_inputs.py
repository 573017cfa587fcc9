"""The input functions of the GROMACS rules, made for a plan: a rule file holds rules alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbroken.engines.gromacs.prepare import prepared_record
from unbroken.plan.snakemake_speed import asked_often
from unbroken.runs.run import Run

InputFunction = Callable[[Any], list[str]]


def sources(inputs: Callable[[str, str], list[str]]) -> InputFunction:
    """The files that grompp reads; `inputs` gives those of a run's segment."""

    @asked_often
    def of(wildcards: Any) -> list[str]:
        return inputs(wildcards.run, "1")

    return of


def preparation(run_of: Callable[[str], Run], workflow: Any) -> InputFunction:
    """Return an input function: the record of the preparation, for the first segment of a run that names no tpr.

    Nothing where Snakemake only submits: it skips local rules then, and the first segment prepares the run itself.
    """

    @asked_often
    def of(wildcards: Any) -> list[str]:
        settings = workflow.remote_execution_settings  # not there yet while the rules are read
        if settings is not None and settings.immediate_submit:
            return []
        return prepared_record(run_of(wildcards.run), int(wildcards.segment))

    return of
