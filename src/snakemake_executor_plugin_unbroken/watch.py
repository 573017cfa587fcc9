"""When to ask Slurm about jobs without a record, and what its answers mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from snakemake_executor_plugin_unbroken.heartbeat import Pulse, feel
from snakemake_executor_plugin_unbroken.job_outcome import UNKNOWN, Evidence, JobOutcome, verdict
from snakemake_executor_plugin_unbroken.records import LOOKING_SHARE
from snakemake_executor_plugin_unbroken.segments import Out, Segment
from unbroken.detached.unnoted import is_held, line_of
from unbroken.errors import FormatError
from unbroken.runs import driver_start, policy
from unbroken.runs.attempts import all_attempts, note, with_causes
from unbroken.runs.failure_limits import stop_reason
from unbroken.runs.history import Attempt, History
from unbroken.runs.outcome import Outcome
from unbroken.slurm.ended_job import EndedJob, ended_job
from unbroken.slurm.nodes import default_partition, spare_nodes
from unbroken.slurm.queue import MyJob, ended_states, my_jobs
from unbroken.slurm.reasons import advice
from unbroken.slurm.states import ALIVE

# Between two questions while nothing happens; half of the shortest time for which controllers remember ended jobs.
LONGEST_SECONDS = 180.0
GROWTH_SECONDS = 10.0
# After a sign that a job is gone: its own Snakemake needs a moment to leave.
SOON_SECONDS = 4.0
# After a job has said so itself.
LEAVES_SECONDS = 1.5
# Leases are looked at so often.
PULSE_SECONDS = 5.0
# Endings that are asked for twice, because Slurm may be about to queue the job again.
LOOKS = 2
# A job that neither squeue nor sacct knows.
LOST_LOOKS = 4
SILENT_CONTROLLER_SECONDS = 60.0


@dataclass(frozen=True)
class EndedJobOfSegment:
    """A job that is over: its state in Slurm's words, and since when this is known here (time.monotonic())."""

    state: str
    since: float


