"""What a driver shows: events, one line each, and how the runs at work stand.

Snakemake hands its records over in a thread of their own; another one looks after the runs.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from logging import INFO, WARNING, Formatter, LogRecord
from pathlib import Path
from typing import Any

from snakemake.logging import get_event
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_unbroken.following import Following
from snakemake_logger_plugin_unbroken.screen import Screen
from unbroken import __version__
from unbroken.cli.status_table import total_of
from unbroken.report.status import RunStatus
from unbroken.runs import notify_process
from unbroken.runs.elsewhere import from_where_it_was_typed
from unbroken.runs.progress import amount
from unbroken.runs.segment_end import EndKind
from unbroken.system.clock import duration

LOOK_SECONDS = 1.0
# Into a file or a pipe each run at work gets a line so often.
LINE_SECONDS = 60.0
# How often it is looked whether somebody is to be told (`notify:`), at most.
NOTIFY_SECONDS = 60.0
# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
MOST_NAMES = 8
# What Snakemake and its Slurm plugin say at each start, at each job, or at the end, which our own lines say instead.
_CHATTER = re.compile(
    r"Building DAG of jobs|Using shell:|Provided (cores|remote nodes|resources)|Rules claiming more threads"
    r"|Select jobs to execute|Execute \d+ jobs|Finished jobid|Trying to restart job|Assuming unrestricted shared"
    r"|Removing output files of failed job \w+_segment|SLURM run ID|Job \d+ has been submitted with SLURM jobid"
    r"|Config file \S+ is extended by additional config"
    r"|unbroken: \S+ segment \d+: its work is done, no job needed"
    r"|unbroken: \S+: submitted (array of \d+ tasks|job) \d+$"
    r"|\s*Reasons:|Complete log\(s\):|Elapsed time"
)
_CHATTER_EVENTS = {
    LogEvent.WORKFLOW_STARTED,
    LogEvent.RUN_INFO,
    LogEvent.RESOURCES_INFO,
    LogEvent.PROGRESS,
    LogEvent.RULEGRAPH,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
}
# What Snakemake makes of a segment's exit code; the run's history, or the segment's log, has the reason.
_EXIT_CODE = re.compile(
    r"RuleException:\s.*\s.*\.(\w*segment|gromacs_prepare)\.py' returned non-zero exit status", re.DOTALL
)
# The Slurm plugin's warning that all is well; the one that is none says `(<`.
_ALL_WELL = re.compile(r"MinJobAge \d+s \(>=")
_INTERRUPTED = "Terminating processes on user request"
_FAILED = "Exiting because a job execution failed"
_TOLD_TO_END = "Will exit after finishing currently running jobs"
# Snakemake's last words after both: after the first nothing is an error, and the second says the same.
_AT_LEAST_ONE = re.compile(r"WorkflowError:\sAt least one job did not complete successfully")
_SEGMENT_RULE = re.compile(r"\w*_segment")


class Console:
    """Everything that a driver shows on its screen; whoever calls `handle` holds `lock`."""

    def __init__(self, screen: Screen, formatter: Formatter, is_dry: bool, has_progress: bool) -> None:
        self.lock = threading.RLock()
        # Called where looking after the runs fails.
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self._screen = screen
        self._formatter = formatter
        self._is_dry = is_dry
        self._has_progress = has_progress
        self._jobs: dict[int, tuple[str, int]] = {}  # segments that were handed out, by Snakemake's numbers
        # Other jobs of runs, which have said on the screen themselves why they failed, and in their logs.
        self._others: dict[int, str] = {}
        self._told: set[tuple[str, int]] = set()  # those of which an attempt was told since then
        self._to_do: Counter[str] = Counter()  # segments of a dry run
        self._told_again: set[str] = set()  # what a driver says of such runs at its end
        self._is_end_told = False
        self._is_interrupted = False
        self._last_words = ""  # a retry that is refused says the same again
        self._told_at: dict[str, float] = {}
        self._notified_at = time.monotonic()
        self._stop = threading.Event()
        self._looking: threading.Thread | None = None

    @cached_property
    def _following(self) -> Following:
        """Made at the first segment, when the Snakefile has been read."""
        return Following()

    # --- from Snakemake ---

    def handle(self, record: LogRecord) -> None:
        """Shows a record, or what it means."""
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
        text = str(record.msg)
        if text.startswith(_INTERRUPTED) and self._jobs:
            self._is_end_told = self._is_interrupted = True
            self._screen.say("stopping: the segments at work save and leave")
            return True
        if text.startswith(_TOLD_TO_END):
            self._is_end_told = True
            return True
        if not INFO <= record.levelno < WARNING:
            self._is_end_told = self._is_end_told or text.startswith(_FAILED)
            is_told_better = _EXIT_CODE.match(text) or _ALL_WELL.match(text)
            return bool(is_told_better or (self._is_end_told and _AT_LEAST_ONE.match(text)))
        if self._jobs and text.startswith("unbroken: "):
            self._tell_news()  # of which this line may be one
        return event in _CHATTER_EVENTS or record.getMessage() in self._told_again or _CHATTER.match(text) is not None

    def _job(self, fields: dict[str, Any]) -> None:
        wildcards = fields.get("wildcards") or {}
        run, segment = str(wildcards.get("run", "")), str(wildcards.get("segment", ""))
        is_segment = _SEGMENT_RULE.fullmatch(fields["rule_name"]) is not None and segment.isdecimal()
        if not is_segment or not self._following.knows(run):
            if self._following.knows(run) and fields.get("log"):
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
        """The run's history has the reason, or the segment's log; where both have none, Snakemake's own words."""
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

    # --- what is told ---

    def _open(self) -> None:
        if self._looking is not None:
            return
        names = self._following.names
        shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
        self._screen.say(f"unbroken {__version__}: {'1 run' if len(names) == 1 else f'{len(names)} runs'}: {shown}")
        self._looking = threading.Thread(target=self._look_on, name="unbroken-console", daemon=True)
        self._looking.start()

    def _tell_plan(self) -> None:
        """The end of a dry run, in the config's order."""
        for run in filter(self._to_do.__contains__, self._following.names):
            of_all = f"{self._to_do[run]} of {self._following.run(run).segments}"
            self._screen.say(f"{run}: {of_all} segments at most; {_standing(self._following.state(run))}")
        self._to_do.clear()

    def _tell_news(self) -> None:
        for run, attempt, line in self._following.news():
            self._screen.say(f"{time.strftime('%H:%M:%S')} {line}", is_alert=attempt.kind.is_failure)
            self._told.add((run, attempt.segment))
            self._following.state(run)
            if attempt.kind is EndKind.INTERRUPTED:
                self._told_again.add(f"unbroken: {run}: {from_where_it_was_typed(attempt.goes_on)}")
        for line in self._following.budgets():
            self._screen.say(f"{time.strftime('%H:%M:%S')} {line}")

    def _notify(self) -> None:
        now = time.monotonic()
        if now - self._notified_at >= NOTIFY_SECONDS:
            self._notified_at = now
            notify_process.start(Path())

    def _tell_lines(self) -> None:
        now = time.monotonic()
        for run in self._following.at_work:
            if now - self._told_at.setdefault(run, now) >= LINE_SECONDS:
                self._told_at[run] = now
                self._screen.say(f"{time.strftime('%H:%M:%S')} {run}: {_standing(self._following.state(run))}")

    # --- looking after the runs ---

    def look(self) -> None:
        """Tells what has happened, and shows how the runs at work stand."""
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
            except Exception as error:  # noqa: BLE001  (whatever it is, somebody has to show the runs)
                self.on_failure(error)
                return
            pause = max(LOOK_SECONDS, (time.monotonic() - began) / LOOKING_SHARE)

    def close(self) -> None:
        """The last news; no line is live any more."""
        self._stop.set()
        with self.lock:
            try:
                if self._looking is not None:
                    self._tell_news()
            finally:
                self._screen.close()


def _standing(row: RunStatus) -> str:
    """`193/300 steps, 12 ns/day, 3 min left`."""
    if row.progress is None:
        return row.state.value
    goal = "" if row.progress.goal is None else f"/{row.progress.goal:.10g}"
    pace = row.progress.metrics.get("pace")
    parts = [f"{amount(row.progress.done)}{goal} {row.progress.unit}", *([pace] if isinstance(pace, str) else [])]
    return ", ".join([*parts, *([f"{duration(row.left_seconds)} left"] if row.left_seconds else [])])
