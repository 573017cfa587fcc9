"""What the report shows, as plain values: the folder as a whole, and each of its runs."""

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
from unbroken.accounting.account import Account
from unbroken.accounting.kinds import Kind
from unbroken.errors import UnbrokenError
from unbroken.report.curves import curves_of, thinned
from unbroken.report.life import progress_points, thinned_spans
from unbroken.report.run_folders import run_folder, segment_logs
from unbroken.report.status import BY_NEED, RunState, RunStatus, how_to_start
from unbroken.report.time_account import account_of
from unbroken.runs.attempts import all_attempts
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.environment import in_words
from unbroken.runs.history import Attempt
from unbroken.runs.layout import RunFolder
from unbroken.runs.passport import Passport
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.slurm.jobs_out import Queue

# Of more runs than this the others have their row and their account alone; of more attempts the last ones are shown.
DETAILED_RUNS = 150
SHOWN_ATTEMPTS = 100
_AT_WORK = {RunState.WORKING, RunState.QUEUED}
_NEEDS_A_HAND = {RunState.UNREADABLE, RunState.STOPPED, RunState.USED_UP}


@dataclass(frozen=True)
class Promise:
    """When whoever writes the page will do so again: within `seconds`, while something is at work; 0: it will not."""

    seconds: float = 0.0
    writer: str = ""  # who that is, for the one who finds the page too old


def folder_facts(
    rows: Sequence[RunStatus],
    runs: Mapping[str, Run],
    base: Path,
    queue: Queue,
    page: Path,
    promise: Promise,
) -> dict[str, object]:
    """All of the page: `rows` are the runs as `status` tells them, `page` is where it will stand, for its links."""
    is_left = not promise.seconds and not any(row.state in _AT_WORK for row in rows)
    needy = _NEEDS_A_HAND | ({RunState.PAUSED} if is_left else set())
    needy_runs = {row.run for row in rows if row.state in needy or row.budget}
    ordered = sorted(rows, key=lambda row: (row.run not in needy_runs, BY_NEED.index(row.state)))
    told = [
        _run_facts(row, runs.get(row.run), base, queue, page, place < DETAILED_RUNS)
        | {"needs_a_hand": row.run in needy_runs}
        for place, row in enumerate(ordered)
    ]
    return {
        "version": __version__,
        "folder": str(base.resolve()),
        "name": base.resolve().name,
        "written": time.time(),
        "promise": vars(promise),
        "kinds": [[kind.name.lower(), kind.value] for kind in Kind],
        "states": [state.value for state in BY_NEED],
        "runs": told,
    }


def _run_facts(
    row: RunStatus, run: Run | None, base: Path, queue: Queue, page: Path, is_detailed: bool
) -> dict[str, object]:
    places = run_folder(row.run, base) if run is None else RunFolder(row.run, base)
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
    if row.state is RunState.UNREADABLE:
        return facts
    # What one run has spoilt takes nothing from the others.
    with suppress(OSError, UnbrokenError, ValueError, TypeError, ArithmeticError):
        facts |= _what_it_cost(row, places, base, queue, page, is_detailed)
    return facts


def _what_it_cost(
    row: RunStatus, places: RunFolder, base: Path, queue: Queue, page: Path, is_detailed: bool
) -> dict[str, object]:
    attempts = all_attempts(places)
    found = account_of(row.run, base, queue, attempts)
    facts: dict[str, object] = {"account": _account(found), "attempts_made": len(attempts)}
    if not is_detailed:
        return facts
    checkpoints = Store(places.checkpoints).readable()
    done, unit = (row.progress.done, row.progress.unit) if row.progress else (None, "")
    points = progress_points(attempts, checkpoints, found.end, done)
    link = _Links(page)
    logs = segment_logs(places)
    made_by = {"engine": checkpoints[-1].passport.engine} if checkpoints else {}
    return (
        facts
        | made_by
        | {
            "begin": round(found.begin, 1),
            "end": round(found.end, 1),
            "spans": [
                [list(Kind).index(span.kind), round(span.begin, 1), round(span.end, 1), span.token]
                for span in thinned_spans(found.spans)
            ],
            "points": [[round(at, 1), value] for at, value in thinned(points)],
            "forecast": _fan(row),
            "attempts": [_attempt(each, link, logs, base) for each in attempts[-SHOWN_ATTEMPTS:]],
            "checkpoints": [_checkpoint(each, link) for each in reversed(checkpoints)],
            "curves": [curve.to_json() for curve in curves_of(places, checkpoints, unit)],
            "type": _lines_to_type(row, places, attempts),
            "links": link.all({"history": places.history, "results": places.final, "logs": places.log(1).parent}),
        }
    )