class JobWatch:
    """Asks about all jobs in one question, and as rarely as it may."""

    def __init__(self, first_seconds: float, latency_seconds: float) -> None:
        self.first_seconds = first_seconds
        self._latency_seconds = latency_seconds
        self._interval = first_seconds
        self._due = float("inf")
        self._pulse_due = 0.0
        self._unanswered: float | None = None
        self._known: dict[str, EndedJobOfSegment] = {}
        self._lost: dict[Segment, list[Attempt]] = {}

    def expect(self) -> None:
        """A segment's job was submitted."""
        self._due = min(self._due, time.monotonic() + self.first_seconds)

    def hasten(self) -> None:
        """A job has said that it is at its end."""
        self._interval = self.first_seconds
        self._due = min(self._due, time.monotonic() + LEAVES_SECONDS)

    def forget_job(self, out: Out) -> None:
        """Its end was acted upon."""
        self._known.pop(out.job_id, None)

    def forget(self, segment: Segment) -> None:
        """The segment is over."""
        self._lost.pop(segment, None)

    def look(self, outs: Sequence[Out], tell: Callable[[str], None]) -> dict[str, EndedJobOfSegment]:
        """Which of these jobs, none of which has a record, are over; Slurm is asked only when it is time."""
        self._feel(outs)
        if outs and time.monotonic() >= self._due:
            self._ask(outs, tell)
        now = time.monotonic()
        known = [(out, self._known[out.job_id]) for out in outs if out.job_id in self._known]
        # A record may need a while to be seen here.
        return {
            out.job_id: end
            for out, end in known
            if not out.leaves_record
            or end.state != "COMPLETED"
            or now - end.since > self._latency_seconds
            or _got_less_time(out)
        }

    def verdict(self, out: Out, state: str, partition: str, nodes: int, tell: Callable[[str], None]) -> JobOutcome:
        """What follows the end of a job that left no record and whose work cannot be settled.

        It asked for so many nodes of that partition; of the default one if it named none.  OSError or OutageError while
        the file server is away.
        """
        segment = out.segment
        job = ended_job(out.job_id) or EndedJob(out.job_id, state, "", 0)
        if is_held(job):
            return verdict(segment, out.job_id, Evidence(state, None, is_held=True))
        attempts = self._attempts(segment, replace(job, state=state), tell)
        own = [attempt for attempt in attempts if attempt.slurm_job == out.job_id]
        recent = with_causes(policy.of_start(attempts, driver_start.current()))
        rules = policy.Rules(segment.run.attempts_without_progress)

        def spare() -> int:
            return spare_nodes(partition or default_partition(), nodes)

        log = segment.places.log(segment.number)
        named = log if log.exists() else ""  # a training in a rule's own script has none
        why, _ = stop_reason(segment.places, recent, rules, segment.number, spare, named)
        return verdict(segment, out.job_id, Evidence(state, own[-1] if own else None, why))

    def _attempts(self, segment: Segment, job: EndedJob, tell: Callable[[str], None]) -> list[Attempt]:
        """The history with the line of a job that could not write it, also where the disk takes none."""
        attempts = all_attempts(segment.places)
        has_run = job.has_started or job.state == UNKNOWN
        if has_run and all(attempt.slurm_job != job.job_id for attempt in attempts):
            line = line_of(segment.places, job, segment.number, attempts[-1] if attempts else None)
            if note(segment.places, line, tell):
                return all_attempts(segment.places)
            self._lost.setdefault(segment, []).append(line)
        return [*attempts, *self._lost.get(segment, [])]

    def _feel(self, outs: Sequence[Out]) -> None:
        """A run whose lease fell silent or was given back is asked about soon."""
        now = time.monotonic()
        if now < self._pulse_due:
            return
        for out in outs:
            was = out.has_left, out.is_silent
            pulse = feel(out)
            out.is_silent = pulse is Pulse.SILENT
            if (out.has_left, out.is_silent) != was and pulse in (Pulse.LEFT, Pulse.SILENT):
                self._interval = self.first_seconds
                self._due = min(self._due, now + SOON_SECONDS)
        took = time.monotonic() - now
        self._pulse_due = now + max(PULSE_SECONDS, took / LOOKING_SHARE)

    def _ask(self, outs: Sequence[Out], tell: Callable[[str], None]) -> None:
        answer = my_jobs()
        now = time.monotonic()
        self._due = now + self._interval
        if answer is None:
            self._tell_silence(now, tell)
            return
        self._unanswered = None
        self._interval = min(self._interval + GROWTH_SECONDS, LONGEST_SECONDS)
        queue = {job.job_id: job for job in answer}
        gone = [out.job_id for out in outs if out.job_id not in queue]
        accounted = ended_states(gone)
        for out in outs:
            job = queue.get(out.job_id)
            self._note(out, job.state if job else accounted.get(out.job_id, UNKNOWN), job is not None, now)
            if job is not None:
                _tell_stuck(out, job, tell)

    def _note(self, out: Out, state: str, is_queued: bool, now: float) -> None:
        if state in ALIVE and is_queued:
            out.ended.clear()
            self._known.pop(out.job_id, None)
            if (out.has_left or out.is_told_over) and state != "PENDING":
                self._due = min(self._due, now + (LEAVES_SECONDS if out.is_told_over else SOON_SECONDS))
            return
        out.ended.append(state)
        is_sure = is_queued or state not in ALIVE | {UNKNOWN}
        # FAILED is what Slurm says of each pause.
        looks = 1 if out.is_told_over and state in {"FAILED", "COMPLETED"} else LOOKS
        if len(out.ended) >= (looks if is_sure else LOST_LOOKS):
            self._known.setdefault(out.job_id, EndedJobOfSegment(state if is_sure else UNKNOWN, now))
        else:
            self._interval = self.first_seconds
            self._due = min(self._due, now + SOON_SECONDS)

    def _tell_silence(self, now: float, tell: Callable[[str], None]) -> None:
        self._due = now + min(self._interval, 30.0)
        if self._unanswered is None:
            self._unanswered = now
        elif now - self._unanswered > SILENT_CONTROLLER_SECONDS:
            tell("squeue does not answer; segments that leave their record go on, the others are waited for")
            self._unanswered = now + 4 * SILENT_CONTROLLER_SECONDS


def _got_less_time(out: Out) -> bool:
    """Return True if the job has done all that it could, and leaves no record: it had less time than a segment."""
    if out.segment.run.least_minutes is None:
        return False
    with suppress(OSError, FormatError):
        own = (line for line in History(out.segment.places.history).attempts() if line.slurm_job == out.job_id)
        return any(line.outcome is Outcome.INTERRUPTED for line in own)
    return False


def _tell_stuck(out: Out, job: MyJob, tell: Callable[[str], None]) -> None:
    if job.is_stuck and out.told_waiting != job.reason:
        held = f"release it: scontrol release {job.job_id}" if "eld" in job.reason else ""
        todo = held or advice(job.reason, job.job_id)
        tell(f"{out.segment.name}: job {job.job_id} does not start by itself ({job.reason}); {todo}")
        out.told_waiting = job.reason
