"""When the records of jobs without a driver were worked at, as Snakemake's report is to show it.

Of such a job Snakemake notes when it was submitted, and of one that a job has submitted nothing.  The next start mends
that.  This relies on where Snakemake 9.27 keeps its notes (persistence/file.py), and on nothing where they are
elsewhere.
"""

from __future__ import annotations

import json
import os
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.runs import submissions
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
        if not submissions.any_of(run.name, base):
            continue
        places = RunFolder(run.name, base)
        with suppress(OSError, ValueError, UnbrokenError):
            for record, attempt in _made_since(places):
                _set_times(places, record, attempt)


def _made_since(places: RunFolder) -> Iterator[tuple[Path, Attempt]]:
    """The records that are younger than Snakemake's note of them, or have none, and the attempts that made them."""
    late = [path for path in sorted(places.segments.glob("*.json")) if _is_younger(path, places.base)]
    if not late:
        return
    made = {attempt.segment: attempt for attempt in History(places.history).attempts() if attempt.kind.settles}
    for path in late:
        if path.stem.isdecimal() and (attempt := made.get(int(path.stem))) is not None:
            yield path, attempt


def _is_younger(record: Path, base: Path) -> bool:
    try:
        note = base / METADATA / _file_of(record.relative_to(base))
        return record.stat().st_mtime > note.stat().st_mtime + SAME_SECONDS
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _set_times(places: RunFolder, record: Path, attempt: Attempt) -> None:
    ended = record.stat().st_mtime
    began = attempt.times.job_started or unix_seconds(attempt.started_utc)
    if (data := _note_about(places, attempt.segment)) is not None:
        note = places.base / METADATA / _file_of(record.relative_to(places.base))
        fs.write_atomic(note, json.dumps({**data, "starttime": min(began, ended), "endtime": ended}))


def _note_about(places: RunFolder, segment: int) -> dict[str, Any] | None:
    """Snakemake's note about a record; where it has none, as its note about an earlier one says it of this one."""
    here = RunFolder(places.name)
    for number in range(segment, 0, -1):
        try:
            data = jsontext.parse((places.base / METADATA / _file_of(here.record(number))).read_text())
        except FileNotFoundError:
            continue
        if number == segment:
            return dict(data)
        record = here.record(segment)
        of_segment = {"input": [str(here.record(segment - 1))], "log": [str(here.log(segment))]}
        # The report takes outputs of one rule and one number for those of one job.
        number_of_job = zlib.crc32(os.fspath(record).encode())
        return {**data, **of_segment, "job_hash": number_of_job, "external_jobid": None, "input_checksums": {}}
    return None


def _file_of(output: Path) -> str:
    """The name of Snakemake's note about an output; a longer one is cut into folders, and then not found."""
    return urlsafe_b64encode(os.fspath(output).encode()).decode()
