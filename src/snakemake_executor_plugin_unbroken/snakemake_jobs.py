"""What of Snakemake's jobs and rules decides how a segment's job is run; each function says what it relies on."""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake.io import strip_wildcard_constraints
from snakemake_interface_executor_plugins.settings import SharedFSUsage


def retries_of(job: Any) -> int:
    """Return how many further attempts Snakemake makes after a failure."""
    return int(job.restart_times)


def give_up(job: Any) -> None:
    """Let Snakemake make no further attempt: it tries again while `attempt` is at most `restart_times`."""
    job.attempt = max(job.attempt, job.restart_times + 1)


def local_script(job: Any) -> Path | None:
    """Return the script of a job's rule, if it is a file here."""
    if job.is_group() or not isinstance(job.rule.script, str):
        return None
    path = Path(str(job.rule.basedir.join(job.rule.script).get_path_or_uri(secret_free=True)))
    return path if path.is_absolute() and path.is_file() else None


def asks_more_of_snakemake(job: Any) -> bool:
    """Return True for a job that needs more of Snakemake than that it starts a script with this Python.

    Relies on what its `Job`, `Rule` and `Workflow` call these things.
    """
    rule, workflow = job.rule, job.rule.workflow
    of_rule = (rule.shadow_depth, job.group, rule.template_engine, rule.notebook, rule.cwl)
    of_machine = (job.conda_env_spec, job.container_img_url, job.env_modules, job.resources.get("shell_exec"))
    of_start = (workflow.storage_settings.default_storage_provider, rule.is_handover, rule.is_checkpoint)
    files = [*job.input, *job.output, *job.log]
    is_everywhere = workflow.storage_settings.shared_fs_usage == frozenset(SharedFSUsage)
    return any((*of_rule, *of_machine, *of_start, not is_everywhere)) or any(path.is_storage for path in files)


def plain_tmpdir(job: Any) -> str | None:
    """Return a job's resource `tmpdir`; '' for the node's own, None if only Snakemake could say."""
    if (job.rule.workflow.resource_settings.overwrite_resources or {}).get(job.rule.name, {}).get("tmpdir"):
        return None
    given = job.rule.resources.get("tmpdir")
    raw = "system_tmpdir" if given is None else str(given.raw)
    if raw == "system_tmpdir":
        return ""
    try:
        value = ast.literal_eval(raw)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def plain_benchmark(job: Any) -> str | None:
    """Return the pattern of a job's `benchmark:`; '' for none, None if only Snakemake could write it."""
    pattern, job_benchmark = job.rule.benchmark, job.benchmark
    if job_benchmark is None:
        return ""
    is_plain = isinstance(pattern, str) and not job_benchmark.is_storage and job.benchmark_repeats in (None, 1)
    if not is_plain or job.rule.workflow.output_settings.benchmark_extended:
        return None
    return str(strip_wildcard_constraints(str(pattern)))


def limited_resources(job: Any) -> list[str]:
    """Return the resources of a job that this start limits for all jobs together (--resources)."""
    limits = job.rule.workflow.resource_settings.resources
    return sorted(name for name in limits if not name.startswith("_") and name in job.resources.keys())  # noqa: SIM118  (no dict)


def leave_to_next_start(workflow: Any, job: Any) -> None:
    """End a job without a further attempt and without the red lines of `report_job_error`."""
    give_up(job)
    workflow.scheduler.error_callback(job)


def note_began(job: Any, began_unix: float) -> None:
    """Note when a job's work began: else its wait in the queue counts as run time in Snakemake's report.

    Relies on the file by which Snakemake marks an output under way, and whose time it then takes for that; the job has
    removed it by now.
    """
    persistence = job.rule.workflow.persistence
    with suppress(OSError, AttributeError):
        for path in job.output:
            persistence._mark_incomplete(str(path), None)
            os.utime(persistence._record_path(persistence._incomplete_path, str(path)), (began_unix, began_unix))
