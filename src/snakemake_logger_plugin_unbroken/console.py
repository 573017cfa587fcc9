"""Show the events of a driver, one line each, and the state of its active runs.

Snakemake hands its records over in a thread of their own; another one looks after the runs.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from logging import WARNING, Formatter, LogRecord
from pathlib import Path
from typing import Any

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import get_event
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_unbroken.following import Following
from snakemake_logger_plugin_unbroken.screen import Screen
from unbroken import __version__
from unbroken.cli.status_table import progress_of, total_of
from unbroken.job import background
from unbroken.plan import ctrl_c
from unbroken.report.status import RunStatus
from unbroken.system.clock import duration

LOOK_SECONDS = 1.0
# Into a file or a pipe, each active run logs a line so often.
LINE_SECONDS = 60.0
# How often, at most, the runs are checked for notifications to send (`notify:`).
NOTIFY_SECONDS = 60.0
# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
MOST_NAMES = 8
# What Snakemake says at each start, of each job, or at the end, which our own lines say instead: by event ...
CHATTER_EVENTS = {
    LogEvent.WORKFLOW_STARTED,
    LogEvent.RUN_INFO,
    LogEvent.RESOURCES_INFO,
    LogEvent.PROGRESS,
    LogEvent.RULEGRAPH,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
}
# ... and where it has none, by the module and the function that logs it.
CHATTER_FUNCTIONS = {
    ("api", "execute_workflow"),
    ("dag", "print_reasons"),
    ("jobs", "cleanup"),
    ("job_scheduler", "schedule"),
    ("job_scheduler", "_handle_error"),
    ("logging", "logfile_hint"),
    ("workflow", "_build_dag"),
    ("workflow", "configfile"),
    ("workflow", "log_workflow_runtime"),
}
SLURM_PLUGIN = "snakemake_executor_plugin_slurm"
# How Snakemake calls its copy of a script of ours; the run's history, or the segment's log, has the reason of its end.
_OUR_SCRIPT = re.compile(r"/\.snakemake/scripts/\w+\.(\w*segment|gromacs_prepare)\.py'")
# The WorkflowError at the end of a start in which a job failed, or that received a signal to end.
_SUMMARY = "At least one job did not complete successfully"


class Console:
    """All that a driver shows on its screen; the caller of `handle` holds `lock`."""

    def __init__(self, screen: Screen, formatter: Formatter, *, is_dry: bool, has_progress: bool) -> None:
        self.lock = threading.RLock()
        self.on_failure: Callable[[Exception], None] = lambda error: None  # called where looking after the runs fails
        self._screen, self._formatter = screen, formatter
        self._is_dry, self._has_progress = is_dry, has_progress
        self._jobs: dict[int, tuple[str, int]] = {}  # segments that were handed out, by Snakemake's numbers
        # Other jobs of runs, which have said on the screen themselves why they failed, and in their logs.
        self._others: dict[int, str] = {}
        self._told: set[tuple[str, int]] = set()  # those with an attempt logged since then
        self._to_do: Counter[str] = Counter()  # segments of a dry run
        self._is_interrupted = False
        self._last_words = ""  # a retry that is refused says the same again
        self._told_at: dict[str, float] = {}
        self._notified_at = time.monotonic()
        self._stop = threading.Event()
        self._looking: threading.Thread | None = None

    @cached_property
    def _following(self) -> Following:
        """Return the runs, looked up at the first segment, when the Snakefile has been read."""
        return Following()

    # --- from Snakemake ---

    def handle(self, record: LogRecord) -> None:
        """Show a record, or what it means."""
        fields, event = vars(record), get_event(record)
        if event is LogEvent.JOB_INFO:
            self._job(fields)
        elif event is LogEvent.JOB_FINISHED and fields.get("job_id") in self._jobs:
            self.look()
            self._following.end(*self._jobs[fields["job_id"]])
        elif event is LogEvent.JOB_ERROR and fields["jobid"] in self._jobs:
            self._failed(record, *self._jobs[fields["jobid"]])
        elif event is LogEvent.JOB_ERROR and fields["jobid"] in self._others:
            self._screen.say(self._others[fields["jobid"]], is_alert=True)
        elif event is LogEvent.RUN_INFO and self._to_do:
            self._tell_plan()
        elif not self._is_chatter(record, event) and (text := self._formatter.format(record)):
            self._screen.say(text, is_alert=record.levelno >= WARNING)

    def _is_chatter(self, record: LogRecord, event: LogEvent | None) -> bool:
        if event is LogEvent.ERROR:
            return _is_said_better(record)
        if record.levelno >= WARNING:
            return False
        if record.module == "job_scheduler" and self._jobs and not self._is_interrupted and ctrl_c.was_heard():
            self._is_interrupted = True
            self._screen.say("stopping: the segments at work save and leave")
        if event is not None:
            return event in CHATTER_EVENTS
        place = record.module, record.funcName
        if place == ("workflow", "execute"):
            return not self._is_dry and record.msg != NOTHING_TO_BE_DONE_MSG
        is_of_plugin = Path(record.pathname).parent.name == SLURM_PLUGIN
        return is_of_plugin or place in CHATTER_FUNCTIONS or getattr(record, "is_routine", False)

    def _job(self, fields: dict[str, Any]) -> None:
        wildcards = fields.get("wildcards") or {}
        run, segment = str(wildcards.get("run", "")), str(wildcards.get("segment", ""))
        is_of_run = self._following.knows(run)
        if not is_of_run or not segment.isdecimal():
            if is_of_run and fields.get("log"):
                self._others[fields["jobid"]] = f"{run}: {fields['rule_name']} failed; log: {', '.join(fields['log'])}"
            if fields["output"]:  # a rule without any only names what is wanted
                self._screen.say(f"rule {fields['rule_name']}: {', '.join(fields['output'])}")
        elif self._is_dry:
            self._to_do[run] += 1
        else:
            self._open()
            self._jobs[fields["jobid"]] = run, int(segment)
            self._told.discard((run, int(segment)))
            self._following.begin(run, int(segment))

    def _failed(self, record: LogRecord, run: str, segment: int) -> None:
        """Log the reason of a failure, from the run's history or the segment's log, else in Snakemake's own words."""
        self._tell_news()
        self._following.end(run, segment)
        if (run, segment) in self._told:
            return
        last = self._following.last_words(run, segment)
        if not last and self._is_interrupted:
            last = f"{run} segment {segment}: stopped by Ctrl-C before it began"
        if not last or last != self._last_words:
            self._screen.say(last or self._formatter.format(record), is_alert=True)
        self._last_words = last

    # --- messages ---

    def _open(self) -> None:
        if self._looking is not None:
            return
        names = self._following.names
        shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
        self._screen.say(f"unbroken {__version__}: {'1 run' if len(names) == 1 else f'{len(names)} runs'}: {shown}")
        self._looking = threading.Thread(target=self._look_on, name="unbroken-console", daemon=True)
        self._looking.start()

    def _tell_plan(self) -> None:
        """Log how many segments a dry run has found to do, in the config's order."""
        for run in filter(self._to_do.__contains__, self._following.names):
            of_all = f"{self._to_do[run]} of {self._following.run(run).segments}"
            self._screen.say(f"{run}: {of_all} segments at most; {_standing(self._following.state(run))}")
        self._to_do.clear()

    def _tell_news(self) -> None:
        for run, attempt, line in self._following.news():
            self._screen.say(f"{time.strftime('%H:%M:%S')} {line}", is_alert=attempt.kind.is_failure)
            self._told.add((run, attempt.segment))
            self._following.state(run)

    def _notify(self) -> None:
        now = time.monotonic()
        if now - self._notified_at >= NOTIFY_SECONDS:
            self._notified_at = now
            background.notify(Path())

    def _tell_lines(self) -> None:
        now = time.monotonic()
        for run in self._following.at_work:
            if now - self._told_at.setdefault(run, now) >= LINE_SECONDS:
                self._told_at[run] = now
                self._screen.say(f"{time.strftime('%H:%M:%S')} {run}: {_standing(self._following.state(run))}")

    # --- looking after the runs ---

    def look(self) -> None:
        """Log what has happened, and show the state of the active runs."""
        self._tell_news()
        if self._screen.is_live:
            rows = self._following.rows()
            total = total_of(self._following.states()) if len(self._following.names) > 1 else ""
            self._screen.show(rows, total)
        elif self._has_progress:
            self._tell_lines()

    def _look_on(self) -> None:
        pause = LOOK_SECONDS
        while not self._stop.wait(pause):
            began = time.monotonic()
            try:
                with self.lock:
                    if self._stop.is_set():
                        return
                    self.look()
                self._notify()
            except Exception as error:  # noqa: BLE001  (whatever it is, this thread must still show the runs)
                self.on_failure(error)
                return
            pause = max(LOOK_SECONDS, (time.monotonic() - began) / LOOKING_SHARE)

    def close(self) -> None:
        """Log the last events, and remove the live lines."""
        self._stop.set()
        with self.lock:
            try:
                if self._looking is not None:
                    self._tell_news()
            finally:
                self._screen.close()


def _is_said_better(record: LogRecord) -> bool:
    """Return True for the exit code of a script of ours, and for Snakemake's summary."""
    name, text = vars(record).get("exception"), str(record.msg)
    is_exit_code = name == "RuleException" and _OUR_SCRIPT.search(text) is not None
    return is_exit_code or (name == "WorkflowError" and _SUMMARY in text)


def _standing(row: RunStatus) -> str:
    """Return `193/300 steps, 12 ns/day, 3 min left`."""
    if row.progress is None:
        return row.state.value
    done = progress_of(row, has_pace=True)
    return f"{done}, {duration(row.left_seconds)} left" if row.left_seconds else done
