"""Follow the runs of this driver by their own files: attempts that ended, and the state of each run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.errors import FormatError
from unbroken.plan.elsewhere import from_where_it_was_typed
from unbroken.plan.load import driven_plans
from unbroken.report.status import RunState, RunStatus, status_of
from unbroken.slurm.queue import RecentQueue
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.progress import amount
from unbroken.store.run import RunSpec
from unbroken.system.clock import duration

# A line of a segment's log, but the one that names it.
_OWN_LINE = re.compile(r"unbroken \S+Z (\S+ segment \d+: (?!log: ).*)")
_TAIL_BYTES = 100_000
# Slurm's controller is asked no more often, however many runs there are.
QUEUE_SECONDS = 60.0


class Following:
    """The runs of this driver, those that have an active segment, and the attempts that were logged already."""

    def __init__(self) -> None:
        self._runs = {run.name: run for plan in driven_plans() for run in plan.runs}
        self._told = {name: len(_history(name)) for name in self._runs}
        self._at_work: dict[str, set[int]] = {}
        self._states: dict[str, RunStatus] = {}
        self._queue = RecentQueue(Path(), QUEUE_SECONDS)

    @property
    def names(self) -> list[str]:
        """Return all runs of the config."""
        return list(self._runs)

    def run(self, name: str) -> RunSpec:
        return self._runs[name]

    def knows(self, run: str) -> bool:
        return run in self._runs

    def begin(self, run: str, segment: int) -> None:
        """Note that a segment was handed out."""
        self._at_work.setdefault(run, set()).add(segment)

    def end(self, run: str, segment: int) -> None:
        """Note that it is over, well or not."""
        self._at_work.get(run, set()).discard(segment)

    @property
    def at_work(self) -> dict[str, int]:
        """Return the runs that have a segment out, and which: the first, where without a driver several are out."""
        return {run: min(segments) for run, segments in self._at_work.items() if segments}

    def news(self) -> Iterator[tuple[str, Attempt, str]]:
        """Yield the attempts that were noted since the last call, each with its run and its line."""
        for name in self._at_work:
            attempts = _history(name)
            for attempt in attempts[self._told[name] :]:
                yield name, attempt, from_where_it_was_typed(line_of(self._runs[name], attempt))
            self._told[name] = len(attempts)

    def rows(self) -> list[RunStatus]:
        """Return the present state of the active runs."""
        queue = self._queue.look()
        found = [_driven(status_of(name, Path(), self._runs[name], queue)) for name in self.at_work]
        self._states.update({row.run: row for row in found})
        return found

    def last_words(self, run: str, segment: int) -> str:
        """Return the last line of unbroken in a segment's log, as `demo segment 2: ...`; empty if none is there."""
        with suppress(OSError):
            text = RunFolder(run).log(segment).read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
            found = [match[1] for line in text.splitlines() if (match := _OWN_LINE.fullmatch(line))]
            return from_where_it_was_typed(found[-1]) if found else ""
        return ""

    def states(self) -> list[RunStatus]:
        """Return how all runs stood when they were last looked at."""
        return [self._states[name] if name in self._states else self.state(name) for name in self._runs]

    def state(self, name: str) -> RunStatus:
        """Return how a run stands now."""
        self._states[name] = status_of(name, Path(), self._runs[name])
        return self._states[name]


def _driven(row: RunStatus) -> RunStatus:
    """Return the status without the advice to start Snakemake, between two segments; the forecast stays."""
    told = "; ".join(filter(None, (row.finish, row.budget)))
    return replace(row, advice=told) if row.state in {RunState.NOT_STARTED, RunState.PAUSED} else row


def line_of(run: RunSpec, attempt: Attempt) -> str:
    """Return `demo segment 2 of 20: 193/300 steps, 3 s of work`; with the reason where nothing was settled."""
    places = RunFolder(run.name)
    goal = "" if run.goal is None else f"/{run.goal:.10g}"
    done = f"{amount(attempt.progress_to)}{goal} {attempt.unit}".rstrip()
    start = f"{run.name} segment {attempt.segment} of {run.segments}"
    match attempt.kind:
        case EndKind.FINISHED:
            return f"{start}: finished, {done}; results: {places.final}"
        case EndKind.PAUSED if attempt.was_killed_stopping:
            return f"{start}: saved at {done}: {attempt.message}"
        case EndKind.PAUSED:
            return f"{start}: saved at {done}, {duration(attempt.work_seconds)} of work"
        case EndKind.INTERRUPTED:
            return f"{start}: {attempt.goes_on}"
    return f"{start}: {attempt.kind} at {done}: {attempt.line(places.log(attempt.segment))}"


def _history(run: str) -> list[Attempt]:
    with suppress(OSError, FormatError):  # a file server that is away for a moment; what a newer unbroken wrote
        return History(RunFolder(run).history).attempts()
    return []
