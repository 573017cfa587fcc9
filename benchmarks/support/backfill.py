"""A cluster whose queue goes by Slurm's rules, simulated: multifactor priority, reservations, backfill.

What is as in Slurm (sched/backfill, priority/multifactor, fair tree with one level and equal shares):

- After each event the jobs at the head of the queue start, in order, until one does not fit.
- At most every `backfill_seconds` all jobs (the first `tested`) are looked at in order of priority.  Each gets the
  earliest place that disturbs none before it: now, or a reservation as long as its limit, if that is within `window`.
- A job's age counts from the moment it is eligible, in steps of `calc_seconds`.  A job that waits for another is not
  eligible, so it does not age; a task of an array that is held by `%1` is not eligible either, and ages.
- Fair share is the user's rank by decayed usage.

What is simpler: nodes are a pool (all alike, no topology, no fragments), there is one partition, and a pass of the
scheduler takes no time.  All times are seconds.
"""

from __future__ import annotations

import copy
import heapq
from bisect import insort
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Protocol

from support.fair_share import Shares
from support.reservations import Profile

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
ELIGIBLE, ENDED, CALLED, LOOK = range(4)


@dataclass(frozen=True)
class Site:
    """What an administrator decides; the defaults are Slurm's, the weights those of a cluster by age alone."""

    nodes: int
    max_limit: float = 7 * DAY
    age_weight: float = 1.0
    max_age: float = 7 * DAY
    share_weight: float = 0.0
    half_life: float = 7 * DAY
    calc_seconds: float = 5 * MINUTE
    backfill_seconds: float = 30.0
    window: float = DAY
    resolution: float = MINUTE
    tested: int = 500  # bf_max_job_test
    tested_of_user: int | None = None  # bf_max_job_user
    # `--time-min` of a job that backfill starts: from Slurm 25.05.3 on as long as its hole, before that the least.
    fills_holes: bool = True
    # A job holds its nodes so much longer than it works: start, epilog.
    handling: float = 0.0


@dataclass(frozen=True)
class Request:
    """A job of the workload, as its user knows it: `limit` is asked for, `runtime` nobody knows before."""

    submit: float
    user: str
    nodes: int
    limit: float
    runtime: float


class Owner(Protocol):
    """Who is told of the life of a job, and may submit others."""

    def started(self, cluster: Cluster, job: Job) -> float:
        """Says how long the job will work."""

    def ended(self, cluster: Cluster, job: Job) -> None: ...

    def called(self, cluster: Cluster, job: Job) -> None: ...


@dataclass(slots=True, eq=False)
class Job:
    """A job in the queue or at work; `limit` is what it was granted once it has started."""

    user: str
    nodes: int
    limit: float
    runtime: float = inf
    least: float | None = None  # --time-min
    waits_for: Job | None = None  # --dependency=afterany
    or_after: float | None = None  # ...?after: so long after the start of that job
    ages_at_once: bool = False  # a task of --array=%1
    owner: Owner | None = None
    number: int = 0
    submit: float = 0.0
    ages_from: float = inf
    start: float | None = None
    end: float | None = None  # when it will have ended, from its start on
    is_eligible: bool = False
    is_cancelled: bool = False
    dependents: list[Job] = field(default_factory=list)


