"""The static plan: the segments of each run that are still to do, and what each rule needs to know of a run.

It is built at every start of snakemake from the config and the records; nothing in it depends on what happens while it
runs, so a chain of thousands of segments stays cheap (a dynamic one grows with the square of the runs).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from unbroken.config.found import unknown_run
from unbroken.config.site import Site
from unbroken.config.tasks import mistakes_outside_slurm
from unbroken.copies import replica
from unbroken.engines.found import found_engines, known_schemas
from unbroken.errors import ConfigError, FormatError
from unbroken.job.attempt import Assignment
from unbroken.plan import snakemake_inside
from unbroken.plan.driver_lines import standing
from unbroken.plan.on_disk import RunOnDisk
from unbroken.plan.slurm_jobs import SlurmPlan, shared
from unbroken.slurm.this_job import current_job
from unbroken.store.layout import RunFolder
from unbroken.store.results import SUMMARY
from unbroken.store.run import RunSpec, content_files

logger = logging.getLogger(__name__)


class Plan:
    """All runs of a config; what the rule files ask.  `slurm` is None where no site says that Slurm is meant."""

    def __init__(
        self, runs: Sequence[RunSpec], base: Path = Path(), site: Site | None = None, *, is_driver: bool = False
    ) -> None:
        self.base, self._is_driver = base, is_driver
        self.slurm = SlurmPlan(runs, site) if site else None
        runs = self.slurm.runs if self.slurm else runs
        self._assignments = {run.name: Assignment(run, known_schemas().engines[run.engine].identity) for run in runs}

        self._at_start = self._on_disk()  # the plan is made once

    def _on_disk(self) -> dict[str, RunOnDisk]:
        """Return the runs as they stand on disk now."""
        return {name: RunOnDisk(assignment, self.base) for name, assignment in self._assignments.items()}

    @cached_property
    def _outdated(self) -> list[Path]:
        return [path for run in self._at_start.values() for path in run.outdated]

    @property
    def runs(self) -> list[RunSpec]:
        return [assignment.run for assignment in self._assignments.values()]

    def run(self, name: str) -> RunSpec:
        """Return the run of that name."""
        return self._assignments[name].run

    # --- what rules ask ---

    def pattern(self, engine: str) -> str:
        """Return a regular expression for the runs of an engine, or of all that other packages bring (`outside`)."""
        found = found_engines()
        names = [run.name for run in self.runs if (run.engine if found[run.engine].is_ours else "outside") == engine]
        # Snakemake copies it into every path that it makes.
        is_for_all = names and len(names) == len(self._assignments)
        return r"[^/]+" if is_for_all else "|".join(map(re.escape, names)) or r"(?!)"

    def assignment(self, run: str) -> Assignment:
        """Return what every segment of a run is given."""
        return self._assignments[run]

    def previous(self, run: str, segment: str) -> list[str]:
        """Return the record from which a segment resumes; none for the first.

        The driver orders segments by it.  A segment's job is not asked for it: without a driver, the job before may
        have been killed, and its record is missing; the job resumes from what is in the store.
        """
        before = int(segment) - 1 if self._is_driver else 0
        return [str(RunFolder(run).record(before))] if before else []

    def content(self, run: str) -> list[str]:
        """Return the files that a run is made of (identity: content in its engine's schema)."""
        assignment = self._assignments[run]
        return [name for _, name in content_files(assignment.run, assignment.keys)]

    def threads(self) -> Any:
        """Return the threads of the segments' rules: a number where all runs have the same."""
        return shared({run.name: run.resources.threads for run in self.runs})

    def resources(self) -> dict[str, Any]:
        """Return the resources of the segments' rules."""
        found = {
            "attempt": _attempt,
            "mem_mb": shared({run.name: run.resources.mem_mb for run in self.runs}),
            "runtime": shared({run.name: math.ceil(run.segment_minutes) for run in self.runs}),
            "gpu": shared({run.name: run.resources.gpus for run in self.runs}),
        }
        return {**found, **(self.slurm.resources() if self.slurm else {})}

    def targets(self, *names: str) -> list[str]:
        """Return all records of these runs, or of all, in order; of a run that has reached its goal only its results.

        In order, because Snakemake builds a chain recursively and only the first of
        its targets can be far from done.
        """
        if unknown := [name for name in names if name not in self._assignments]:
            raise ConfigError([unknown_run(unknown[0], self._assignments)])
        return [path for name in names or self._assignments for path in self._targets(self.run(name))]

    def _targets(self, run: RunSpec) -> Iterator[str]:
        folder = RunFolder(run.name)
        if self._at_start[run.name].is_finished:
            yield str(folder.final / SUMMARY)
            return
        yield from (str(folder.record(segment)) for segment in range(1, run.segments + 1))

    # --- what a driver does at its start and end ---

    def check(self, files: Sequence[str] = ()) -> None:
        """Raise ConfigError with a line for each thing that is wrong on disk, or that this machine or cluster lacks.

        Raise FormatError with a line for each run that has a file of a newer unbroken.
        """
        found = self._at_start.values()
        if lines := [line for run in found if (line := run.newer())]:
            raise FormatError("\n".join(lines))
        mistakes = [line for run in found for line in run.refusals()]
        mistakes += replica.mistakes((each.run for each in found if not each.is_finished), self.base)
        if self.slurm and not self.has_nothing_to_do():
            mistakes += self.slurm.mistakes(files)
        elif self.slurm is None and current_job() is None:
            mistakes += [line for run in self.runs for line in mistakes_outside_slurm(run)]
        if mistakes:
            raise ConfigError(mistakes)

    def hide_outdated(self) -> None:
        """Let Snakemake plan as if the records that are to be made again were not there."""
        if not snakemake_inside.hide(self._outdated):
            logger.warning(f"these records are out of date; type: rm {' '.join(map(str, self._outdated))}")

    def remove_outdated(self) -> None:
        """Remove them; for a start that has planned its jobs."""
        for path in self._outdated:
            path.unlink(missing_ok=True)

    def has_nothing_to_do(self) -> bool:
        """Return True if Snakemake will find all targets there; it then says nothing of runs without segments left."""
        targets = (self.base / target for target in self.targets())
        return all(path.exists() and path not in self._outdated for path in targets)

    def report(self) -> None:
        """Log a line for each run that is not finished: how far, and what to type."""
        for run in self._on_disk().values():
            if line := standing(run):
                logger.info(line)


def _attempt(wildcards: Any, attempt: int) -> int:
    """Return the attempt, which counts from 1 within one call of snakemake."""
    return attempt
