"""All that unbroken uses of Snakemake's inside, as it is in 9.27; tests/unit/test_snakemake_inside.py fails first.

- `hide`: a dry run lists what a start would do, and changes nothing: Snakemake plans as if outdated records were gone.
- `leave_out`: a segment that a finished run has left over costs a millisecond, not a job.
- `look_once_for_scripts`: ten thousand jobs are planned in less time than by a bare rule (docs/benchmarks.md).
- The rest is what `executor: unbroken` asks of jobs, and what the interface of Snakemake's plugins does not say.

Without `hide`, the user removes those records; without the next two, a start is only slower.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

# What `leave_out` uses of Snakemake's DAG.  `finish(job)` is what the scheduler awaits for each job that ended well,
# one after the other, before it looks for jobs that are ready; it expects `register_running({job})` before.
OF_DAG = ("finish", "depending", "needrun", "ready_jobs", "register_running")
_OURS = "_is_of_unbroken"
# A resource as it was written: a path, or a quoted word in --default-resources; not a formula, nor `$SCRATCH`.
_PLAIN_TEXT = re.compile(r"""(/[\w./-]+)|(['"])([\w ./-]+)\2""")


def hide(records: Collection[Path]) -> bool:
    """Let Snakemake plan as if these records were not there; return False if this release does not allow that.

    What it asks before its first job starts it keeps in `iocache`, which is active until then; in a dry run to the end.
    """
    from snakemake.io import _IOFile  # loads all of Snakemake, which `unbroken status` need not wait for

    hidden = {os.path.abspath(path) for path in records}
    really = getattr(_IOFile, "exists_local", None)
    if not hidden or really is None:
        return not hidden

    async def exists_local(file: Any) -> bool:
        if file.rule.workflow.iocache.active and os.path.abspath(file.file) in hidden:
            return False
        return bool(await really(file))

    setattr(_IOFile, "exists_local", exists_local)  # noqa: B010  (mypy: a method is not assigned to)
    return True


def leave_out(workflow: Any, done_after: Callable[[Any], list[Any]]) -> None:
    """After each job that ended well, take those out of the plan whose work is done, as `done_after` says."""
    dag = workflow.dag
    # Where records are touched nothing works, and without a driver nothing works yet.
    is_at_work = not workflow.touch and not workflow.remote_execution_settings.immediate_submit
    if not is_at_work or not all(hasattr(dag, name) for name in OF_DAG):
        return
    finish = dag.finish

    async def finish_with_rest(job: Any, *words: Any, **more: Any) -> Any:
        found = await finish(job, *words, **more)
        for left in done_after(job):
            if left not in dag.ready_jobs:
                break  # it waits for something else too, and will find its work done
            dag.register_running({left})
            await finish(left, *words, **more)
            workflow.scheduler.finished_jobs += 1  # for the lines about progress
        return found

    dag.finish = finish_with_rest


def look_once_for_scripts() -> None:
    """Let Snakemake look once, not for each job, if a script is there."""
    if "snakemake.workflow" not in sys.modules:
        return
    from snakemake import dag

    processor = getattr(dag, "ScriptProcessor", None)
    if processor is None or hasattr(processor.process_job, _OURS):
        return
    look: Callable[[Any, Any], None] = processor.process_job

    def process_job(self: Any, job: Any) -> None:
        script = str(getattr(job.rule, self.script_type))
        seen = self.__dict__.setdefault("_seen_by_unbroken", set())
        if "{" in script or (job.rule.name, script) not in seen:  # one with wildcards is looked at as before
            look(self, job)
            seen.add((job.rule.name, script))

    setattr(process_job, _OURS, True)
    processor.process_job = process_job


def planned_jobs(workflow: Any) -> list[Any]:
    """Return the jobs that Snakemake is to run."""
    return list(workflow.dag.needrun_jobs())


def jobs_before(workflow: Any, job: Any) -> list[Any]:
    """Return the jobs whose outputs a job needs; none for a group."""
    return [] if job.is_group() else list(workflow.dag.dependencies.get(job, {}))


def jobs_behind(workflow: Any, job: Any) -> list[Any]:
    """Return the jobs to run that need the outputs of a job; none of a group."""
    return [each for each in workflow.dag.depending[job] if workflow.dag.needrun(each) and each.group is None]


def is_told_to_end(workflow: Any) -> bool:
    """Return True after a TERM to the driver; the scheduler notes it and passes it to no executor."""
    return getattr(workflow.scheduler, "_user_kill", None) is not None


def retries_of(job: Any) -> int:
    """Return how many further attempts Snakemake makes after a failure: while `attempt` is at most that."""
    return int(job.restart_times)


def give_up(job: Any) -> None:
    """Let Snakemake make no further attempt."""
    job.attempt = max(job.attempt, retries_of(job) + 1)


def local_script(job: Any) -> Path | None:
    """Return the script of a job's rule, if it is a file here."""
    script = job.rule.script
    uri = job.rule.basedir.join(script).get_path_or_uri(secret_free=True) if isinstance(script, str) else ""
    return Path(str(uri)) if Path(str(uri)).is_file() else None


def asks_more_of_snakemake(job: Any) -> bool:
    """Return True for a job of a `script:` that needs more of Snakemake than that it starts it with this Python."""
    from snakemake_interface_executor_plugins.settings import SharedFSUsage

    rule, storage = job.rule, job.rule.workflow.storage_settings
    of_rule = (rule.shadow_depth, rule.is_handover, rule.is_checkpoint, storage.default_storage_provider)
    of_job = (job.group, job.benchmark)
    of_machine = (job.conda_env_spec, job.container_img_url, job.env_modules, job.resources.get("shell_exec"))
    is_elsewhere = any(path.is_storage for path in (*job.input, *job.output, *job.log))
    return any((*of_rule, *of_job, *of_machine, is_elsewhere)) or storage.shared_fs_usage != frozenset(SharedFSUsage)


def plain_tmpdir(job: Any) -> str | None:
    """Return a job's resource `tmpdir`; '' for the node's own, None if only Snakemake could say."""
    given = job.rule.resources.get("tmpdir")
    raw = "system_tmpdir" if given is None else str(given.raw)
    found = _PLAIN_TEXT.fullmatch(raw)
    return "" if raw == "system_tmpdir" else found and (found[1] or found[3])
