"""Submissions: the process that submits the jobs of a run, a driver or a job of the run, and the array.

`.snakemake/unbroken/chains/<run>/<number>.json`; the highest number counts.  Making the next number is something that
exactly one of them can do, so two never submit at once; a driver that starts again reads there what the dead one had
submitted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import job_of_anyone
from unbroken.store.layout import CHAINS, Format
from unbroken.system import fs

FORMAT = Format()
# A process that has not said the number of its job after so long was killed between the two: longer than sbatch may
# take (unbroken.slurm.sbatch).
UNANSWERED_SECONDS = 180.0
# So many are kept: a later job may have to say how one of theirs ended.
KEPT = 10


@dataclass(frozen=True)
class Submission:
    """A submission that is made now (`job_id` is empty), or was, by sbatch's `words`, as far as they are known."""

    path: Path
    number: int
    job_id: str = ""
    words: tuple[str, ...] = ()
    age_seconds: float = 0.0
    user_id: int | None = None  # of the process that wrote it

    @property
    def is_being_filled(self) -> bool:
        """Return True while Slurm is asked; not for a file from the future, for a clock was set back."""
        return not self.job_id and abs(self.age_seconds) < UNANSWERED_SECONDS

    def job_of_other_user(self) -> ListedJob | None:
        """Return another user's job of this folder that is in the queue by this submission."""
        is_other = self.user_id not in (None, os.getuid())
        job = job_of_anyone(self.job_id) if self.job_id and is_other else None
        return job if job is not None and job.is_alive and job.folder.resolve() == Path().resolve() else None

    def fill(self, job_id: str, words: Sequence[str] = ()) -> None:
        """Write the number of the array, or job, that was submitted, and what its tasks ask for.

        A reader sees the file with the number or without.  Slurm may have been asked for so long that another process
        has taken the next one.
        """
        fs.write_atomic(self.path, _text(job_id, words))

    def renew(self) -> None:
        """Update the time: Slurm is still being asked, which may take minutes for each answer."""
        with suppress(OSError):
            os.utime(self.path)

    def give_back(self) -> None:
        """Remove a submission that was refused, so that others may submit."""
        with suppress(OSError):
            self.path.unlink()


def newest(key: str, base: Path = Path()) -> Submission | None:
    """Return the one that counts; None if nothing was ever submitted."""
    return next((found for found in map(_read, reversed(_all(key, base))) if found is not None), None)


def job_ids(key: str, base: Path = Path()) -> list[str]:
    """Return the numbers of the last jobs and arrays that were submitted, oldest first."""
    return [found.job_id for found in map(_read, _all(key, base)) if found is not None and found.job_id]


def any_of(run: str, base: Path = Path()) -> bool:
    """Return True if a job of the run may be in the queue."""
    return bool(_all(run, base))


def take(key: str, after: Submission | None) -> Submission | None:
    """Return the caller's own submission if it, and no other process, may submit the run's jobs now; else None."""
    folder, number = CHAINS / key, after.number + 1 if after else 1
    folder.mkdir(parents=True, exist_ok=True)
    own = Submission(folder / f"{number}.json", number, user_id=os.getuid())
    if not fs.create_exclusive(own.path, _text("")):
        return None
    known = _all(key, Path())
    if known[-1].number > number:  # others have submitted so often meanwhile that the file of that number is gone
        own.give_back()
        return None
    for old in known[:-KEPT]:
        if old.number < number - KEPT:
            old.give_back()
    return own


def _read(own: Submission) -> Submission | None:
    try:
        state = own.path.stat()
        age, found = time.time() - state.st_mtime, FORMAT.read(own.path)
        return replace(
            own, job_id=str(found["job"]), words=tuple(found.get("words", ())), age_seconds=age, user_id=state.st_uid
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return replace(own, age_seconds=UNANSWERED_SECONDS)


def _all(key: str, base: Path) -> list[Submission]:
    """Return the submissions of a chain in order, unread."""
    folder = base / CHAINS / key
    try:
        names = [name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return []
    return [Submission(folder / f"{number}.json", number) for number in sorted(int(n) for n in names if n.isdecimal())]


def _text(job_id: str, words: Sequence[str] = ()) -> str:
    return FORMAT.text({"job": job_id, "words": list(words)}, indent=None)
