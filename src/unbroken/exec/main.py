"""The entry point of `unbroken exec`: is it the same computation, one segment of it, and the exit code.

Loads the standard library alone, so that it costs a short program little and works in any environment.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.errors import ConfigError, InterruptedSegment, SegmentError, UnbrokenError
from unbroken.exec.anew import set_old_aside
from unbroken.exec.call import (
    REFUSED,
    Call,
    call_of,
    changed_inputs,
    difference,
    is_same_program,
    keep_refused,
    read_call,
)
from unbroken.exec.engine import NAME, ExecEngine
from unbroken.exec.options import OnChange, Options, parse
from unbroken.exec.overlap import refuse_shared
from unbroken.exec.place import store_of, top_folder
from unbroken.exec.results import put_back_results
from unbroken.program.contract import EXIT_PAUSED
from unbroken.runs import lease
from unbroken.runs.driver_start import START
from unbroken.runs.exec_note import REFUSED as NOTE_REFUSED
from unbroken.runs.exec_note import STARTED, ExecNote, note_path, write_note
from unbroken.runs.history import History
from unbroken.runs.identity import IdentityKeys
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import Lease
from unbroken.runs.outcome import Outcome
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.segment.classify import is_finished
from unbroken.segment.deadline import NO_LIMIT_MINUTES
from unbroken.segment.job import Job, attempt_log
from unbroken.segment.lifecycle import run_segment
from unbroken.slurm.commands import ask
from unbroken.slurm.this_job import job_around_us
from unbroken.system import fs


def main(words: Sequence[str]) -> int:
    """One call; its exit code."""
    name, call = "exec", None
    try:
        options = parse(words)
        name = options.name
        with fs.os_errors(Path()):
            call = _Exec(options)
            return call.run()
    except UnbrokenError as error:
        lines = [line.replace(f"runs.{name}:", f"{name}:") for line in str(error).splitlines()]
        for line in lines:
            print(f"unbroken: {line}", file=sys.stderr, flush=True)
        if call is not None and isinstance(error, ConfigError):
            call.note_refused("; ".join(lines))
        return 1


class _Exec:
    """One call of `unbroken exec`."""

    def __init__(self, options: Options) -> None:
        self.options, self.folder = options, Path.cwd()
        self.store = store_of(options.name, options.store, self.folder)
        self.places = RunFolder(options.name, Path(), self.store)
        self.root = self.store.parents[options.name.count("/")]
        self.job_id = os.environ.get("SLURM_JOB_ID", "")
        self.note = note_path(top_folder(self.folder))

    def run(self) -> int:
        """The same computation goes on, or begins; a finished one puts its results back."""
        if self.options.is_requeued and self.job_id:
            os.environ.setdefault(START, f"job-{self.job_id}")  # what counts as one start, for the failure policy
        self._minutes = self._length()
        self._job = self._waiting_job()
        engine = ExecEngine(self.options, self.folder, self.store)
        try:
            record = run_segment(self._job, engine, self._prepare)
        except UnbrokenError as error:
            return self._failed(engine, error)
        self._write_note(record.outcome.value)
        if record.outcome is Outcome.FINISHED:
            self._finish(engine)
            return 0
        self._requeue()
        return EXIT_PAUSED

    def note_refused(self, reason: str) -> None:
        """For the driver, to whom it is a job that failed."""
        write_note(self.note, ExecNote(self.options.name, str(self.store), NOTE_REFUSED, 0, reason))

    # --- before ---

    def _length(self) -> float:
        """Minutes that this call may take; Slurm's end of the job counts all the same."""
        if self.options.minutes is not None:
            return self.options.minutes
        around = job_around_us()
        end = around.end_here_unix if around else None
        return NO_LIMIT_MINUTES if end is None else min(NO_LIMIT_MINUTES, max(0.1, (end - time.time()) / 60))

    def _waiting_job(self) -> Job:
        """What waits for its turn: which segment it is, and whether it is one, is known when the run is held."""
        log = self.places.log(1).with_name("calls.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        return Job(self._run(), IdentityKeys((), (), ()), self._segment(), 1, Path(), log, self.store)

    def _prepare(self, held: Lease) -> Job:
        """The segment that comes next, if it is the same computation, or begins anew.

        ConfigError if it is another one, and nobody has decided what to do.
        """
        was = read_call(self.store)
        now = call_of(self.options, self.folder, was)
        if self.options.keep:
            refuse_shared(self.options.name, now, self.store, self.root)
        why = self._why_anew(was, now)
        held.confirm()
        if was is not None and why:
            self._say(f"begins anew ({why}); what was saved is in {set_old_aside(self.places)}")
        elif was is not None:
            now = replace(now, program=was.program, volatile=was.volatile, is_finished=was.is_finished)
        now.write(self.store)
        with suppress(FileNotFoundError):
            (self.store / REFUSED).unlink()
        newest = next(reversed(Store(self.places.checkpoints).readable()), None)
        if newest is not None and is_finished(newest, self._job.run):
            self._job = replace(self._job, segment=newest.passport.segment)
        else:
            segment = self._segment()
            log = self.places.log(segment)
            log.unlink(missing_ok=True)  # that of an attempt; its own name stays
            self._job = replace(self._job, segment=segment, attempt_log=attempt_log(log))
        self._write_note(STARTED)
        return self._job

    def _segment(self) -> int:
        """The one behind the last that has paused."""
        attempts = History(self.places.history).attempts()
        return 1 + max((attempt.segment for attempt in attempts if attempt.outcome is Outcome.PAUSED), default=0)

    def _why_anew(self, was: Call | None, now: Call) -> str:
        """Why it begins anew; empty if it goes on."""
        if was is None:
            return ""
        if self.options.is_anew:
            return "--anew"
        if changed := changed_inputs(was, now):
            return f"the inputs have changed: {', '.join(changed)}"
        if is_same_program(was, now, self.options.ignore):
            return ""
        if self.options.on_change is OnChange.ANEW:
            return f"the command line has changed: {difference(was, now)}"
        keep_refused(self.store, now)
        name = self.options.name
        raise ConfigError(
            [
                f"{name}: the command line is another one; {difference(was, now)}; if it goes on from what is saved, "
                f"type: unbroken accept {name}; to begin anew: --on-change anew; words that may differ: --ignore"
            ]
        )

    def _run(self) -> Run:
        """All that a config would say; what is not an option is what suits a program that stands alone."""
        options = self.options
        return Run(
            name=options.name, engine=NAME, segments=0, segment_minutes=self._minutes, place="", tasks=1, nodes=None,
            note=shlex.join(options.program), threads=len(os.sched_getaffinity(0)), mem_mb=0, memory_growth=1.0, gpus=0,
            partition=None, account=None, qos=None, constraint=None, gpu_type=None, slurm_extra=(),
            keep=options.checkpoints, milestone_every=0, save_minutes=options.save_minutes, mtbf_hours=None,
            stall_minutes=None, first_margin_seconds=None, attempts_without_progress=3, modules=(), enter=(),
            settings={"goal": options.goal, "goal_unit": options.unit},
        )  # fmt: skip

    # --- after ---

    def _finish(self, engine: ExecEngine) -> None:
        """Of a run that was done before, the results are put back."""
        newest = Store(self.places.checkpoints).readable()[-1]
        if (call := read_call(self.store)) is not None and not call.is_finished:
            call.finished().write(self.store)
        if engine.has_started:
            return
        with lease.take(self.places.lease, self._job.segment, 60.0, self._say):
            done = put_back_results(newest, self.folder)
        what = f"put back: {', '.join(done)}" if done else "its results are in place"
        self._say(f"done before, nothing is computed; {what}; to compute it anew add --anew")

    def _failed(self, engine: ExecEngine, error: UnbrokenError) -> int:
        """85 if somebody wanted the machine back; else the program's own exit code, or 1, with the reason."""
        if isinstance(error, InterruptedSegment):
            self._write_note(Outcome.INTERRUPTED.value)
            self._say(str(error))
            self._requeue()
            return EXIT_PAUSED
        self._write_note(Outcome.FAILED.value)
        if not isinstance(error, SegmentError) or not engine.has_started:
            raise error
        attempts = History(self.places.history).attempts()
        code = attempts[-1].exit_code if attempts else None
        self._say(str(error))
        return code if code is not None and 0 < code != EXIT_PAUSED else 1

    def _requeue(self) -> None:
        if self.options.is_requeued and self.job_id and ask("scontrol", "requeue", self.job_id) is None:
            self._job.tell(f"Slurm did not take the job back; type: scontrol requeue {self.job_id}, or submit it again")

    def _write_note(self, outcome: str) -> None:
        write_note(self.note, ExecNote(self.options.name, str(self.store), outcome, self._job.segment))

    def _say(self, line: str) -> None:
        name = self.options.name
        print(f"unbroken: {name}: {line.removeprefix(f'runs.{name}: ')}", file=sys.stderr, flush=True)
