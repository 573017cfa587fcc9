"""What a job of a segment is submitted with: its command, and its words for sbatch."""

from __future__ import annotations

import shlex
from functools import cached_property
from typing import Any

from snakemake_executor_plugin_unbroken import interruptible
from snakemake_executor_plugin_unbroken.detached import Detached, chain_command, template_of
from snakemake_executor_plugin_unbroken.interruptible import interruptible_of
from snakemake_executor_plugin_unbroken.parent import (
    SlurmParent,
    behind,
    by_ticket,
    in_the_batch_step,
    is_immediate,
    with_our_commands,
)
from snakemake_executor_plugin_unbroken.segments import Segment, segment_of
from snakemake_executor_plugin_unbroken.ticket_jobs import MODULE, ticket_of
from unbroken.detached.successors import ARRAY_LOG, Template, array
from unbroken.runs import driver_start
from unbroken.runs.run import Run
from unbroken.slurm import time_min
from unbroken.slurm.job_comment import log_of

# More inputs make too long a command line; the parent then writes them into a file in a folder of the driver's.
MOST_INPUTS = 20


class JobCommands(SlurmParent):
    """The parent with segments in mind, as far as the words of a job go."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        # Before the parent starts the thread that looks after jobs.
        settings = workflow.executor_settings
        self._detached = Detached(settings.ahead, settings.array_chains) if is_immediate(workflow) else None
        super().__init__(workflow, logger)

    def more_sbatch_words(self, job: Any) -> str:
        """Those that put a job without a driver behind the one before, or that warn an interruptible one.

        And those by which backfill may start a segment's job with less time.
        """
        early = interruptible.early_signal(job.resources.get("runtime")) if interruptible_of(job) else ""
        segment = segment_of(job)
        words = self._time_min_words(segment.run) if segment is not None else []
        if segment is not None and (count := self.array_size(segment)) > 1:
            log = self.log_folder() / log_of(segment.rule, segment.wildcards, ARRAY_LOG)
            words += [*array(count), shlex.quote(f"--output={log}")]
        return " ".join([early, *words]) + (self._detached.dependency() if self._detached else "")

    @cached_property
    def _uses_time_min(self) -> bool:
        return time_min.gives_all_time()

    def _time_min_words(self, run: Run) -> list[str]:
        if run.least_minutes is None or not self._uses_time_min:
            return []
        return time_min.words(run.least_minutes)

    def last_segment(self, run: str) -> int:
        """The last one of a run that this driver is asked for."""
        own = (job for job in self.jobs_to_be_run() if run in job.wildcards)
        return max((segment.number for job in own if (segment := segment_of(job)) is not None), default=0)

    def array_size(self, segment: Segment) -> int:
        """How many jobs of its chain are submitted with it as one array; 1 where that is not asked for."""
        if self._detached is None or not self._detached.is_array(segment.run):
            return 1  # before all jobs are looked through for the last one
        return self._detached.array_size(segment, self.last_segment(segment.run.name))

    def command_of(self, job: Any, command: str) -> str:
        """A segment's script runs in the batch step, below a module of ours that follows it.

        By its ticket, without a Snakemake, wherever that does the same.  An interruptible job's Snakemake runs in the
        batch step too, without the module.
        """
        if interruptible_of(job) is not None:
            return with_our_commands(in_the_batch_step(command, keeps_incomplete=False))
        segment = segment_of(job)
        if segment is None:
            return command
        if self._detached is not None:
            return self._detached.behind_chain(self._chain_command(job, segment, command), segment)
        words = ["--run", segment.run.name, "--segment", str(segment.number), "--start", driver_start.current()]
        return self._by_ticket(job, segment, behind(in_the_batch_step(command), "unbroken.detached.driven_job", words))

    def _chain_command(self, job: Any, segment: Segment, command: str) -> str:
        command = chain_command(in_the_batch_step(command), segment, self.retries_of(job))
        return self._by_ticket(job, segment, command)

    def _by_ticket(self, job: Any, segment: Segment, command: str) -> str:
        ticket = ticket_of(job, segment, self.latency_seconds())
        return command if ticket is None else by_ticket(command, MODULE, ticket.write(), job)

    def template(self, job: Any, segment: Segment, detached: Detached) -> Template:
        """What a job without a driver submits the next one with."""
        script = self._chain_command(job, segment, self.command_alone(job))
        words = [*self.sbatch_words(job), *self._time_min_words(segment.run)]
        is_array = detached.is_array(segment.run)
        return template_of(segment, detached.ahead, self.log_folder(), words, script, is_array)

    def files_to_wait_for(self, job: Any) -> list[str] | None:
        """The record before; without a driver nobody knows which segment a job will do, so it waits for none.

        An interruptible job may wait in the queue for longer than its driver lives.
        """
        if interruptible_of(job) is not None:
            inputs = self.inputs_to_wait_for(job)
            return inputs if len(inputs) <= MOST_INPUTS else None
        if segment_of(job) is None:
            return None
        previous = job.input.previous
        return [] if self._detached is not None else [previous] if isinstance(previous, str) else list(previous)