def _account(found: Account) -> dict[str, object]:
    return {
        "seconds": {kind.name.lower(): round(found.seconds[kind], 1) for kind in Kind if found.seconds[kind]},
        "goodput": found.goodput,
        "kills": found.kills,
        "kept": round(found.kept_by_checkpoints, 1),
    }


def _fan(row: RunStatus) -> list[float] | None:
    """Seconds until the goal: 5 %, median, 90 %, 95 %."""
    if row.forecast is None or row.state not in {RunState.WORKING, RunState.QUEUED, RunState.PAUSED}:
        return None
    made = row.forecast
    return [round(each, 1) for each in (made.low_seconds, made.median_seconds, made.p90_seconds, made.high_seconds)]


def _attempt(attempt: Attempt, link: _Links, logs: Mapping[int, Path], base: Path) -> dict[str, object]:
    own = base / attempt.log  # an attempt that failed names its own
    log = own if attempt.log and own.exists() else logs.get(attempt.segment)
    return {
        "segment": attempt.segment,
        "kind": attempt.kind,
        "why": attempt.why,
        "settles": attempt.kind.settles,
        "from": attempt.progress_from,
        "to": attempt.progress_to,
        "began": attempt.started_utc,
        "ended": attempt.ended_utc,
        "work": round(attempt.work_seconds, 1),
        "node": attempt.slurm_node or attempt.host,
        "job": attempt.slurm_job,
        "message": attempt.line(),
        "is_told": not attempt.kind.settles or attempt.was_killed_stopping,
        "log": link.to(log) if log else "",
    }


def _checkpoint(checkpoint: Checkpoint, link: _Links) -> dict[str, object]:
    passport = checkpoint.passport
    marks = (("best", passport.is_best), ("milestone", passport.is_milestone), ("goal", passport.is_finished))
    return {
        "name": checkpoint.name,
        "made": passport.created_utc,
        "done": passport.progress.done,
        "bytes": sum(entry.size_bytes for entry in passport.files.values()),
        "files": len(passport.files),
        "is": [word for word, is_so in marks if is_so],
        "parent": passport.parent or "",
        "host": str(passport.host.get("name", "")),
        "versions": _made_with(passport),
        "passport": link.to(checkpoint.folder / "manifest.json"),
    }


def _made_with(passport: Passport) -> str:
    """Versions, and what the program was started in where the run says it."""
    versions = ", ".join(f"{name} {version}" for name, version in passport.versions.items())
    return f"{versions}; {in_words(passport.environment)}" if passport.environment else versions


def _lines_to_type(row: RunStatus, places: RunFolder, attempts: Sequence[Attempt]) -> list[list[str]]:
    """What a user types next, each with what it is for."""
    name = shlex.quote(row.run)
    lines = []
    if row.state not in {RunState.FINISHED, RunState.WORKING, RunState.QUEUED}:
        lines.append([how_to_start(places, attempts), "goes on"])
    lines.append(
        [f"unbroken logs {name}" + (" -f" if row.state is RunState.WORKING else ""), "what the program prints"]
    )
    lines.append([f"unbroken status {name}", "all attempts"])
    lines.append([f"unbroken verify {name}", "reads every byte of its checkpoints again"])
    return lines


class _Links:
    """Paths as they lead on from the folder of the page; of what is not there nothing."""

    def __init__(self, page: Path) -> None:
        self._folder = page.parent.absolute()

    def to(self, path: Path) -> str:
        return quote(os.path.relpath(path.absolute(), self._folder)) if path.exists() else ""

    def all(self, paths: Mapping[str, Path]) -> dict[str, str]:
        return {name: found for name, path in paths.items() if (found := self.to(path))}
