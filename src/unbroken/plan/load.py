"""Load the plan of the config for the Snakefile, or print one clear line and end the process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from unbroken import snakemake_inside
from unbroken.config import yaml_file
from unbroken.config.site import read_site, with_site_of_the_profile
from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.errors import AbsentFileError, ConfigError, UnbrokenError
from unbroken.job.attempt import report_refused
from unbroken.plan import elsewhere
from unbroken.plan.driver_lines import show
from unbroken.plan.plan import Plan
from unbroken.plan.slurm_jobs import missing_site
from unbroken.store import driver_start
from unbroken.system import fs, log

# Python's own (700, 10, 10) looks through all jobs again and again, although none of them is ever garbage.
COLLECT_EVERY = (50_000, 20, 20)
_driven: list[Plan] = []


def driven_plans() -> list[Plan]:
    """Return the plans that this process drives; a workflow may import unbroken more than once."""
    return list(_driven)


def load_plan(
    config: Mapping[str, object],
    *,
    is_driver: bool,
    files: Sequence[str] = (),
    brought: Mapping[str, object] | None = None,
    typed_directory: str | Path | None = None,
) -> Plan:
    """Return the plan of a config, everything checked; a user's mistakes end the process, one line each.

    `files` are those that the config was read from, `brought` is what the profile and the command line add to it, and
    `typed_directory` is Snakemake's `--directory`.  Only the driver checks identities, asks Slurm and makes records
    again; its jobs read the same Snakefile and need none of it.
    """
    snakemake_inside.look_once_for_scripts()
    gc.freeze()  # nothing that is loaded already becomes garbage
    gc.set_threshold(*COLLECT_EVERY)
    if is_driver:
        driver_start.begin()
        elsewhere.note_typed(typed_directory)
    os.environ.setdefault("PATH", os.defpath)  # Snakemake's scheduler fails in an empty environment
    try:
        with fs.os_errors(Path()), log.lines_to(show):
            if lines := [line for file in files for line in yaml_file.mistakes(Path(file))]:
                raise ConfigError(lines)
            config = with_site_of_the_profile(config, brought or {})
            runs, site = read_checked_runs(config, Path()), read_site(config, known_schemas())
            plan = Plan(runs, Path(), site, is_driver=is_driver)
            if is_driver:
                _check(plan, files)
            plan.targets()  # reads what the Snakefile is then given
    except UnbrokenError as error:
        report_refused(error)
        _leave(str(error).splitlines())
    return plan


def _check(plan: Plan, files: Sequence[str]) -> None:
    """Check a plan in its driver, and log what Snakemake does not: the state of runs that have nothing to do."""
    _driven.append(plan)
    plan.check(files)
    plan.hide_outdated()
    if plan.has_nothing_to_do():
        plan.report()


def refuse_unreadable(file: str) -> None:
    """End the process with one line where Snakemake would read a config for minutes, or print a traceback."""
    if lines := yaml_file.unreadable(Path(file)):
        report_refused(AbsentFileError(lines))  # the user may just be editing it
        _leave(lines)


def refuse_missing_site(plan: Plan, executor: str) -> None:
    """End the process with one line where jobs would go to Slurm without its settings."""
    if plan.slurm is None and (line := missing_site(executor)):
        _leave([line])


def _leave(lines: Iterable[str]) -> NoReturn:
    """End the process: below any error that is raised in a Snakefile, Snakemake 9 prints a traceback."""
    for line in lines:
        sys.stderr.write(f"unbroken: {elsewhere.from_where_it_was_typed(line)}\n")
    sys.exit(1)