class Cluster:
    """The simulation; `run` brings it forward, `fork` lets two go on from the same moment."""

    def __init__(self, site: Site, workload: Sequence[Request] = ()) -> None:
        self.site, self.now, self.free = site, 0.0, site.nodes
        self.shares = Shares(site.half_life, sorted({request.user for request in workload}))
        self.finished: list[Job] = []
        self._workload, self._next = tuple(workload), 0
        self._events: list[tuple[float, int, int, Job | None]] = []
        self._count = self._jobs = 0
        self._queue: list[tuple[float, int, Job]] = []  # by priority, the highest first
        # A user's jobs beyond `tested_of_user` are looked at when others of hers have started; hers go by their age.
        self._looked_at, self._behind = Counter[str](), dict[str, deque[Job]]()
        self._releases: list[tuple[float, int, int]] = []  # end by the limit, number, nodes
        self._running: dict[int, Job] = {}
        self._looked, self._will_look = -inf, False
        self._may_start = False  # something has happened that may let a job start which could not before
        self._factors, self._calculated = self.shares.factors(0.0), 0.0

    def fork(self) -> Cluster:
        """The same cluster at the same moment, whose further life is its own; it has finished no job yet."""
        return copy.deepcopy(self, {id(self._workload): self._workload, id(self.finished): []})

    # --- what users do ---

    def submit(self, job: Job) -> Job:
        """Takes a job into the queue now, and gives it back with its number."""
        self._jobs += 1
        job.number, job.submit = self._jobs, self.now
        if job.ages_at_once:
            job.ages_from = self.now
        first = job.waits_for
        if first is None or (first.end is not None and first.end <= self.now):
            self._push(self.now, ELIGIBLE, job)
            return job
        first.dependents.append(job)
        if first.start is not None:
            self._await_start_of(first, job)
        return job

    def cancel(self, job: Job) -> None:
        """Takes a job out that has not started."""
        job.is_cancelled = self._may_start = True
        kept = [entry for entry in self._queue if entry[2] is not job]
        self._looked_at[job.user] -= len(self._queue) - len(kept)
        self._queue = kept

    def finish(self, job: Job, at: float) -> None:
        """Lets a running job end at another moment."""
        job.end = at
        self._push(at, ENDED, job)

    def lower(self, job: Job, limit: float) -> None:
        """Asks for less time; a user may do that while a job waits."""
        job.limit = min(limit, job.limit)
        self._may_start = True

    def call(self, when: float, job: Job) -> None:
        """Wakes the owner of a job up at this moment."""
        self._push(when, CALLED, job)

    @property
    def waiting(self) -> list[Job]:
        """Jobs that are looked at, by priority."""
        return [job for _, _, job in self._ordered()]

    @property
    def running(self) -> list[Job]:
        return list(self._running.values())

    # --- time ---

    def run(self, until: float = inf) -> None:
        """Plays all that happens up to and including this moment."""
        while (when := self._next_time()) <= until and when < inf:
            self.now = when
            while self._next < len(self._workload) and self._workload[self._next].submit <= when:
                request = self._workload[self._next]
                self._next += 1
                self.submit(Job(request.user, request.nodes, request.limit, request.runtime))
            is_look = False
            while self._events and self._events[0][0] <= when:
                _, _, kind, job = heapq.heappop(self._events)
                is_look |= kind == LOOK
                if kind == ENDED and job is not None:
                    self._end(job)
                elif kind == ELIGIBLE and job is not None:
                    self._release(job)
                elif kind == CALLED and job is not None and job.owner is not None:
                    job.owner.called(self, job)
            self._start_head()
            if is_look:
                self._backfill()
            elif self._may_start and self._queue and not self._will_look:
                self._will_look = True
                self._push(max(self._looked + self.site.backfill_seconds, self.now), LOOK, None)
        if until < inf:
            self.now = until

    def _next_time(self) -> float:
        arrival = self._workload[self._next].submit if self._next < len(self._workload) else inf
        return min(arrival, self._events[0][0] if self._events else inf)

    def _push(self, when: float, kind: int, job: Job | None) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, kind, job))

    # --- the life of a job ---

    def _await_start_of(self, first: Job, job: Job) -> None:
        if job.or_after is not None and first.start is not None:
            self._push(max(first.start + job.or_after, self.now), ELIGIBLE, job)

    def _release(self, job: Job) -> None:
        """Makes a job eligible, if it is not."""
        if job.is_eligible or job.is_cancelled:
            return
        job.is_eligible = True
        job.ages_from = min(job.ages_from, self.now)
        most = self.site.tested_of_user
        if most is not None and self._looked_at[job.user] >= most:
            self._behind.setdefault(job.user, deque()).append(job)
        else:
            self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._looked_at[job.user] += 1
        self._may_start |= job.nodes <= self.free
        insort(self._queue, (-self._priority(job), job.number, job))

    def _start(self, job: Job, limit: float) -> None:
        job.start, job.limit = self.now, limit
        self.free -= job.nodes
        self._running[job.number] = job
        self.shares.occupy(job.user, job.nodes, self.now)
        self._looked_at[job.user] -= 1
        if behind := self._behind.get(job.user):
            self._enqueue(behind.popleft())
        insort(self._releases, (self.now + limit, job.number, job.nodes))
        works = job.runtime if job.owner is None else job.owner.started(self, job)
        self.finish(job, self.now + min(works, limit) + self.site.handling)
        for other in job.dependents:
            self._await_start_of(job, other)

    def _end(self, job: Job) -> None:
        if job.end != self.now or job.start is None or job.number not in self._running:
            return  # it was given another end meanwhile
        self.free += job.nodes
        self._may_start = True
        del self._running[job.number]
        self.shares.occupy(job.user, -job.nodes, self.now)
        self._releases.remove((job.start + job.limit, job.number, job.nodes))
        self.finished.append(job)
        for other in job.dependents:
            self._release(other)
        if job.owner is not None:
            job.owner.ended(self, job)

    # --- priority ---

    def _priority(self, job: Job) -> float:
        """As last calculated: between two calculations no job ages and no share changes."""
        site, seconds = self.site, self._calculated - job.ages_from
        age = 0.0 if seconds <= 0 else 1.0 if seconds >= site.max_age else seconds / site.max_age
        share = self._factors.get(job.user, 1.0) if site.share_weight else 0.0
        return site.age_weight * age + site.share_weight * share

    def _ordered(self) -> list[tuple[float, int, Job]]:
        step = self.site.calc_seconds
        if self.now >= self._calculated + step:
            self._calculated = self.now // step * step
            if self.site.share_weight:
                self._factors, self._may_start = self.shares.factors(self._calculated), True
            priority = self._priority
            self._queue = sorted([(-priority(job), number, job) for _, number, job in self._queue])
        return self._queue

    # --- the two schedulers ---

    def _start_head(self) -> None:
        queue = self._ordered()
        while queue and queue[0][2].nodes <= self.free:
            job = queue.pop(0)[2]
            self._start(job, job.limit)

    def _profile(self) -> Profile:
        step = self.site.resolution
        releases = [(max(ceil(when / step) * step, self.now), nodes) for when, _, nodes in self._releases]
        return Profile(self.now, self.free, releases)

    def _backfill(self) -> None:
        self._looked, self._will_look, self._may_start = self.now, False, False
        candidates = [job for _, _, job in self._ordered()[: self.site.tested]]
        last = self._last_that_fits(candidates, len(candidates))
        latest = self.now + self.site.window
        profile, started = self._profile(), set[int]()
        # Places only become fewer during a pass: where one of this shape found none, the next one need not look.
        seen: dict[tuple[int, float], float] = {}
        for at, job in enumerate(candidates):
            if at >= last:
                break  # what is reserved for those behind changes nothing before the next pass
            wanted = job.limit if job.least is None else job.least
            shape = (job.nodes, wanted)
            begin = seen.get(shape, -inf)
            start = None if begin == inf else profile.earliest(*shape, latest, begin)
            seen[shape] = inf if start is None else start
            if start is None:
                continue
            if start == self.now:
                granted = wanted if job.least is None else self._granted(job, profile)
                profile.take(job.nodes, start, self._rounded(start + granted))
                started.add(job.number)
                self._start(job, granted)
                last = self._last_that_fits(candidates, last)
            else:
                profile.take(job.nodes, start, start + wanted)
        if started:
            self._queue = [entry for entry in self._queue if entry[1] not in started]

    def _last_that_fits(self, jobs: Sequence[Job], end: int) -> int:
        """Behind the last of these jobs, before `end`, for which enough nodes are free now."""
        while end and jobs[end - 1].nodes > self.free:
            end -= 1
        return end

    def _granted(self, job: Job, profile: Profile) -> float:
        assert job.least is not None  # noqa: S101 -- asked for these jobs alone
        if not self.site.fills_holes:
            return job.least
        return max(min(job.limit, profile.hole(job.nodes) // MINUTE * MINUTE), job.least)

    def _rounded(self, when: float) -> float:
        return ceil(when / self.site.resolution) * self.site.resolution
