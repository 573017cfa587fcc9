"""The entry point of `unbroken exec`: is it the same computation, one segment of it, and the exit code.

Loads the standard library alone, so that it costs a short program little and works in any environment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unbroken.errors import ConfigError, FormatError, InterruptedSegment, SegmentError, UnbrokenError
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
from unbroken.exec.engine import ExecEngine
from unbroken.exec.job_time import is_up
from unbroken.exec.options import OnChange, Options, parse
from unbroken.exec.overlap import refuse_shared
from unbroken.exec.place import store_of
from unbroken.exec.settings import run_of, with_file
from unbroken.program.contract import EXIT_PAUSED
from unbroken.runs import lease
from unbroken.runs.driver_start import START
from unbroken.runs.exec_note import ExecNote, note_path, write_note
from unbroken.runs.history import History
from unbroken.runs.identity import IdentityKeys
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder, top_folder
from unbroken.runs.lease import Lease
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.segment.classify import is_finished
from unbroken.segment.deadline import NO_LIMIT_MINUTES
from unbroken.segment.job import Job, attempt_log
from unbroken.segment.lifecycle import run_segment
from unbroken.slurm.commands import ask
from unbroken.slurm.this_job import job_around_us, own_job_id
from unbroken.system import fs

if TYPE_CHECKING:
    from unbroken.exec.engines import CalledEngine


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
        if call is not None and isinstance(error, ConfigError | FormatError):
            call.note_refused("; ".join(lines))
        return 1


class _NoTimeLeft(InterruptedSegment):
    """Nothing was started, so the job's note stays what the attempt before has made it."""


