"""The static plan: which segments of which runs are still to do, and what each rule needs to know of a run.

Built anew at every start of snakemake from the config and the records; nothing in it depends on what happens while
it runs, so a chain of thousands of segments stays cheap (a dynamic one grows with the square of the runs).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from unbroken.accounting.forecast import forecast
from unbroken.accounting.forecast_words import budget_words, least_segments
from unbroken.config import yaml_file
from unbroken.config.site import Site, read_site, with_site_of_the_profile
from unbroken.config.tasks import mistakes_outside_slurm
from unbroken.copies import start
from unbroken.engines.found import found_engines, known_schemas, read_checked_runs
from unbroken.errors import AbsentFileError, ConfigError, ForeignFolderError, FormatError, UnbrokenError
from unbroken.plan import snakemake_inside
from unbroken.plan.outdated import Outdated, has_finished, last_record
from unbroken.plan.slurm_jobs import SlurmPlan, missing_site
from unbroken.plan.snakemake_speed import spare_the_collector, telling_pattern
from unbroken.program import environment
from unbroken.runs import driver_screen, driver_start, elsewhere, job_note
from unbroken.runs.attempts import all_attempts
from unbroken.runs.environment import changes
from unbroken.runs.environment import refusal as environment_refusal
from unbroken.runs.history import Attempt
from unbroken.runs.identity import content_files, identity_of, usable_identities
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.progress import amount
from unbroken.runs.record import Record
from unbroken.runs.results import SUMMARY
from unbroken.runs.run import Run
from unbroken.runs.select import refusal
from unbroken.runs.store import Store
from unbroken.segment import ticket
from unbroken.segment.job import Assignment
from unbroken.slurm.this_job import current_job
from unbroken.system import fs

# With a console, the driver's own lines come in their order among Snakemake's.
_SNAKEMAKES_LOGGER = "snakemake.logging"
# File servers' clocks differ by a little, and no segment is over so soon.
FUTURE_SECONDS = 2.0


_driven: list[Plan] = []


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
            raise ConfigError([f"no run is named {unknown[0]!r}; allowed: {', '.join(self._assignments)}"])
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
        if lines := [line for run in self.runs if (line := self._newer(run))]:
            raise FormatError("\n".join(lines))

    def check(self, files: Sequence[str] = ()) -> None:
        """ConfigError naming each file from the future, each run that is not what its checkpoints belong to, and what
        this machine or cluster cannot do."""
        mistakes = [line for assignment in self._assignments.values() for line in self._future_files(assignment)]
        mistakes += [line for assignment in self._assignments.values() for line in self._refusals(assignment)]
        unfinished = (run for run in self.runs if not has_finished(RunFolder(run.name, self.base), run))
        mistakes += start.mistakes(unfinished, self.base, tell)
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
        """One line for each run that is not finished: how far, and what to type."""
        return [line for run in self.runs if (line := self._report(run))]

    def _targets(self, run: Run) -> Iterator[str]:
        places = RunFolder(run.name)
        if run.name in self._finished:
            yield str(places.final / SUMMARY)
            return
        yield from (str(places.record(segment)) for segment in range(1, run.segments + 1))

    def _newer(self, run: Run) -> str:
        places = RunFolder(run.name, self.base)
        try:
            if not has_finished(places, run):
                refuse_newer(places)
            ticket.refuse_newer(run.name, self.base)
        except FormatError as error:
            return f"runs.{run.name}: {error}"
        return ""

    def _future_files(self, assignment: Assignment) -> Iterator[str]:
        """Snakemake calls a job failed whose input is newer than its output, also for `ancient` inputs."""
        for key, name in content_files(assignment.run, assignment.keys):
            ahead = (self.base / name).stat().st_mtime - time.time()
            if ahead > FUTURE_SECONDS:
                found = f"{name} was changed {ahead:.0f} s in the future, says its time stamp"
                yield f"runs.{assignment.run.name}.settings.{key}: {found}; type: touch {name}"

    def _refusals(self, assignment: Assignment) -> Iterator[str]:
        run = assignment.run
        places = RunFolder(run.name, self.base)
        if not has_finished(places, run):
            try:
                confirm_all_own(places.own)
            except ForeignFolderError as error:
                yield f"runs.{run.name}: {error}"
                return
        store = Store(places.checkpoints)
        checkpoints = store.readable()[-1:] if store.names() else []
        if not checkpoints:
            return
        identity = identity_of(run, assignment.keys, self.base)
        accepted = usable_identities(identity, places.accepted, checkpoints)
        if checkpoints[0].passport.identity not in accepted:
            yield refusal(run.name, checkpoints[0], identity)
        elif run.is_strict and not has_finished(places, run):
            now = environment.on_disk(run, self.base)
            if found := changes(checkpoints[0].passport, now, environment.unread(run, now) | environment.NOT_ON_DISK):
                yield environment_refusal(run.name, found)

    def _report(self, run: Run) -> str:
        places = RunFolder(run.name, self.base)
        last, attempts = last_record(places), all_attempts(places)
        if has_finished(places, run):
            return ""
        if attempts and not attempts[-1].outcome.settles:
            return f"{run.name}: {_stopped(attempts[-1], run)}"
        if last is None:
            return f"{run.name}: not started{_log_of(places, 1)}"
        progress = last.progress
        done = _how_far(progress.done, run.goal or progress.goal, progress.unit)
        if last.segment >= run.segments:
            more = run.segments + needed_segments(last, run)
            return f"{run.name}: {done}, all {run.segments} segments used; set segments: {more} and start again"
        log = _log_of(places, last.segment + 1)
        budget = _budget(attempts, last, run)
        return f"{run.name}: {done} after segment {last.segment} of {run.segments}{log}; start again to go on{budget}"


def driven_plans() -> list[Plan]:
    """The plans that this process drives; a workflow may import unbroken more than once."""
    return list(_driven)


def load_plan(
    config: Mapping[str, object],
    is_driver: bool,
    files: Sequence[str] = (),
    brought: Mapping[str, object] | None = None,
    typed_directory: str | Path | None = None,
) -> Plan:
    """The plan of a config, everything checked; a user's mistakes are printed, one line each, and end the process.

    `files` are those that the config was read from, `brought` is what the profile and the command line add to it, and
    `typed_directory` is Snakemake's `--directory`.  Only the driver checks identities, asks Slurm and makes records
    anew; its jobs read the same Snakefile and need none of it.
    """
    spare_the_collector()
    if is_driver:
        snakemake_inside.quicken()
        driver_start.begin()
        elsewhere.note_typed(typed_directory)
    os.environ.setdefault("PATH", os.defpath)  # Snakemake's scheduler fails in an empty environment
    try:
        with fs.os_errors(Path()):
            if lines := [line for file in files for line in yaml_file.mistakes(Path(file))]:
                raise ConfigError(lines)
            config = with_site_of_the_profile(config, brought or {})
            plan = Plan(read_checked_runs(config, Path()), Path(), read_site(config, known_schemas()), is_driver)
            if is_driver:
                plan.refuse_newer()
            plan.targets()  # reads what the Snakefile is then given
            if is_driver:
                _driven.append(plan)
                plan.check(files)
                plan.hide_outdated()
                if plan.has_nothing_to_do():
                    tell(plan.report())
    except UnbrokenError as error:
        job_note.tell_refused(error)
        _leave(str(error).splitlines())
    return plan


def refuse_unreadable(file: str) -> None:
    """Ends the process with one line where Snakemake would read a config for minutes, or print a traceback."""
    if lines := yaml_file.unreadable(Path(file)):
        job_note.tell_refused(AbsentFileError(lines))  # somebody may just be editing it
        _leave(lines)


def refuse_missing_site(plan: Plan, executor: str) -> None:
    """Ends the process with one line where jobs would go to Slurm without its settings."""
    if plan.slurm is None and (line := missing_site(executor)):
        _leave([line])


def _leave(lines: Iterable[str]) -> NoReturn:
    """Ends the process: below any error that is raised in a Snakefile, Snakemake 9 prints a traceback."""
    tell(lines)
    sys.exit(1)


def tell(lines: Iterable[str]) -> None:
    """Lines of the driver's own, on its screen."""
    for line in map(elsewhere.from_where_it_was_typed, lines):
        if driver_screen.is_taken_over():
            logging.getLogger(_SNAKEMAKES_LOGGER).info("unbroken: %s", line)
        else:
            # In one piece: Snakemake's threads print too.
            sys.stderr.write(f"unbroken: {line}\n")


