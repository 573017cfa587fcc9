"""When to ask Slurm about runs without a new record, and what its answers mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from snakemake_executor_plugin_unbroken.heartbeat import Pulse, feel
from snakemake_executor_plugin_unbroken.job_outcome import UNKNOWN, Evidence, verdict
from snakemake_executor_plugin_unbroken.records import LOOKING_SHARE
from snakemake_executor_plugin_unbroken.segments import Out, Segment, pause_lines
from unbroken.job import array
from unbroken.job.spec import JobSpec
from unbroken.job.stop_note import stop_of
from unbroken.job.unrecorded import has_tried, is_held, line_of, unrecorded
from unbroken.runs import driver_start, policy, submissions
from unbroken.runs.attempts import all_attempts, note, with_causes
from unbroken.runs.failure_limits import next_action
from unbroken.runs.history import Attempt
from unbroken.runs.policy import Next, NextAction
from unbroken.slurm.ended_job import EndedJob, ended_in_accounting, ended_job
from unbroken.slurm.nodes import default_partition, spare_nodes
from unbroken.slurm.queue import MyJob, my_jobs
from unbroken.slurm.reasons import advice

# Between two questions while nothing happens; half of the shortest time for which controllers remember ended jobs.
LONGEST_SECONDS = 180.0
GROWTH_SECONDS = 10.0
# After a sign that a job is gone: it needs a moment to leave.
SOON_SECONDS = 4.0
# Leases are looked at so often.
PULSE_SECONDS = 5.0
# An end is asked for twice, because Slurm may be about to queue the job again.
LOOKS = 2
# A run none of whose jobs squeue knows.
LOST_LOOKS = 4
SILENT_CONTROLLER_SECONDS = 60.0


@dataclass(frozen=True)
class EndedChain:
    """No job of a run is left: its last one, empty if nobody knows it, its state in Slurm's words, and since when.

    `since` is by time.monotonic().
    """

    job_id: str
    state: str
    since: float


class ChainWatch:
    """Asks about all runs in one question, and as rarely as it may."""

    def __init__(self, first_seconds: float, latency_seconds: float) -> None:
        self.first_seconds = first_seconds
        self._latency_seconds = latency_seconds
        self._interval = first_seconds
        self._due = float("inf")
        self._pulse_due = 0.0
        self._unanswered: float | None = None
        self._ended: dict[Out, EndedChain] = {}
        self._lost: dict[Segment, list[Attempt]] = {}

    def expect(self) -> None:
        """A job was submitted."""
        self._due = min(self._due, time.monotonic() + self.first_seconds)

    def forget_end(self, out: Out) -> None:
        """Forget an end that was acted upon."""
        self._ended.pop(out, None)

    def forget(self, segment: Segment) -> None:
        """Forget a segment that is over."""
        self._lost.pop(segment, None)

    def look(self, outs: Sequence[Out], log: Callable[[str], None]) -> dict[Out, EndedChain]:
        """Return the segments without a record whose run has no job left; Slurm is asked only when it is time."""
        self._feel(outs, log)
        if outs and time.monotonic() >= self._due:
            self._ask(outs, log)
        now = time.monotonic()
        found = {out: self._ended[out] for out in outs if out in self._ended}
        # A record may need a while to be seen here.
        return {
            out: end
            for out, end in found.items()
            if end.state != "COMPLETED" or now - end.since > self._latency_seconds
        }

    def outcome(self, out: Out, end: EndedChain, spec: JobSpec, log: Callable[[str], None]) -> NextAction:
        """Return what follows the end of a run's last job that left no record and whose work cannot be settled.

        OSError or OutageError while the file server is away.
        """
        segment = out.segment.at_work()
        if why := stop_of(segment.key, driver_start.current()):
            return NextAction(
                Next.STOP, f"{segment.name}: job {end.job_id} ended as {end.state}; this run stops: {why}"
            )
        job = ended_job(end.job_id) or EndedJob(end.job_id, end.state, "", 0)
        if is_held(job):
            return verdict(segment, end.job_id, Evidence(end.state, None, is_held=True))
        if not segment.has_begun():
            return verdict(segment, end.job_id, Evidence(end.state, None))
        attempts = self._attempts(segment, replace(job, state=end.state), log)
        own = [attempt for attempt in attempts if attempt.slurm_job == end.job_id]
        recent = with_causes(policy.of_start(attempts, driver_start.current()))
        # The retries of single jobs are counted by Snakemake.
        retries = spec.retries if spec.submission.refills else None
        rules = policy.Rules(segment.run.attempts_without_progress, retries)

        def spare() -> int:
            run = segment.run
            return spare_nodes(run.partition or default_partition(), run.nodes or run.tasks)

        file = segment.places.log(segment.number)
        action = next_action(segment.places, recent, rules, segment.number, spare, file if file.exists() else "")
        evidence = Evidence(end.state, own[-1] if own else None, action, has_tried=has_tried(job))
        return verdict(segment, end.job_id, evidence)

    def _attempts(self, segment: Segment, job: EndedJob, log: Callable[[str], None]) -> list[Attempt]:
        """Return the history with the lines of jobs that could not write them, also where the disk takes none."""
        lost = self._lost.setdefault(segment, [])
        known = {attempt.slurm_job for attempt in lost}
        found = unrecorded(segment.places, segment.key, driver_start.current(), log, segment.number)
        lost += [attempt for attempt in found if attempt.slurm_job not in known]
        attempts = [*all_attempts(segment.places), *lost]
        has_run = has_tried(job) and (job.has_started or job.state == UNKNOWN)
        if has_run and all(attempt.slurm_job != job.job_id for attempt in attempts):
            line = line_of(segment.places, job, segment.number, attempts[-1] if attempts else None)
            if not note(segment.places, line, log):
                lost.append(line)
        return [*all_attempts(segment.places), *lost]

    def _feel(self, outs: Sequence[Out], log: Callable[[str], None]) -> None:
        """Let Slurm be asked soon about a run whose lease fell silent or was given back."""
        now = time.monotonic()
        if now < self._pulse_due:
            return
        for out in outs:
            for line in pause_lines(out):
                log(line)
            was = out.has_left, out.is_silent
            pulse = feel(out)
            out.is_silent = pulse is Pulse.SILENT
            if (out.has_left, out.is_silent) != was and pulse in (Pulse.LEFT, Pulse.SILENT):
                self._hasten(now)
        took = time.monotonic() - now
        self._pulse_due = now + max(PULSE_SECONDS, took / LOOKING_SHARE)

    def _hasten(self, now: float) -> None:
        self._interval = self.first_seconds
        self._due = min(self._due, now + SOON_SECONDS)

    def _ask(self, outs: Sequence[Out], log: Callable[[str], None]) -> None:
        jobs = my_jobs()
        now = time.monotonic()
        self._due = now + self._interval
        if jobs is None:
            self._say_silence(now, log)
            return
        self._unanswered = None
        self._interval = min(self._interval + GROWTH_SECONDS, LONGEST_SECONDS)
        by_chain = array.by_chain(jobs)
        for out in outs:
            own = by_chain.get(out.segment.key, [])
            alive = array.alive_of(own, out.segment.key)
            if alive:
                self._note_alive(out, alive, now, log)
            else:
                self._note_end(out, own, now)

    def _note_alive(self, out: Out, alive: Sequence[MyJob], now: float, log: Callable[[str], None]) -> None:
        out.ended.clear()
        self._ended.pop(out, None)
        if out.has_left and all(job.state != "PENDING" for job in alive):
            self._due = min(self._due, now + SOON_SECONDS)
        if all(job.state == "PENDING" for job in alive):
            _say_stuck(out, alive[0], log)

    def _note_end(self, out: Out, own: Sequence[MyJob], now: float) -> None:
        # Not one that was canceled while it waited.
        last = next((job for job in reversed(own) if job.node), own[-1] if own else None)
        job_id, state = (last.job_id, last.state) if last else _in_accounting(out.segment.key)
        out.ended.append(state)
        if len(out.ended) >= (LOST_LOOKS if state == UNKNOWN else LOOKS):
            self._ended.setdefault(out, EndedChain(job_id, state, now))
        else:
            self._hasten(now)

    def _say_silence(self, now: float, log: Callable[[str], None]) -> None:
        self._due = now + min(self._interval, 30.0)
        if self._unanswered is None:
            self._unanswered = now
        elif now - self._unanswered > SILENT_CONTROLLER_SECONDS:
            log("squeue does not answer; segments that leave their record go on, the others are waited for")
            self._unanswered = now + 4 * SILENT_CONTROLLER_SECONDS


def _in_accounting(key: str) -> tuple[str, str]:
    """Return number and state of a run's last job that has started; an unknown state where there is no accounting."""
    ids = submissions.job_ids(key)[-1:]
    over = [job for job in ended_in_accounting(ids) if job.has_started]
    return (over[-1].job_id, over[-1].state) if over else ("".join(ids), UNKNOWN)


def _say_stuck(out: Out, job: MyJob, log: Callable[[str], None]) -> None:
    if job.is_stuck and out.told_waiting != job.reason:
        array = job.job_id.partition("_")[0]  # all its tasks wait for the same
        held = f"release it: scontrol release {array}" if "eld" in job.reason else ""
        todo = held or advice(job.reason, array)
        log(f"{out.segment.name}: job {job.job_id} does not start by itself ({job.reason}); {todo}")
        out.told_waiting = job.reason
