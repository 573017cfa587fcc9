"""Run `unbroken exec`: check that it is the same computation, run one segment of it, and return the exit code.

This module loads the standard library alone, so that it costs a short program little and works in any environment.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.errors import ConfigError, FormatError, InterruptedSegment, SegmentError, UnbrokenError
from unbroken.exec.call import Call, call_of, changed_inputs, difference, is_same_program, read_call
from unbroken.exec.engine import NAME, ExecEngine
from unbroken.exec.options import PRESET, Options, parse
from unbroken.exec.outputs import CalledEngine
from unbroken.exec.stores import begin_from_zero, refuse_shared, store_of
from unbroken.job.attempt import Job
from unbroken.job.deadline import NO_LIMIT_MINUTES
from unbroken.job.lifecycle import run_segment
from unbroken.program.contract import EXIT_PAUSED
from unbroken.slurm.client import ask
from unbroken.slurm.this_job import SlurmJob, job_around_us, own_job_id
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.driver_start import START
from unbroken.store.exec_note import ATTEMPTS_WITHOUT_PROGRESS, ExecNote, note_path, write_note
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder, top_folder
from unbroken.store.lease import Lease
from unbroken.store.record import is_finished
from unbroken.store.run import IdentityKeys, Resources, RunSpec
from unbroken.store.select import refuse_newer
from unbroken.system import fs, log

# Slurm's times are whole seconds, and its clock and ours drift.
ROUNDING_SECONDS = 5.0


def main(words: Sequence[str]) -> int:
    """Make one call and return its exit code."""
    call = None
    try:
        with fs.os_errors(Path()):
            call = _Exec(parse(words))
            return call.run()
    except UnbrokenError as error:
        lines = [f"{error.run}: {error.line}"] if error.run else str(error).splitlines()
        for line in lines:
            print(f"unbroken: {line}", file=sys.stderr, flush=True)
        if call is not None and isinstance(error, ConfigError | FormatError):
            call.write_note(EndKind.REFUSED, "; ".join(lines))
        return 1


class _NoTimeLeft(InterruptedSegment):
    """Report that nothing was started, so the job's record stays as the earlier attempt has left it."""


