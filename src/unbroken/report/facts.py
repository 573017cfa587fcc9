"""Collect what the page shows, as plain values: the folder as a whole, and each of its runs."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from unbroken import __version__
from unbroken.errors import UnbrokenError
from unbroken.program.environment import in_words
from unbroken.report.account import account_of
from unbroken.report.charts import curves_of, progress_points, thinned, thinned_spans
from unbroken.report.known import run_folder, segment_logs
from unbroken.report.spans import Kind
from unbroken.report.status import BY_NEED, RunState, RunStatus, how_to_start
from unbroken.slurm.queue import Queue
from unbroken.store.attempts import all_attempts
from unbroken.store.checkpoint import Checkpoint, Passport
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec

# Of more runs than this the others have their row and their account alone; of more attempts the last ones are shown.
DETAILED_RUNS = 150
SHOWN_ATTEMPTS = 100
_AT_WORK = {RunState.WORKING, RunState.QUEUED}
_NEEDS_A_HAND = {RunState.UNREADABLE, RunState.STOPPED, RunState.USED_UP}
_HAS_FORECAST = _AT_WORK | {RunState.PAUSED}


@dataclass(frozen=True)
class Promise:
    """Promise when the page will be written again: within `seconds`, while a run is active; 0: it will not."""

    seconds: float = 0.0
    writer: str = ""  # who writes it, for a reader who finds the page too old


NO_PROMISE = Promise()


@dataclass(frozen=True)
class _Place:
    """Hold where the page will be, and what its runs are read from."""

    base: Path
    queue: Queue
    page: Path

    def link(self, path: Path) -> str:
        """Return the path as it leads on from the folder of the page; empty if nothing is there."""
        folder = self.page.parent.absolute()
        return quote(os.path.relpath(path.absolute(), folder)) if path.exists() else ""


def folder_facts(
    rows: Sequence[RunStatus],
    runs: Mapping[str, RunSpec],
    base: Path,
    queue: Queue,
    *,
    page: Path,
    promise: Promise = NO_PROMISE,
) -> dict[str, object]:
    """Return all of the page: `rows` are the runs as `status` shows them, `page` is where it will be, for its links."""
    is_left = not promise.seconds and not any(row.state in _AT_WORK for row in rows)
    needy = _NEEDS_A_HAND | ({RunState.PAUSED} if is_left else set())
    needy_runs = {row.run for row in rows if row.state in needy or row.budget}
    ordered = sorted(rows, key=lambda row: (row.run not in needy_runs, BY_NEED.index(row.state)))
    place = _Place(base, queue, page)
    return {
        "version": __version__,
        "folder": str(base.resolve()),
        "name": base.resolve().name,
        "written": time.time(),
        "promise": vars(promise),
        "kinds": [[kind.name.lower(), kind.value] for kind in Kind],
        "states": [state.value for state in BY_NEED],
        "runs": [
            _run_facts(row, runs.get(row.run), place, is_detailed=number < DETAILED_RUNS)
            | {"needs_a_hand": row.run in needy_runs}
            for number, row in enumerate(ordered)
        ],
    }


def _run_facts(row: RunStatus, run: RunSpec | None, place: _Place, *, is_detailed: bool) -> dict[str, object]:
    facts: dict[str, object] = {
        "name": row.run,
        "state": row.state.value,
        "done": row.progress.done if row.progress else None,
        "goal": row.progress.goal if row.progress else (run.goal if run else None),
        "unit": row.progress.unit if row.progress else "",
        "used": row.segments_used,
        "segments": row.segments,
        "checkpoint_age": row.checkpoint_age_seconds,
        "left": row.left_seconds,
        "advice": row.advice,
        "finish": row.finish,
        "budget": row.budget,
        "doubts": list(row.doubts),
        "output": row.output.words(),
        "note": run.note if run else "",
        "engine": run.engine if run else "",
    }
    if row.state is not RunState.UNREADABLE:
        # A damaged file of one run takes nothing from the others.
        with suppress(OSError, UnbrokenError, ValueError, TypeError, ArithmeticError):
            places = run_folder(row.run, place.base) if run is None else RunFolder(row.run, place.base)
            facts |= _from_history(row, places, place, is_detailed=is_detailed)
    return facts


def _from_history(row: RunStatus, places: RunFolder, place: _Place, *, is_detailed: bool) -> dict[str, object]:
    attempts = all_attempts(places)
    found = account_of(row.run, place.base, place.queue, attempts)
    seconds = {kind.name.lower(): round(found.seconds[kind], 1) for kind in Kind if found.seconds[kind]}
    account = {"seconds": seconds, "kills": found.kills, "kept": round(found.kept_by_checkpoints, 1)}
    facts: dict[str, object] = {"account": account, "attempts_made": len(attempts)}
    if not is_detailed:
        return facts
    checkpoints = Store(places.checkpoints).readable()
    done, unit = (row.progress.done, row.progress.unit) if row.progress else (None, "")
    points = progress_points(attempts, checkpoints, found.end, done)
    logs = segment_logs(places)
    kinds = list(Kind)
    links = {"history": places.history, "results": places.final, "logs": places.log(1).parent}
    facts |= {"engine": checkpoints[-1].passport.engine} if checkpoints else {}
    return facts | {
        "spans": [
            [kinds.index(span.kind), round(span.begin, 1), round(span.end, 1)] for span in thinned_spans(found.spans)
        ],
        "points": [[round(at, 1), value] for at, value in thinned(points)],
        "forecast": _fan(row),
        "attempts": [_attempt(each, logs, place) for each in attempts[-SHOWN_ATTEMPTS:]],
        "checkpoints": [_checkpoint(each, place) for each in reversed(checkpoints)],
        "curves": [curve.to_json() for curve in curves_of(places, checkpoints, unit)],
        "type": _lines_to_type(row, places, attempts),
        "links": {name: link for name, path in links.items() if (link := place.link(path))},
    }


def _fan(row: RunStatus) -> list[float] | None:
    """Return seconds until the goal: 5 %, median, 90 %, 95 %."""
    made = row.forecast
    if made is None or row.state not in _HAS_FORECAST:
        return None
    return [round(each, 1) for each in (made.low_seconds, made.median_seconds, made.p90_seconds, made.high_seconds)]


def _attempt(attempt: Attempt, logs: Mapping[int, Path], place: _Place) -> dict[str, object]:
    own = place.base / attempt.log  # an attempt that failed names its own
    log = own if attempt.log and own.exists() else logs.get(attempt.segment)
    return {
        "segment": attempt.segment,
        "kind": attempt.kind,
        "why": attempt.why,
        "from": attempt.progress_from,
        "to": attempt.progress_to,
        "began": attempt.started_utc,
        "ended": attempt.ended_utc,
        "work": round(attempt.work_seconds, 1),
        "node": attempt.slurm_node or attempt.host,
        "job": attempt.slurm_job,
        "message": attempt.line(),
        "is_told": not attempt.kind.settles or attempt.was_killed_stopping,
        "log": place.link(log) if log else "",
    }


def _checkpoint(checkpoint: Checkpoint, place: _Place) -> dict[str, object]:
    passport = checkpoint.passport
    marks = (("best", passport.is_best), ("milestone", passport.is_milestone), ("goal", passport.is_finished))
    return {
        "name": checkpoint.name,
        "made": passport.created_utc,
        "done": passport.progress.done,
        "bytes": sum(entry.size_bytes for entry in passport.files.values()),
        "is": [word for word, is_so in marks if is_so],
        "parent": passport.parent or "",
        "host": str(passport.host.get("name", "")),
        "versions": _made_with(passport),
        "passport": place.link(checkpoint.folder / "manifest.json"),
    }


def _made_with(passport: Passport) -> str:
    """Return the versions, and the environment of the program where the run says it."""
    versions = ", ".join(f"{name} {version}" for name, version in passport.versions.items())
    return f"{versions}; {in_words(passport.environment)}" if passport.environment else versions


def _lines_to_type(row: RunStatus, places: RunFolder, attempts: Sequence[Attempt]) -> list[list[str]]:
    """Return what a user types next, each line with what it is for."""
    name = shlex.quote(row.run)
    is_still = row.state not in _AT_WORK | {RunState.FINISHED}
    follow = " -f" if row.state is RunState.WORKING else ""
    return [
        *([[how_to_start(places, attempts), "resumes the run"]] if is_still else []),
        [f"unbroken logs {name}{follow}", "what the program prints"],
        [f"unbroken status {name}", "all attempts"],
        [f"unbroken verify {name}", "reads every byte of its checkpoints again"],
    ]
