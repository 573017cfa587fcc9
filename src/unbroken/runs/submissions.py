"""Submissions: who submits a segment, a driver or a job of its run, and as which job.

`.snakemake/unbroken/<run>/<segment>.<number>.json`; the highest number counts.  Making the next number is something
that exactly one of them can do, so two never submit the same segment twice; a driver that starts again reads there what
the dead one had submitted.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from unbroken.runs.layout import NOTES
from unbroken.system import fs, jsontext

# Who has not said the number of its job after so long has died between the two, or sbatch hangs.
UNANSWERED_SECONDS = 120.0


class Key(NamedTuple):
    """A segment of a run."""

    run: str
    number: int


@dataclass(frozen=True)
class Submission:
    """Somebody submits, or has submitted, a segment."""

    path: Path
    number: int
    job_id: str
    age_seconds: float
    user_id: int | None = None  # of whoever wrote it

    @property
    def is_of_another_user(self) -> bool:
        """True if somebody else than the user of this process wrote it."""
        return self.user_id not in (None, os.getuid())

    @property
    def is_being_filled(self) -> bool:
        """True while Slurm is just asked; not for a file from the future, for a clock was set back."""
        return not self.job_id and abs(self.age_seconds) < UNANSWERED_SECONDS


def newest(segment: Key) -> Submission | None:
    """The one that counts."""
    paths = _paths(segment)
    if not paths:
        return None
    number, path = paths[-1]
    try:
        state = path.stat()
        age = time.time() - state.st_mtime
        return Submission(path, number, str(jsontext.parse(path.read_text())["job"]), age, state.st_uid)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Submission(path, number, "", UNANSWERED_SECONDS)


def any_of(run: str, base: Path = Path()) -> bool:
    """True if a job of the run may be out that a driver has submitted."""
    return any((base / NOTES / run).glob("*.json"))


def take(segment: Key, after: Submission | None) -> bool:
    """True if the caller, and nobody else, may submit the segment now."""
    path = _folder(segment) / f"{segment.number:03d}.{after.number + 1 if after else 1}.json"
    while True:
        _folder(segment).mkdir(parents=True, exist_ok=True)
        try:
            return fs.create_exclusive(path, _text(""))
        except FileNotFoundError:  # another driver has dropped the run's last one, and the folder, in this moment
            continue


def fill(segment: Key, job_id: str) -> None:
    """Says as which job the segment was submitted; a reader sees the file with it or without."""
    paths = _paths(segment)
    if paths:
        fs.write_atomic(paths[-1][1], _text(job_id))


def drop(segment: Key) -> None:
    """Removes all files of a segment that has its record, or that could not be submitted."""
    for _, path in _paths(segment):
        with suppress(OSError):
            path.unlink()
    with suppress(OSError):
        _folder(segment).rmdir()  # only when empty


def _folder(segment: Key) -> Path:
    return NOTES / segment.run


def _paths(segment: Key) -> list[tuple[int, Path]]:
    start = f"{segment.number:03d}."
    try:
        names = [name for name in os.listdir(_folder(segment)) if name.startswith(start) and name.endswith(".json")]
    except OSError:
        return []
    numbers = [(name.removeprefix(start).removesuffix(".json"), name) for name in names]
    return sorted((int(number), _folder(segment) / name) for number, name in numbers if number.isdecimal())


def _text(job_id: str) -> str:
    return json.dumps({"job": job_id, "host": platform.node(), "pid": os.getpid()}) + "\n"