class _Exec:
    """Run one call of `unbroken exec`."""

    def __init__(self, options: Options) -> None:
        self.options, self.folder = options, Path.cwd()
        self.store = store_of(options.name, options.store, self.folder)
        self.places = RunFolder(options.name, Path(), self.store)
        self.job_id, self.around = own_job_id(), job_around_us()
        self._note, self._segment = note_path(top_folder(self.folder)), 0

    def run(self) -> int:
        """Let the same computation resume, or begin; put the results of a finished one back."""
        if self.options.requeue and self.job_id:
            os.environ.setdefault(START, f"job-{self.job_id}")  # what counts as one start, for the failure policy
        kind: type[CalledEngine] = ExecEngine
        if self.options.engine or self.options.preset:
            from unbroken.exec.engines import KINDS  # more than the standard library

            kind = KINDS[self.options.engine or PRESET]
        self._engine = kind(self.options, self.folder, self.store, run_of(self.options, self.around))
        # What waits for its turn: which segment it is, is known when the run is held.
        log, keys = self.places.log(1).with_name("calls.log"), IdentityKeys((), (), ())
        self._job = Job(
            self._engine.run, keys, History(self.places.history).next_segment(), 1, own_log=log, store=self.store
        )
        try:
            record = run_segment(self._job, self._engine, self._prepare)
            if record.kind is EndKind.FINISHED:
                self._finish()
        except UnbrokenError as error:
            return self._failed(error)
        self.write_note(record.kind)
        return 0 if record.kind is EndKind.FINISHED else self._paused()

    def write_note(self, kind: EndKind | None, reason: str = "") -> None:
        """Note for the driver how this call ended; return None while it works."""
        write_note(self._note, ExecNote(self.options.name, str(self.store), kind, self._segment, reason))

    # --- before ---

    def _attempts(self) -> list[Attempt]:
        return History(self.places.history).attempts()

    def _prepare(self, held: Lease) -> Job:
        """Return the segment that comes next, if it is the same computation, or begins from zero.

        Raise ConfigError if it is another one, and the user has not decided what to do.
        """
        refuse_newer(self.places)  # the owner until now may have been a newer one
        was = read_call(self.store)
        now = call_of(self.options, self.folder, was, self._engine.words)
        if self.options.keep:
            refuse_shared(self.options.name, now, self.store, self.store.parents[self.options.name.count("/")])
        why = self._why_from_zero(was, now) if was is not None else ""
        held.confirm()
        if why:
            self._say(f"begins anew ({why}); what was saved is in {begin_from_zero(self.places)}")
        elif was is not None:
            now = replace(now, is_finished=was.is_finished)
        now.write(self.store)
        self._job = self._next_job()
        self._segment = self._job.segment
        self.write_note(None)
        return self._job

    def _why_from_zero(self, was: Call, now: Call) -> str:
        """Return why it begins from zero; empty if it resumes."""
        if self.options.anew:
            return "--anew"
        if changed := changed_inputs(was, now):
            return f"the inputs have changed: {', '.join(changed)}"
        if is_same_program(was, now, self.options.ignore):
            return ""
        changes = difference(was, now)
        if self.options.on_change == "anew":
            return f"the command line has changed: {changes}"
        replace(was, refused=(now.program, now.more)).write(self.store)
        name = self.options.name
        raise ConfigError(
            [
                f"{name}: the command line is another one; {changes}; if it goes on from what is saved, "
                f"type: unbroken accept {name}; to begin anew: --on-change anew; words that may differ: --ignore"
            ]
        )

    def _next_job(self) -> Job:
        """Return the finished segment, or the next one; _NoTimeLeft where a start would only be killed."""
        newest = next(reversed(Store(self.places.checkpoints).readable()), None)
        if newest is not None and is_finished(newest, self._engine.run):
            return replace(self._job, segment=newest.passport.segment)
        if is_time_up(self._attempts(), self.around):
            said = f"the time of job {self.job_id} is up, nothing is started; it goes on in the next one"
            raise _NoTimeLeft(said)
        segment = History(self.places.history).next_segment()
        self.places.log(segment).unlink(missing_ok=True)  # that of an attempt; its own name stays
        return replace(self._job, segment=segment, own_log=None)

    # --- after ---

    def _finish(self) -> None:
        """Note that the run is done, and put the results in place."""
        newest = Store(self.places.checkpoints).readable()[-1]
        if (call := read_call(self.store)) is not None and not call.is_finished:
            replace(call, is_finished=True).write(self.store)
        for doubt in self._engine.results(self._engine.run, newest).doubts:
            self._say(f"doubt: {doubt}")
        if self._engine.has_started and not (self.options.engine or self.options.preset):
            return  # the program has put them in place
        with log.lines_to(self._say), lease.take(self.places.lease, self._segment, 60.0):
            names = ", ".join(self._engine.put_back(newest))
        if self._engine.has_started:
            self._say(f"results: {names or 'in place'}")
            return
        what = f"put back: {names}" if names else "its results are in place"
        self._say(f"done before, nothing is computed; {what}; to compute it anew add --anew")

    def _failed(self, error: UnbrokenError) -> int:
        """Return 85 if the job was asked to leave; else the program's own exit code, or 1, with the reason."""
        if isinstance(error, InterruptedSegment):
            if not isinstance(error, _NoTimeLeft):
                self.write_note(EndKind.INTERRUPTED)
            self._say(error.line)
            return self._paused()
        self.write_note(EndKind.FAILED)
        if not isinstance(error, SegmentError) or not self._engine.has_started:
            raise error
        self._say(error.line)
        code = self._attempts()[-1].exit_code
        return code if code is not None and 0 < code != EXIT_PAUSED else 1

    def _paused(self) -> int:
        if self.options.requeue and self.job_id and ask("scontrol", "requeue", self.job_id) is None:
            self._say(f"Slurm did not take the job back; type: scontrol requeue {self.job_id}, or submit it again")
        return EXIT_PAUSED

    def _say(self, line: str) -> None:
        print(f"unbroken: {self.options.name}: {line}", file=sys.stderr, flush=True)


def run_of(options: Options, around: SlurmJob | None) -> RunSpec:
    """Return the run of a call without an engine; a segment of it ends with the job, or after --minutes."""
    end = around.end_here_unix if around else None
    left_minutes = math.inf if end is None else max(0.1, (end - time.time()) / 60)
    return RunSpec(
        name=options.name,
        engine=NAME,
        segments=0,
        segment_minutes=options.minutes or min(NO_LIMIT_MINUTES, left_minutes),
        settings={"goal": options.goal, "goal_unit": options.unit},
        note=shlex.join(options.program),
        keep=int(options.checkpoints),
        save_minutes=options.save_minutes,
        stall_minutes=options.stall_minutes,
        attempts_without_progress=ATTEMPTS_WITHOUT_PROGRESS,
        resources=Resources(threads=len(os.sched_getaffinity(0))),
    )


def is_time_up(attempts: Sequence[Attempt], around: SlurmJob | None) -> bool:
    """Return True if nothing should be started in this job any more.

    Snakemake's `retries` call again in the job that has just paused; one that was requeued has more time.
    """
    if around is None or around.end_here_unix is None:
        return False
    least = 0.0
    for last in attempts[-1:]:
        is_its_own = last.slurm_job == around.job_id and last.kind is EndKind.PAUSED
        was_asked = last.stop_seconds is not None or last.times.stop_asked is not None
        if is_its_own and was_asked and last.unused_seconds is not None:
            least = last.unused_seconds + ROUNDING_SECONDS
    return around.end_here_unix - time.time() <= least
