"""The static plan: which segments of which runs are still to do, and what each rule needs to know of a run.

Built anew at every start of snakemake from the config and the records; nothing in it depends on what happens while
it runs, so a chain of thousands of segments stays cheap (a dynamic one grows with the square of the runs).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from unbroken.config.found import unknown_run
from unbroken.config.site import Site
from unbroken.config.tasks import mistakes_outside_slurm
from unbroken.copies import replica
from unbroken.engines.found import found_engines, known_schemas
from unbroken.errors import ConfigError, FormatError
from unbroken.plan.outdated import Outdated, has_finished
from unbroken.plan.refusals import future_files, newer, not_its_own
from unbroken.plan.slurm_jobs import SlurmPlan
from unbroken.plan.snakemake_speed import telling_pattern
from unbroken.plan.standing import standing
from unbroken.plan.tell import disks_of, tell
from unbroken.runs.identity import content_files
from unbroken.runs.layout import RunFolder
from unbroken.runs.results import SUMMARY
from unbroken.runs.run import Run
from unbroken.segment.job import Assignment
from unbroken.slurm.this_job import current_job
from unbroken.system import fs


class Plan:
    """All runs of a config; what the rule files ask.  `slurm` is None where no site says that Slurm is meant."""

    def __init__(
        self, runs: tuple[Run, ...], base: Path = Path(), site: Site | None = None, is_driver: bool = False
    ) -> None:
        self.base, self._is_driver = base, is_driver
        self.slurm = SlurmPlan(runs, site, base, is_driver, lambda line: tell([line])) if site else None
        runs = self.slurm.runs if self.slurm else runs
        self._assignments = {run.name: Assignment(run, known_schemas().engines[run.engine].identity) for run in runs}

    @cached_property
    def _finished(self) -> set[str]:
        """The runs that have reached their goals at the start; the plan is made once."""
        return {run.name for run in self.runs if has_finished(RunFolder(run.name, self.base), run)}

    @cached_property
    def _outdated(self) -> Outdated:
        return Outdated(self.runs, self.base)

    @property
    def runs(self) -> list[Run]:
        return [assignment.run for assignment in self._assignments.values()]

    def assignment(self, run: str) -> Assignment:
        """What every segment of a run is given."""
        return self._assignments[run]

    def run(self, name: str) -> Run:
        """The run of that name."""
        return self._assignments[name].run

    def pattern(self, engine: str) -> str:
        """A regular expression for the runs of an engine, as a wildcard constraint."""
        return self._pattern({engine})

    def outside_pattern(self) -> str:
        """The same for the runs of all engines that other packages bring: they share one rule."""
        return self._pattern({name for name, engine in found_engines().items() if not engine.is_ours})

    def _pattern(self, engines: Collection[str]) -> str:
        names = [run.name for run in self.runs if run.engine in engines]
        return telling_pattern(names, [run.name for run in self.runs if run.engine not in engines])

    def previous(self, run: str, segment: str) -> list[str]:
        """The record that a segment goes on from; none for the first.

        The driver orders segments by it.  A segment's job is not asked for it: without a driver, the job before may
        have been killed, and its record is missing; the job goes on from what is in the store.
        """
        before = int(segment) - 1 if self._is_driver else 0
        return [str(RunFolder(run).record(before))] if before else []

    def inputs(self, run: str, segment: str) -> list[str]:
        """The files that a run is made of (identity: content in its engine's schema), for its first segment.

        Each later segment has them through the one before, and `check` looks at them at every start; as inputs of
        every job they would only cost time (docs/benchmarks.md).
        """
        if int(segment) > 1:
            return []
        assignment = self._assignments[run]
        return [name for _, name in content_files(assignment.run, assignment.keys)]

    def targets(self, *names: str) -> list[str]:
        """All records of each run, in order; of a run that has reached its goal only its results, which are there.

        Of all runs if none is named.  In order, because Snakemake builds a chain recursively and only the first of
        its targets can be far from done.
        """
        if unknown := [name for name in names if name not in self._assignments]:
            raise ConfigError([unknown_run(unknown[0], self._assignments)])
        return [path for name in names or self._assignments for path in self._targets(self.run(name))]

    def mem_mb(self, run: str, segment: str) -> int:
        """The memory of a segment's next attempt."""
        return self.slurm.mem_mb(run, segment) if self.slurm else self.run(run).mem_mb

    def shared(self, ask: Callable[[Any], int]) -> Callable[[Any], int] | int:
        """What a rule asks of each run: the answer where all runs have the same, else the function.

        Snakemake asks a function anew for each of the jobs, of which there may be a hundred thousand.
        """
        answers = {ask(SimpleNamespace(run=run, segment="1")) for run in self._assignments}
        return answers.pop() if len(answers) == 1 else ask

    def slurm_resources(self) -> dict[str, Any]:
        """What the rules ask of Slurm beyond time, memory and GPUs; nothing where Slurm is not meant."""
        return self.slurm.rule_resources() if self.slurm else {}

    def refuse_newer(self) -> None:
        """FormatError with a line for each run of which a newer unbroken wrote a file; of a finished one only its end
        is asked, since nothing of it will be touched."""
        if lines := [line for run in self.runs if (line := newer(run, self.base))]:
            raise FormatError("\n".join(lines))

    def check(self, files: Sequence[str] = ()) -> None:
        """ConfigError naming each file from the future, each run that is not what its checkpoints belong to, and what
        this machine or cluster cannot do."""
        mistakes = [line for assignment in self._assignments.values() for line in future_files(assignment, self.base)]
        mistakes += [line for assignment in self._assignments.values() for line in not_its_own(assignment, self.base)]
        unfinished = (run for run in self.runs if not has_finished(RunFolder(run.name, self.base), run))
        mistakes += replica.mistakes(unfinished, self.base)
        if self.slurm and not self.has_nothing_to_do():
            mistakes += self.slurm.mistakes(files)
        elif self.slurm is None and current_job() is None:
            mistakes += [line for run in self.runs for line in mistakes_outside_slurm(run)]
        if mistakes:
            raise ConfigError(mistakes)

    def hide_outdated(self) -> None:
        """Lets Snakemake plan as if the records that are to be made anew were not there."""
        self._outdated.hide()

    def remove_outdated(self) -> None:
        """Removes them; for a start that has planned its jobs."""
        self._outdated.remove()

    def has_nothing_to_do(self) -> bool:
        """True if Snakemake will find all targets there, and then say nothing of runs that have used their segments."""
        targets = (self.base / target for target in self.targets())
        return all(path.exists() and path not in self._outdated.paths for path in targets)

    def report(self) -> list[str]:
        """Return a line for each run that is not finished: how far, and what to type; then one on a full disk."""
        lines = [line for run in self.runs if (line := standing(run, self.base))]
        full = fs.full_disk(disks_of(self.base)) if lines else ""
        return [*lines, full] if full else lines

    def _targets(self, run: Run) -> Iterator[str]:
        places = RunFolder(run.name)
        if run.name in self._finished:
            yield str(places.final / SUMMARY)
            return
        yield from (str(places.record(segment)) for segment in range(1, run.segments + 1))