def needed_segments(last: Record, run: Run) -> int:
    """How many more segments a run needs at the pace it had, at least one."""
    goal = run.goal or last.progress.goal
    if goal is None or last.progress.done <= 0:
        return 1
    per_segment = last.progress.done / last.segment
    return max(1, -int(-(goal - last.progress.done) // per_segment))


def _budget(attempts: Sequence[Attempt], last: Record, run: Run) -> str:
    """That the segments of the config are likely not to do."""
    goal = run.goal or last.progress.goal
    if goal is None:
        return ""
    made = forecast(attempts, last.progress.done, goal, time.time(), run.segment_minutes * 60)
    least = least_segments(attempts, last.progress.done, goal)
    words = budget_words(made, last.segment, run.segments, least)
    return f"; {words}" if words else ""


# What to do after an attempt that settled nothing, where its own message does not say it.
_NEXT = {Outcome.FAILED: "; fix the cause, then start again", Outcome.DIED: "; start again to go on"}


def _stopped(attempt: Attempt, run: Run) -> str:
    """How far a run is whose last attempt settled nothing, why, and what to do."""
    if attempt.outcome is Outcome.INTERRUPTED:
        return attempt.message  # says both, and there is nothing to read
    done = _how_far(attempt.progress_to, run.goal, attempt.unit)
    log = RunFolder(run.name).log(attempt.segment)
    where = "" if str(log.parent) in attempt.message else f"; log: {log}"
    todo = _NEXT.get(attempt.outcome, "")
    return f"{done}, stopped in segment {attempt.segment} of {run.segments}: {attempt.message}{where}{todo}"


def _how_far(done: float, goal: float | None, unit: str) -> str:
    of_goal = f" of {goal:.10g}" if goal is not None else ""
    return f"{amount(done)}{of_goal} {unit}".rstrip()


def _log_of(places: RunFolder, segment: int) -> str:
    """Where to read on, if the segment has been tried."""
    log = places.log(segment)
    return f"; log: {RunFolder(places.name).log(segment)}" if log.exists() else ""
