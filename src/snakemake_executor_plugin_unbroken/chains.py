"""The chains of all runs that a driver was asked for: their records, and how often Slurm is asked about them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain import NEVER, Chain
from snakemake_executor_plugin_unbroken.chain_specs import ChainSpecs, Host
from snakemake_executor_plugin_unbroken.queue_watch import QueueWatch
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.job import array
from unbroken.job.array import Answer
from unbroken.job.ensure import cancel_runs
from unbroken.program.stop_reason import StopReason
from unbroken.runs import driver_start

# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
# Leases are looked at so often.
LIFE_SECONDS = 5.0


_SEGMENT = "unbroken"


class Chains:
    """The runs that this driver was asked for; called from threads."""

    def __init__(self, host: Host, specs: ChainSpecs, queue: QueueWatch, record_seconds: float) -> None:
        self._host, self._specs, self._queue = host, specs, queue
        self._record_seconds = self.interval_seconds = record_seconds
        self._chains: dict[str, Chain] = {}
        self._lock = threading.Lock()
        self._life_due = 0.0

    # --- a job of Snakemake's is handed over ---

    def add(self, job: Any, segment: Segment) -> None:
        """See to the segment of a job: it is done, or a job of its run does it, or one is submitted now, or later.

        Without a driver until one is in the queue, which does all that follow.
        """
        info = SubmittedJobInfo(job, external_jobid=segment.key, aux={_SEGMENT: segment})
        with self._lock:
            chain = self._chains.setdefault(segment.key, Chain(segment, self._host, self._specs, self._queue))
        if not self._host.is_detached or chain.found is None:
            chain.add(info, segment)
            while self._host.is_detached and chain.due != NEVER:
                time.sleep(max(0.0, chain.due - time.monotonic()))
                chain.see_to(segment)
            if segment not in chain.active:
                return
        self._host.submitted(info)

    # --- in the thread that looks after jobs ---

    def check(self, infos: Sequence[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Take the records that are there as ends of their jobs, look after the others, and return them."""
        began = time.monotonic()
        listed = dict[str, frozenset[str]]()
        for segment, _ in self._active(infos):
            folder, name = segment.record_place
            if folder not in listed:
                listed[folder] = _names(folder)
            if name in listed[folder] and segment.has_record():
                self._say_pauses(segment)
                self._chains[segment.key].succeed(segment)
        self.interval_seconds = max(self._record_seconds, (time.monotonic() - began) / LOOKING_SHARE)
        waiting = [segment for segment, _ in self._active(infos)]
        self._look_for_life(waiting)
        self._look_into_queue(waiting)
        self._see_to_due(waiting)
        return [info for _, info in self._active(infos)]

    def _active(self, infos: Iterable[SubmittedJobInfo]) -> list[tuple[Segment, SubmittedJobInfo]]:
        """Return the segments that are not over: a thread may have seen to one since it was listed."""
        found = [(segment, info) for info in infos if (segment := segment_of(info)) is not None]
        return [pair for pair in found if self._chains[pair[0].key].active.get(pair[0]) is pair[1]]

    def _look_for_life(self, segments: Sequence[Segment]) -> None:
        """Let squeue be asked soon about a run whose lease fell silent or was given back."""
        began = time.monotonic()
        if began < self._life_due:
            return
        for segment in segments:
            self._say_pauses(segment)
            if self._chains[segment.key].life.has_ceased(segment.places.lease, segment.number_at_work()):
                self._queue.hasten()
        took = time.monotonic() - began
        self._life_due = began + max(LIFE_SECONDS, took / LOOKING_SHARE)

    def _look_into_queue(self, segments: Sequence[Segment]) -> None:
        watched = [segment for segment in segments if self._chains[segment.key].is_watched]
        jobs = self._queue.answer(self._host.log) if watched else None
        if jobs is None:
            return
        by_chain = array.by_chain(jobs)
        for segment in watched:
            chain = self._chains[segment.key]
            chain.take_answer(segment, by_chain.get(chain.key, []), self._host.latency_seconds)
            if chain.is_asked_soon:
                self._queue.hasten()

    def _see_to_due(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            chain = self._chains[segment.key]
            if chain.due <= time.monotonic():
                chain.due = NEVER
                self._host.in_thread(chain.see_to, segment)

    def _say_pauses(self, segment: Segment) -> None:
        pauses = self._chains[segment.key].pauses
        for line in pauses.new_lines() if pauses else []:
            self._host.log(line)

    # --- the end ---

    def leave(self, infos: Iterable[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Let no thread report the end of these any more; return those of which none has."""
        left = self._active(infos)
        return [info for segment, info in left if self._chains[segment.key].active.pop(segment, None) is info]

    def cancel(self) -> None:
        """Cancel all jobs of the runs (Ctrl-C), also of those whose tasks run ahead; those at work may save first."""
        keys = sorted(key for key, chain in self._chains.items() if chain.active or chain.found is not None)
        start, why = driver_start.current(), StopReason.CTRL_C.value
        cancel_runs(keys, start, why, lambda line: self._host.log(f"Ctrl-C: {line}"))

    def summary(self) -> str:
        """Return one line for the user, who is about to log out."""
        found = [chain.found for chain in self._chains.values() if chain.found is not None]
        out = [done for done in found if done.answer is not Answer.FULL]
        return f"jobs of {len(out)} runs are in the queue, and you may log out; see: unbroken status"


def segment_of(info: SubmittedJobInfo) -> Segment | None:
    """Return the segment that a job of Snakemake is, as noted in `aux`; None for plain jobs."""
    return (info.aux or {}).get(_SEGMENT)


def _names(folder: str) -> frozenset[str]:
    """Return the names in a folder.

    It is listed, not each file asked for: on NFS opening a folder asks the server, while a file that was missing a
    moment ago may stay missing for a client for a minute.
    """
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # not made yet, or the file server is away for a moment
        return frozenset()