class _Exec:
    """One call of `unbroken exec`."""

    def __init__(self, options: Options) -> None:
        self.options, self.folder = options, Path.cwd()
        self.store = store_of(options.name, options.store, self.folder)
        self.places = RunFolder(options.name, Path(), self.store)
        self.root = self.store.parents[options.name.count("/")]
        self.job_id = own_job_id()
        self.note = note_path(top_folder(self.folder))

    def run(self) -> int:
        """The same computation goes on, or begins; a finished one puts its results back."""
        if self.options.is_requeued and self.job_id:
            os.environ.setdefault(START, f"job-{self.job_id}")  # what counts as one start, for the failure policy
        refuse_newer(self.places)
        self._run, self._engine = self._run_and_engine()
        self._job = self._waiting_job()
        try:
            record = run_segment(self._job, self._engine, self._prepare)
            if record.kind is EndKind.FINISHED:
                self._finish()
        except UnbrokenError as error:
            return self._failed(error)
        self._write_note(record.kind)
        if record.kind is EndKind.FINISHED:
            return 0
        self._requeue()
        return EXIT_PAUSED

    def note_refused(self, reason: str) -> None:
        """For the driver, to whom it is a job that failed."""
        write_note(self.note, ExecNote(self.options.name, str(self.store), EndKind.REFUSED, 0, reason))

    # --- before ---

    def _length(self) -> float:
        """Minutes that this call may take; Slurm's end of the job counts all the same."""
        if self.options.minutes is not None:
            return self.options.minutes
        around = job_around_us()
        end = around.end_here_unix if around else None
        return NO_LIMIT_MINUTES if end is None else min(NO_LIMIT_MINUTES, max(0.1, (end - time.time()) / 60))

    def _run_and_engine(self) -> tuple[Run, ExecEngine | CalledEngine]:
        run = replace(run_of(self.options), segment_minutes=self._length())
        if not self.options.engine:
            return with_file(run, self.options, self.folder), ExecEngine(self.options, self.folder, self.store)
        from unbroken.exec.engines import called_engine

        engine = called_engine(self.options, self.folder, self.store, run)
        return engine.run, engine

    def _waiting_job(self) -> Job:
        """What waits for its turn: which segment it is, and whether it is one, is known when the run is held."""
        log = self.places.log(1).with_name("calls.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        return Job(self._run, IdentityKeys((), (), ()), self._segment(), 1, Path(), log, self.store)

    def _prepare(self, held: Lease) -> Job:
        """The segment that comes next, if it is the same computation, or begins anew.

        ConfigError if it is another one, and nobody has decided what to do.
        """
        refuse_newer(self.places)  # whoever held it until now may have been a newer one
        was = read_call(self.store)
        now = call_of(self.options, self.folder, was, self._engine.call_words())
        if self.options.keep:
            refuse_shared(self.options.name, now, self.store, self.root)
        why = self._why_anew(was, now)
        held.confirm()
        if was is not None and why:
            self._say(f"begins anew ({why}); what was saved is in {set_old_aside(self.places)}")
        elif was is not None:
            now = replace(now, program=was.program, more=was.more, volatile=was.volatile, is_finished=was.is_finished)
        now.write(self.store)
        with suppress(FileNotFoundError):
            (self.store / REFUSED).unlink()
        newest = next(reversed(Store(self.places.checkpoints).readable()), None)
        if newest is not None and is_finished(newest, self._job.run):
            self._job = replace(self._job, segment=newest.passport.segment)
        else:
            self._refuse_late_start()
            segment = self._segment()
            log = self.places.log(segment)
            log.unlink(missing_ok=True)  # that of an attempt; its own name stays
            self._job = replace(self._job, segment=segment, attempt_log=attempt_log(log))
        self._write_note(None)
        return self._job

    def _refuse_late_start(self) -> None:
        """_NoTimeLeft where a start would only be killed by the end of the job."""
        if is_up(History(self.places.history).attempts(), job_around_us()):
            said = f"the time of job {self.job_id} is up, nothing is started; it goes on in the next one"
            raise _NoTimeLeft(said)

    def _segment(self) -> int:
        """The one behind the last that has saved; of a finished run, whose goal was raised since, behind its last."""
        attempts = History(self.places.history).attempts()
        return 1 + max((attempt.segment for attempt in attempts if attempt.kind.settles), default=0)

    def _why_anew(self, was: Call | None, now: Call) -> str:
        """Why it begins anew; empty if it goes on."""
        if was is None:
            return ""
        if self.options.is_anew:
            return "--anew"
        if changed := changed_inputs(was, now):
            return f"the inputs have changed: {', '.join(changed)}"
        if is_same_program(was, now, (*self.options.ignore, *self._engine.ignored)):
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

    # --- after ---

    def _finish(self) -> None:
        """The results of a run that was done before, or whose engine makes them, are put in place."""
        newest = Store(self.places.checkpoints).readable()[-1]
        if (call := read_call(self.store)) is not None and not call.is_finished:
            call.finished().write(self.store)
        for doubt in self._engine.result_doubts(self._job.run, newest):
            self._say(f"doubt: {doubt}")
        if self._engine.has_started and not self._engine.puts_results:
            return
        with lease.take(self.places.lease, self._job.segment, 60.0, self._say):
            done = self._engine.put_back(newest)
        if self._engine.has_started:
            self._say(f"results: {', '.join(done) or 'in place'}")
            return
        what = f"put back: {', '.join(done)}" if done else "its results are in place"
        self._say(f"done before, nothing is computed; {what}; to compute it anew add --anew")

    def _failed(self, error: UnbrokenError) -> int:
        """85 if somebody wanted the machine back; else the program's own exit code, or 1, with the reason."""
        if isinstance(error, InterruptedSegment):
            if not isinstance(error, _NoTimeLeft):
                self._write_note(EndKind.INTERRUPTED)
            self._say(str(error))
            self._requeue()
            return EXIT_PAUSED
        self._write_note(EndKind.FAILED)
        if not isinstance(error, SegmentError) or not self._engine.has_started:
            raise error
        attempts = History(self.places.history).attempts()
        code = attempts[-1].exit_code if attempts else None
        self._say(str(error))
        return code if code is not None and 0 < code != EXIT_PAUSED else 1

    def _requeue(self) -> None:
        if self.options.is_requeued and self.job_id and ask("scontrol", "requeue", self.job_id) is None:
            self._job.tell(f"Slurm did not take the job back; type: scontrol requeue {self.job_id}, or submit it again")

    def _write_note(self, kind: EndKind | None) -> None:
        write_note(self.note, ExecNote(self.options.name, str(self.store), kind, self._job.segment))

    def _say(self, line: str) -> None:
        name = self.options.name
        print(f"unbroken: {name}: {line.removeprefix(f'runs.{name}: ')}", file=sys.stderr, flush=True)
