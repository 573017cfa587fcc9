"""What the jobs of a chain are submitted with: the words for sbatch, and what they run."""

from __future__ import annotations

import shlex
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_unbroken.segments import Interruptible, Segment
from snakemake_executor_plugin_unbroken.slurm_plugin import BatchStepExecutor, command, sbatch_words
from unbroken.runs.run import Run
from unbroken.slurm import time_min

_SNAKEMAKE = f"{sys.executable} -m snakemake"
# More inputs make too long a command line; the job then waits for none.
MOST_INPUTS = 20
# The second alarm, as in a profile's site.yaml; not in the first half of a job, whose work would end by it.
WARN_SECONDS = 90
EARLY_SECONDS = 60


class ChainWords:
    """The words of an executor's chains."""

    def __init__(self, executor: BatchStepExecutor) -> None:
        self._executor = executor

    def of_sbatch(self, job: Any, segment: Segment) -> list[str]:
        """Return the words for sbatch of a segment's job: the same for all of a run whose segments ask for the same."""
        is_rule = isinstance(segment, Interruptible)
        own = early_signal(job.resources.get("runtime")) if is_rule else []
        more = time_min.words(segment.run.least_minutes) if self.takes_less_time(segment.run) else []
        name = f"--job-name={segment.rule if is_rule else segment.run.name}-segments"
        return [name, *own, *sbatch_words(self._executor, job), *more]

    def batch(self, job: Any, segment: Segment, spec_path: Path) -> tuple[str, tuple[str, ...]]:
        """Return what a job of the chain runs, and the command by which Snakemake would run the rule's job in it."""
        is_rule = isinstance(segment, Interruptible)
        # Such a job may wait in the queue for longer than its driver lives; of a segment's job only the job itself
        # knows which record is before it.
        inputs = [str(path) for path in job.get_wait_for_files()] if is_rule else []
        waits_for = inputs if len(inputs) <= MOST_INPUTS else []
        text = command(self._executor, job, waits_for=waits_for, keeps_incomplete=not is_rule)
        before, found, after = text.partition(_SNAKEMAKE)
        if not found:
            raise WorkflowError(f"the command of a job lacks {_SNAKEMAKE!r}: another Snakemake than 9.27")
        if is_rule:  # where `unbroken` is this one; PATH is read by whichever shell runs the job
            before = f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; {before}'
        own = shlex.join(["-m", "unbroken.job", str(spec_path)])
        return f"{before}{sys.executable} {own}", (sys.executable, "-m", "snakemake", *shlex.split(after))

    def takes_less_time(self, run: Run) -> bool:
        """Return True if jobs of the run may start with less time than a segment."""
        return run.least_minutes is not None and self._gives_all_time

    @cached_property
    def _gives_all_time(self) -> bool:
        return time_min.gives_all_time()


def early_signal(runtime_minutes: object) -> list[str]:
    """Return the words for sbatch that let Slurm warn the job; `slurm_extra` of the rule comes later and counts."""
    is_long = isinstance(runtime_minutes, int | float) and runtime_minutes * 30 - EARLY_SECONDS >= WARN_SECONDS
    return [f"--signal=URG@{WARN_SECONDS}"] if is_long else []
