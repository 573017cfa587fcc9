"""When the records of jobs without a driver were worked at, as Snakemake's report is to show it.

Of such a job Snakemake notes when it was submitted.  The next start mends that.  This relies on where Snakemake 9.27
keeps its notes (persistence/file.py), and on nothing where they are elsewhere.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from unbroken.detached.resubmit import was_submitted
from unbroken.errors import UnbrokenError
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.system import fs, jsontext
from unbroken.system.clock import unix_seconds

METADATA = Path(".snakemake/metadata")
# Two clocks may differ by so much.
SAME_SECONDS = 1.0


def give_true_times(runs: Iterable[Run], base: Path) -> None:
    """Lets Snakemake's report show when the records of runs without a driver were worked at."""
    for run in runs:
        if not was_submitted(run.name, base):
            continue
        places = RunFolder(run.name, base)
        with suppress(OSError, ValueError, UnbrokenError):
            for record, attempt in _made_since(places):
                _set_times(base, RunFolder(run.name).segments / record.name, attempt, record.stat().st_mtime)


def _made_since(places: RunFolder) -> Iterator[tuple[Path, Attempt]]:
    """The records that are younger than Snakemake's note of them, and the attempts that made them."""
    late = [path for path in sorted(places.segments.glob("*.json")) if _is_younger(path, places.base)]
    if not late:
        return
    made = {attempt.segment: attempt for attempt in History(places.history).attempts() if attempt.outcome.settles}
    for path in late:
        if path.stem.isdecimal() and (attempt := made.get(int(path.stem))) is not None:
            yield path, attempt


def _is_younger(record: Path, base: Path) -> bool:
    try:
        note = base / METADATA / _file_of(record.relative_to(base))
        return record.stat().st_mtime > note.stat().st_mtime + SAME_SECONDS
    except OSError:
        return False


def _set_times(base: Path, record: Path, attempt: Attempt, ended: float) -> None:
    note = base / METADATA / _file_of(record)
    data = jsontext.parse(note.read_text())
    began = attempt.times.job_started or unix_seconds(attempt.started_utc)
    fs.write_atomic(note, json.dumps({**data, "starttime": min(began, ended), "endtime": ended}))


def _file_of(output: Path) -> str:
    """The name of Snakemake's note about an output; a longer one is cut into folders, and then not found."""
    return urlsafe_b64encode(os.fspath(output).encode()).decode()
