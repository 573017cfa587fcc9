"""The chains of all runs that a driver was asked for: their records, and how often Slurm is asked about them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain import NEVER, Chain
from snakemake_executor_plugin_unbroken.chain_specs import Host
from snakemake_executor_plugin_unbroken.queue_watch import QueueWatch
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.job import array
from unbroken.job.array import Answer
from unbroken.job.cancel import cancel_runs
from unbroken.program.stop_reason import StopReason
from unbroken.runs import driver_start

# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
# Leases are looked at so often.
LIFE_SECONDS = 5.0
# Where a job of Snakemake's that is out has its segment, in `aux`.
SEGMENT = "unbroken"


class Chains:
    """The runs that this driver was asked for; called from threads."""

    def __init__(self, host: Host, queue: QueueWatch, record_seconds: float) -> None:
        self._host, self._queue = host, queue
        self._record_seconds = self.interval_seconds = record_seconds
        self._chains: dict[str, Chain] = {}
        self._lock = threading.Lock()
        self._life_due = 0.0

    # --- a job of Snakemake's is handed over ---

    def add(self, job: Any, segment: Segment) -> None:
        """See to the segment of a job: it is done, or a job of its run does it, or one is submitted now, or later.

        Without a driver until one is in the queue, which does all that follow.
        """
        info = SubmittedJobInfo(job, external_jobid=segment.key, aux={SEGMENT: segment})
        with self._lock:
            chain = self._chains.setdefault(segment.key, Chain(segment, self._host, self._queue))
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
        began, names = time.monotonic(), cache(_names)
        for chain, segment, _ in self._active(infos):
            folder, name = os.path.split(segment.record)
            if name in names(folder) and segment.has_record():
                chain.log_pauses()
                chain.succeed(segment)
        self.interval_seconds = max(self._record_seconds, (time.monotonic() - began) / LOOKING_SHARE)
        waiting = [(chain, segment) for chain, segment, _ in self._active(infos)]
        self._look_for_life(waiting)
        self._look_into_queue(waiting)
        for chain, segment in waiting:
            if chain.due <= time.monotonic():
                chain.due = NEVER
                self._host.in_thread(chain.see_to, segment)
        return [info for _, _, info in self._active(infos)]

    def _active(self, infos: Iterable[SubmittedJobInfo]) -> list[tuple[Chain, Segment, SubmittedJobInfo]]:
        """Return the segments that are not over: a thread may have seen to one since it was listed."""
        found = [(self._chains[info.aux[SEGMENT].key], info.aux[SEGMENT], info) for info in infos]
        return [(chain, segment, info) for chain, segment, info in found if chain.active.get(segment) is info]

    def _look_for_life(self, waiting: Sequence[tuple[Chain, Segment]]) -> None:
        """Let squeue be asked soon about a run whose lease fell silent or was given back."""
        began = time.monotonic()
        if began < self._life_due:
            return
        for chain, segment in waiting:
            chain.log_pauses()
            if chain.life.has_ceased(segment.folder.lease, segment.number_at_work()):
                self._queue.hasten()
        took = time.monotonic() - began
        self._life_due = began + max(LIFE_SECONDS, took / LOOKING_SHARE)

    def _look_into_queue(self, waiting: Sequence[tuple[Chain, Segment]]) -> None:
        watched = [(chain, segment) for chain, segment in waiting if chain.is_watched]
        jobs = self._queue.answer(self._host.log) if watched else None
        if jobs is None:
            return
        by_chain = array.by_chain(jobs)
        for chain, segment in watched:
            if chain.take_answer(segment, by_chain.get(chain.key, [])):
                self._queue.hasten()

    # --- the end ---

    def leave(self, infos: Iterable[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Let no thread report the end of these any more; return those of which none has."""
        return [info for chain, segment, info in self._active(infos) if chain.active.pop(segment, None) is info]

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


def _names(folder: str) -> frozenset[str]:
    """Return the names in a folder.

    It is listed, not each file asked for: on NFS opening a folder asks the server, while a file that was missing a
    moment ago may stay missing for a client for a minute.
    """
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # not made yet, or the file server is away for a moment
        return frozenset()
