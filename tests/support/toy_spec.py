"""The spec.json of a run of the toy, as a start of snakemake writes it."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

from support.toyrun import KEYS, ROOT, toy_run

from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions, path_of
from unbroken.store.run import RunSpec

SCRIPT = str(ROOT / "scripts" / "segment.py")


def toy_spec(run: RunSpec | None = None, **changes: Any) -> JobSpec:
    """Return a spec; changes may name fields of it, of its rule's job, of its submission, keys of the run or the toy.

    All segments of the run are wanted, files are seen at once, and each segment may be tried twice more.
    """
    of_job = _taken(changes, RuleJob, {"name": "toy_segment", "script": SCRIPT, "resources": {"runtime": 1}})
    submission = _taken(changes, SubmitOptions, {})
    own = _taken(changes, JobSpec, {"keys": KEYS, "retries": 2, "start": ""})
    run = run or toy_run(**changes)
    more = {"key": run.name, "last_segment": run.segments, **own}
    return JobSpec(run=run, rule_job=RuleJob(**of_job), submission=SubmitOptions(**submission), **more)


def segment_command(segment: int, attempt: int = 1, run: str = "demo") -> list[str]:
    """Return a command that does a segment of a run as its job does, without the job."""
    code = "import sys, pathlib; from unbroken.job.segment_script import do_segment; "
    work = f"sys.exit(do_segment(pathlib.Path({str(path_of(run))!r}), {segment}, {attempt}))"
    return [sys.executable, "-c", code + work]


def _taken(changes: dict[str, Any], kind: type, usual: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a kind out of the changes."""
    names = {found.name for found in fields(kind)}
    return {**usual, **{name: changes.pop(name) for name in list(changes) if name in names}}
