"""Submissions: the process that submits the jobs of a run, a driver or a job of the run, and the array.

`.snakemake/unbroken/chains/<run>/<number>.json`; the highest number counts.  Making the next number is something that
exactly one of them can do, so two never submit at once; a driver that starts again reads there what the dead one had
submitted.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unbroken.runs.formats import Format
from unbroken.runs.layout import CHAINS
from unbroken.system import fs

FORMAT = Format()
# A process that has not said the number of its job after so long was killed between the two: longer than sbatch may
# take (unbroken.slurm.sbatch).
UNANSWERED_SECONDS = 180.0
# So many are kept: a later job may have to say how one of theirs ended.
KEPT = 10


@dataclass(frozen=True)
class Submission:
    """A submission that is made now (`job_id` is empty), or was."""

    path: Path
    number: int
    job_id: str
    age_seconds: float
    user_id: int | None = None  # of the process that wrote it

    @property
    def is_of_another_user(self) -> bool:
        """Return True if another user than that of this process wrote it."""
        return self.user_id not in (None, os.getuid())

    @property
    def is_being_filled(self) -> bool:
        """Return True while Slurm is asked; not for a file from the future, for a clock was set back."""
        return not self.job_id and abs(self.age_seconds) < UNANSWERED_SECONDS


def newest(key: str, base: Path = Path()) -> Submission | None:
    """Return the one that counts; None if nothing was ever submitted."""
    paths = _paths(key, base)
    return _read(*paths[-1]) if paths else None


def job_ids(key: str, base: Path = Path()) -> list[str]:
    """Return the numbers of the last jobs and arrays that were submitted, oldest first."""
    found = [_read(number, path) for number, path in _paths(key, base)]
    return [submission.job_id for submission in found if submission is not None and submission.job_id]


def any_of(run: str, base: Path = Path()) -> bool:
    """Return True if a job of the run may be in the queue."""
    return bool(_paths(run, base))


def take(key: str, after: Submission | None) -> Submission | None:
    """Return the caller's own submission if it, and no other process, may submit the run's jobs now; else None."""
    number = after.number + 1 if after else 1
    folder = CHAINS / key
    folder.mkdir(parents=True, exist_ok=True)
    taken = folder / f"{number}.json"
    if not fs.create_exclusive(taken, _text("")):
        return None
    paths = _paths(key, Path())
    if paths[-1][0] > number:  # others have submitted so often meanwhile that the file of that number is gone
        taken.unlink(missing_ok=True)
        return None
    for old, path in paths[:-KEPT]:
        if old < number - KEPT:
            with suppress(OSError):
                path.unlink()
    return Submission(taken, number, "", 0.0, os.getuid())


def fill(own: Submission, job_id: str, words: Sequence[str] = ()) -> None:
    """Write the number of the array, or job, that was submitted, and sbatch's words for it.

    A reader sees the file with the number or without.  `own` is what `take` gave: Slurm may have been asked for so long
    that another process has taken the next one.
    """
    fs.write_atomic(own.path, _text(job_id, words))


def words_of_newest(key: str) -> list[str] | None:
    """Return sbatch's words for the newest submission.

    None if they are not known, as of a process that was killed between its sbatch and its note.
    """
    try:
        return list(FORMAT.found(_paths(key, Path())[-1][1])["words"]) or None
    except (KeyError, TypeError, IndexError):
        return None


def note_words(key: str, words: Sequence[str]) -> None:
    """Write what the waiting tasks of the newest submission ask for by now."""
    found = newest(key)
    if found is not None and found.job_id:
        fs.write_atomic(found.path, _text(found.job_id, words))


def renew(own: Submission) -> None:
    """Update the time of a submission: Slurm is still being asked, which may take minutes for each answer."""
    with suppress(OSError):
        os.utime(own.path)


def give_back(own: Submission) -> None:
    """Remove a submission that was refused, so that others may submit."""
    with suppress(OSError):
        own.path.unlink()


def _read(number: int, path: Path) -> Submission | None:
    try:
        state = path.stat()
        return Submission(path, number, str(FORMAT.read(path)["job"]), time.time() - state.st_mtime, state.st_uid)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Submission(path, number, "", UNANSWERED_SECONDS)


def _paths(key: str, base: Path) -> list[tuple[int, Path]]:
    folder = base / CHAINS / key
    try:
        names = [name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return []
    return sorted((int(name), folder / f"{name}.json") for name in names if name.isdecimal())


def _text(job_id: str, words: Sequence[str] = ()) -> str:
    data = {"job": job_id, "host": platform.node(), "pid": os.getpid(), "words": list(words)}
    return FORMAT.text(data, indent=None)
