"""Ways of getting one long computation through a queue, in the simulated cluster: as jobs of a user who decides.

A way is told when its jobs start and end, and submits the next ones.  Of each job `cut` seconds are no work (start,
save, what is left of the limit), and it leaves `margin` seconds before its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from support.backfill import MINUTE, Cluster, Job

USER = "the user"


@dataclass(frozen=True)
class Task:
    """The computation: seconds of work on so many nodes."""

    seconds: float
    nodes: int
    cut: float = 2 * MINUTE
    margin: float = 0.0
    handover: float = MINUTE  # from the start of a successor to the end of the job that it asks to leave


class Way:
    """What all ways have in common: a job's life, and the account of the work."""

    def __init__(self, task: Task) -> None:
        self.task, self.done, self.finished_at = task, 0.0, inf
        self.waits: list[float] = []  # without a node
        self.queued: list[float] = []  # of each job, since it was eligible
        self.jobs: list[Job] = []
        self._work_from: dict[int, float] = {}

    def begin(self, cluster: Cluster) -> bool:
        """Submits the first job; False if the site does not take it."""
        raise NotImplementedError

    def next(self, cluster: Cluster, job: Job) -> None:
        """A job has started; those that wait for it may be submitted."""

    def follow(self, cluster: Cluster, job: Job) -> None:
        """A job has ended and work is left."""

    def called(self, cluster: Cluster, job: Job) -> None:
        """The moment for which the way asked to be woken up."""

    def started(self, cluster: Cluster, job: Job) -> float:
        before = [other for other in self.jobs if other is not job and _is_running(other, cluster.now)]
        for other in before:
            cluster.finish(other, cluster.now + self.task.handover + cluster.site.handling)
        begins = cluster.now + (self.task.handover if before else 0.0)
        # The wait of the computation: not that of a job which was to be submitted, but could not begin.
        ended = max(
            (other.end or 0.0 for other in self.jobs if other is not job and other.start is not None), default=None
        )
        self.waits.append(max(cluster.now - (job.submit if ended is None else ended), 0.0))
        self.queued.append(cluster.now - job.ages_from)
        self._work_from[job.number] = begins
        left = self.task.seconds - self.done - sum(self._worked(other, begins) for other in before)
        if left > self._most(job.limit):
            self.next(cluster, job)
        return max(min(job.limit - self.task.margin, begins - cluster.now + self.task.cut + left), 0.0)

    def ended(self, cluster: Cluster, job: Job) -> None:
        if self.finished_at < inf:
            return
        self.done += self._worked(job, cluster.now - cluster.site.handling)
        if self.done >= self.task.seconds - 1e-6:
            self.finished_at = cluster.now - cluster.site.handling
            for other in self.jobs:
                if other.start is None:
                    cluster.cancel(other)
        else:
            self.follow(cluster, job)

    def _worked(self, job: Job, until: float) -> float:
        return max(until - self._work_from[job.number] - self.task.cut, 0.0)

    def _most(self, limit: float) -> float:
        """So much work is done by a job with this limit."""
        return limit - self.task.margin - self.task.cut

    def _job(self, cluster: Cluster, limit: float, **options: object) -> Job:
        job = Job(USER, self.task.nodes, limit, owner=self, **options)
        self.jobs.append(job)
        return cluster.submit(job)


def _is_running(job: Job, now: float) -> bool:
    return job.start is not None and job.end is not None and job.end > now


class Whole(Way):
    """One job."""

    def __init__(self, task: Task, limit: float) -> None:
        super().__init__(task)
        self.limit = limit

    def begin(self, cluster: Cluster) -> bool:
        if self.limit > cluster.site.max_limit or self._most(self.limit) < self.task.seconds:
            return False
        self._job(cluster, self.limit)
        return True


class Chain(Way):
    """Segments, all submitted at once, each with `--dependency=afterany` of the one before.

    With `least` they have `--time-min` as well, and there are as many as are needed if each gets no more.
    """

    is_array = False

    def __init__(self, task: Task, length: float, least: float | None = None) -> None:
        super().__init__(task)
        self.length, self.least = length, least

    def begin(self, cluster: Cluster) -> bool:
        if self.length > cluster.site.max_limit:
            return False
        before = None
        for _ in range(ceil(self.task.seconds / self._most(self.least or self.length))):
            before = self._job(cluster, self.length, least=self.least, waits_for=before, ages_at_once=self.is_array)
        return True


class Array(Chain):
    """The same as `--array=1-N%1`: its tasks age from their submission (measured on Slurm 22.05 and 26.05)."""

    is_array = True


class Beside(Chain):
    """Fixed segments; the next one, `afterany:J?after:J+M`, may start `wait` seconds before the end of the one at work.

    If it starts early, the one at work saves and leaves.  `wait` is asked when a job is submitted, with how long the
    jobs before have waited since they were eligible; it is half the length at most.
    """

    def __init__(self, task: Task, length: float, wait: Callable[[Sequence[float]], float]) -> None:
        super().__init__(task, length)
        self.wait = wait

    def begin(self, cluster: Cluster) -> bool:
        if self.length > cluster.site.max_limit:
            return False
        self._job(cluster, self.length)
        return True

    def next(self, cluster: Cluster, job: Job) -> None:
        wait = min(self.wait(self.queued), self.length / 2) // MINUTE * MINUTE
        self._job(cluster, self.length, waits_for=job, or_after=self.length - wait)

    def follow(self, cluster: Cluster, job: Job) -> None:
        if all(other.end is not None and other.end <= cluster.now for other in self.jobs):
            self._job(cluster, self.length)


class Holes(Way):
    """`--time-min` with `--time`; the next job is submitted when one ends.

    `fills` is False for Slurm before 25.05.3, where a job that backfill starts gets its least.
    """

    def __init__(self, task: Task, least: float, most: float, fills: bool = True) -> None:
        super().__init__(task)
        self.least, self.most, self.fills = least, most, fills

    def begin(self, cluster: Cluster) -> bool:
        if self.most > cluster.site.max_limit:
            return False
        cluster.site = replace(cluster.site, fills_holes=self.fills)
        self._submit(cluster)
        return True

    def follow(self, cluster: Cluster, job: Job) -> None:
        self._submit(cluster)

    def _submit(self, cluster: Cluster) -> None:
        self._job(cluster, self.most, least=self.least)


class Lowered(Way):
    """A job whose limit its user halves after each `patience` that it has waited, down to `least`; its age is kept.

    What can be done where `--time-min` gives the least (Slurm before 25.05.3).  `sbatch --test-only` cannot choose a
    length: its answer is the running jobs and the sum of what waits, the same for all (measured, 22.05 and 26.05).
    """

    def __init__(self, task: Task, most: float, least: float, patience: float) -> None:
        super().__init__(task)
        self.most, self.least, self.patience = most, least, patience

    def begin(self, cluster: Cluster) -> bool:
        if self.most > cluster.site.max_limit:
            return False
        self._submit(cluster)
        return True

    def follow(self, cluster: Cluster, job: Job) -> None:
        self._submit(cluster)

    def called(self, cluster: Cluster, job: Job) -> None:
        if job.start is None and job.limit > self.least:
            cluster.lower(job, max(job.limit / 2, self.least))
            cluster.call(cluster.now + self.patience, job)

    def _submit(self, cluster: Cluster) -> None:
        cluster.call(cluster.now + self.patience, self._job(cluster, self.most))
