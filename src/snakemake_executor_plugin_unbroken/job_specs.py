"""What the jobs of a segment's rule need to know (`spec.json`), and whether they may be one array."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_unbroken.segments import Segment
from snakemake_executor_plugin_unbroken.snakemake_jobs import (
    asks_more_of_snakemake,
    limited_resources,
    local_script,
    plain_benchmark,
    plain_tmpdir,
    retries_of,
)
from unbroken.errors import FormatError
from unbroken.job.spec import RuleJob
from unbroken.runs.history import History
from unbroken.segment.job import Assignment
from unbroken.system.clock import unix_seconds

# What our rules have, and what the job's script is given.
_INPUTS, _PARAMS, _OUTPUTS = {"previous", "content"}, {"assignment"}, {"record"}


@dataclass(frozen=True)
class NotAsItCame(Exception):
    """A job that only Snakemake can run, and why."""

    why: str


def rule_job_of(job: Any, segment: Segment, latency_seconds: float) -> RuleJob:
    """Return how a job runs the rule's script without a Snakemake of its own.

    NotAsItCame where the rule or its script is not one of ours as it came: such a job plans the workflow again, as
    every job of Snakemake's does.
    """
    script = local_script(job)
    if script is None or not _only_hands_on(script):
        raise NotAsItCame("its rule has another script than unbroken's")
    if asks_more_of_snakemake(job):
        raise NotAsItCame("its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)")
    if not _is_as_it_came(job, segment):
        raise NotAsItCame("the input, output, params or log of its rule were changed")
    tmpdir, benchmark = plain_tmpdir(job), plain_benchmark(job)
    if tmpdir is None:
        raise NotAsItCame("only Snakemake can say its resource tmpdir")
    if benchmark is None:
        raise NotAsItCame("its benchmark: is repeated or extended")
    resources = {name: value for name, value in job.resources.items() if isinstance(value, int | float | str)}
    resources.pop("tmpdir", None)
    if tmpdir:
        resources["tmpdir"] = tmpdir
    return RuleJob(job.rule.name, str(script), (), int(job.threads), resources, latency_seconds, benchmark)


def why_no_array(job: Any, jobs: Sequence[Any], words_of: Callable[[Any], list[str]]) -> str:
    """Return why the segments of a run are single jobs, submitted when Snakemake asks for each; empty for an array.

    An array runs ahead of Snakemake, so its tasks must all ask for the same.  `jobs` are all jobs of the run.
    """
    limited = limited_resources(job)
    if limited:
        return f"--resources limits {', '.join(limited)}"
    words = words_of(job)
    if any(words_of(other) != words for other in (jobs[0], jobs[-1])):
        return "its resources depend on the segment"
    with _at_attempt(job, job.attempt + 1):
        return "" if words_of(job) == words else "its resources depend on the attempt"


def memory_by_attempt(job: Any) -> tuple[int, ...]:
    """Return the mem_mb of a job at each attempt that Snakemake would make; nothing where a job asks for none."""
    found = list[int]()
    for attempt in range(1, retries_of(job) + 2):
        with _at_attempt(job, attempt):
            mem_mb = job.resources.get("mem_mb")
        if not isinstance(mem_mb, int):
            return ()
        found.append(mem_mb)
    return tuple(found)


class _at_attempt:
    """Inside the `with` block a job of Snakemake is at another attempt."""

    def __init__(self, job: Any, attempt: int) -> None:
        self._job, self._attempt = job, attempt

    def __enter__(self) -> None:
        self._before, self._job.attempt = self._job.attempt, self._attempt

    def __exit__(self, *_: object) -> None:
        self._job.attempt = self._before


def began_unix(segment: Segment) -> float | None:
    """Return when the work on a segment began that settled it; None if its history does not say."""
    with suppress(OSError, FormatError):
        for attempt in reversed(History(segment.places.history).attempts()):
            if attempt.segment == segment.number and not attempt.kind.is_before_work:
                return attempt.times.job_started or unix_seconds(attempt.started_utc)
    return None


def _is_as_it_came(job: Any, segment: Segment) -> bool:
    names = set(job.input.keys()), set(job.params.keys()), set(job.output.keys())
    has_ours = names[0] <= _INPUTS and names[1] == _PARAMS and names[2] == _OUTPUTS
    has_counts = len(job.params) == len(job.output) == len(job.log) == 1
    is_ours = has_ours and has_counts and isinstance(job.params.get("assignment"), Assignment)
    return is_ours and str(job.log[0]) == str(segment.places.log(segment.number))


def _only_hands_on(script: Path) -> bool:
    """Return True if a script only calls `main` of `unbroken.segment.job` with what Snakemake gives it."""
    try:
        tree = ast.parse(script.read_text())
    except (OSError, ValueError, SyntaxError):
        return False
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id == "snakemake"]
    handed = [argument for argument in _handed(nodes) if argument in names]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    is_ours = any(isinstance(node, ast.ImportFrom) and node.module == "unbroken.segment.job" for node in imports)
    return is_ours and len(names) == len(handed) == 1 and not any(map(_is_of_snakemake, imports))


def _handed(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield the first argument of each call of `main`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "main":
            yield from node.args[:1]


def _is_of_snakemake(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] == "snakemake" for name in modules)
