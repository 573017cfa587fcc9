"""Jobs that may start in a hole of the queue shorter than their segment (`segment_minutes: {at_least, at_most}`)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from snakemake_executor_plugin_unbroken.segments import Out
from unbroken.runs.run import Run
from unbroken.slurm import time_min


@dataclass
class _Offer:
    """Which length a job that waits is offered next, by its place among all of them, and when (time.monotonic())."""

    place: int
    due: float


class Holes:
    """What sbatch is told of them; and where Slurm would give a job the least only, what jobs that wait accept."""

    def __init__(self) -> None:
        self._offers: dict[str, _Offer] = {}

    @cached_property
    def are_given_whole(self) -> bool:
        """True if a job gets all that there is where it starts; Slurm is asked once."""
        return time_min.gives_whole_holes()

    def words(self, run: Run) -> list[str]:
        """For sbatch."""
        if run.least_minutes is None or not self.are_given_whole:
            return []
        return time_min.words(run.least_minutes)

    def look(self, outs: Iterable[Out]) -> None:
        """Lets those of these jobs that still wait start in shorter holes, where it is time; one call for each length.

        One that has begun is known by its heartbeat; what it accepts has no effect any more.
        """
        waiting = [out for out in outs if out.segment.run.least_minutes is not None and out.first_heard is None]
        if not waiting or self.are_given_whole:
            return
        now = time.monotonic()
        # Those that do not wait any more are forgotten.
        self._offers = {out.job_id: self._offers.get(out.job_id) or _first(out.segment.run, now) for out in waiting}
        due: defaultdict[int, list[Out]] = defaultdict(list)
        for out in waiting:
            lengths, offer = _lengths(out.segment.run), self._offers[out.job_id]
            if lengths and now >= offer.due:
                due[lengths[offer.place]].append(out)
        for minutes, ready in due.items():
            is_accepted = time_min.accept([out.job_id for out in ready], minutes)
            for out in ready:
                run, offer = out.segment.run, self._offers[out.job_id]
                offer.due = now + time_min.offered_seconds(run.least_minutes or 0.0, minutes)
                offer.place = (offer.place + is_accepted) % len(_lengths(run))


def _lengths(run: Run) -> list[int]:
    return time_min.offers(run.least_minutes or run.segment_minutes, run.segment_minutes)


def _first(run: Run, now: float) -> _Offer:
    """A job that has just been submitted may find a hole for all of it."""
    return _Offer(0, now + time_min.offered_seconds(run.least_minutes or 0.0, offer=1))
