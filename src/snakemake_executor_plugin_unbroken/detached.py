"""Submission without a driver (`--immediate-submit`): which jobs, behind which, and what each is to run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from snakemake_executor_plugin_unbroken.parent import behind
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.detached import resubmit
from unbroken.detached.resubmit import Again
from unbroken.detached.successors import BEFORE, Template, dependency, tasks
from unbroken.runs import driver_start
from unbroken.runs.run import Run

# Snakemake loads its plugins before it enters the working directory; paths on its command line count from here.
STARTED_IN = os.getcwd()


def chain_command(exec_job: str, segment: Segment, retries: int) -> str:
    """What a job runs that does whichever segment of its run comes next; `BEFORE` in it stands for the jobs before."""
    words = ["--run", segment.run.name, "--segments", str(segment.run.segments), f"--after={BEFORE}"]
    words += ["--start", driver_start.current(), "--retries", str(retries)]
    words += ["--idle-attempts", str(segment.run.attempts_without_progress)]
    words += ["--memory-growth", str(segment.run.memory_growth)]
    return behind(exec_job, "unbroken.detached.chain_job", words)


def template_of(
    segment: Segment, ahead: int, logs: Path, words: Sequence[str], script: str, is_array: bool = False
) -> Template:
    """How jobs of the run are submitted without Snakemake; `script` is a `chain_command`."""
    run = segment.run
    more = run.mem_mb, run.memory_growth, run.nodes or run.tasks, is_array
    return Template(ahead, segment.rule, str(logs), tuple(words), script, *more)


class Detached:
    """The chains of jobs that are being submitted."""

    def __init__(self, ahead: int, makes_arrays: bool = False) -> None:
        self.ahead = ahead  # so many jobs of a run may be in the queue
        self._makes_arrays = makes_arrays
        self._single: set[str] = set()
        self._tasks: dict[str, list[str]] = {}  # of the array of a run those that no segment has yet
        self._chains: dict[str, list[str]] = {}
        self._full: set[str] = set()
        self._driven: set[str] = set()
        self._others: dict[str, str] = {}  # jobs that we did not submit, by run
        # Of the segment that is just being submitted; only one thread submits then.
        self.now: Segment | None = None

    def has_room(self, segment: Segment) -> bool:
        """True if one more job of the run may wait; a run whose next segment found no room gets no later one either.

        Jobs of a driver do not count: they submit no other ones.
        """
        if len(self._undriven(segment.run)) >= self.ahead:
            self._full.add(segment.run.name)
        return segment.run.name not in self._full

    def is_array(self, run: Run) -> bool:
        """True if several jobs of the run are to be one array."""
        return self._makes_arrays and run.name not in self._single

    def make_no_array(self, segment: Segment) -> None:
        """The site has no room for one: its jobs are submitted one by one."""
        self._single.add(segment.run.name)

    def array_size(self, segment: Segment, last_number: int) -> int:
        """How many segments from this one on the array that is submitted now is for."""
        room = self.ahead - len(self._undriven(segment.run))
        return max(1, min(room, last_number - segment.number + 1))

    def split(self, segment: Segment, job_id: str, size: int) -> str:
        """The first task of an array that has just been submitted for this segment; the others are kept for `task`."""
        first, *self._tasks[segment.run.name] = tasks(job_id, size)
        return first

    def task(self, segment: Segment) -> str:
        """The task of an array that is for the segment; empty if there is none."""
        waiting = self._tasks.get(segment.run.name)
        return waiting.pop(0) if waiting else ""

    def _undriven(self, run: Run) -> list[str]:
        """The jobs of a run that submit others."""
        return [job for job in self._chains.get(run.name, []) if job not in self._driven]

    def add(self, segment: Segment, job_id: str) -> None:
        """The job is in the queue."""
        self._chains.setdefault(segment.run.name, []).append(job_id)

    def found_driven(self, job_id: str) -> None:
        """A job of a driver's, which is to be taken over."""
        self._driven.add(job_id)

    @property
    def count(self) -> int:
        """How many jobs were submitted."""
        return sum(map(len, self._chains.values()))

    def set_full(self, segment: Segment) -> None:
        """The site takes no further job of this user now."""
        self._full.add(segment.run.name)

    def is_empty(self, segment: Segment) -> bool:
        """True if the run has no job at all, so nobody would submit the rest."""
        return not self._chains.get(segment.run.name)

    def summary(self) -> str:
        """One line for the user, who is about to log out."""
        jobs = f"{self.count} jobs are out for {len(self._chains)} runs"
        return f"{jobs}, and you may log out; see: unbroken status"

    def wait_for(self, segment: Segment, job_id: str) -> None:
        """The run's jobs shall stand behind this one too, which somebody else has submitted; '' for none."""
        if job_id:
            self._others[segment.run.name] = job_id

    def dependency(self) -> str:
        """The words for sbatch that put the job behind all earlier ones of its run."""
        if self.now is None:
            return ""
        run = self.now.run
        chain = [job for job in (self._others.get(run.name), *self._chains.get(run.name, [])) if job]
        return " ".join(["", *map(shlex.quote, dependency(chain))])

    def behind_chain(self, command: str, segment: Segment) -> str:
        """The same for the job that is submitted now."""
        return command.replace(BEFORE, ",".join(self._chains.get(segment.run.name, [])))

    def keep(self, segment: Segment, template: Template | None) -> None:
        """What the jobs do when no job waits behind them: without a template, the command that was typed."""
        targets = [str(segment.places.record(number)) for number in range(1, segment.run.segments + 1)]
        words = list(sys.argv[1:])
        words += targets if "--" in words else ["--", *targets]
        resubmit.keep(segment.run.name, Again(STARTED_IN, (sys.executable, "-m", "snakemake", *words), template))
