"""Which segments' jobs need no Snakemake of their own, and the tickets by which they work."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_unbroken.parent import (
    asks_more_of_snakemake,
    local_script,
    plain_benchmark,
    plain_tmpdir,
)
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import FormatError
from unbroken.runs.history import History
from unbroken.segment.job import Assignment
from unbroken.segment.ticket import Ticket
from unbroken.system.clock import unix_seconds

MODULE = "unbroken.segment.from_ticket"
# What our rules have, and what the job's script is given.
_INPUTS, _PARAMS, _OUTPUTS = {"previous", "content"}, {"assignment"}, {"record"}


def ticket_of(job: Any, segment: Segment, latency_seconds: float) -> Ticket | None:
    """What the job needs to know; None where its rule or script is not one of ours as it came.

    Such a job plans the workflow anew, as every job of Snakemake's does.
    """
    script = local_script(job)
    if script is None or asks_more_of_snakemake(job) or not _is_as_it_came(job, segment):
        return None
    tmpdir, benchmark, assignment = plain_tmpdir(job), plain_benchmark(job), job.params.get("assignment")
    if tmpdir is None or benchmark is None or not isinstance(assignment, Assignment) or not _only_hands_on(script):
        return None
    resources = {name: value for name, value in job.resources.items() if isinstance(value, int | float | str)}
    resources.pop("tmpdir", None)
    if tmpdir:
        resources["tmpdir"] = tmpdir
    return Ticket(assignment, str(script), job.rule.name, int(job.threads), resources, latency_seconds, benchmark)


def began_unix(segment: Segment, job_id: str | None) -> float | None:
    """When the job of a segment began its work; None if its history does not say."""
    with suppress(OSError, FormatError):
        for attempt in reversed(History(segment.places.history).attempts()):
            if job_id and attempt.slurm_job == job_id and not attempt.before_work:
                return attempt.times.job_started or unix_seconds(attempt.started_utc)
    return None


def _is_as_it_came(job: Any, segment: Segment) -> bool:
    names = set(job.input.keys()), set(job.params.keys()), set(job.output.keys())
    has_ours = names[0] <= _INPUTS and names[1] == _PARAMS and names[2] == _OUTPUTS
    has_counts = len(job.params) == len(job.output) == len(job.log) == 1
    return has_ours and has_counts and str(job.log[0]) == str(segment.places.log(segment.number))


def _only_hands_on(script: Path) -> bool:
    """True if a script does no more with what Snakemake gives it than to call `main` of `unbroken.segment.job`."""
    try:
        tree = ast.parse(script.read_text())
    except (OSError, ValueError, SyntaxError):
        return False
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "snakemake"]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "main"
    ]
    handed = [argument for call in calls for argument in call.args[:1] if argument in names]
    is_ours = any(isinstance(node, ast.ImportFrom) and node.module == "unbroken.segment.job" for node in imports)
    return is_ours and len(names) == len(handed) == 1 and not any(map(_is_of_snakemake, imports))


def _is_of_snakemake(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] == "snakemake" for name in modules)
