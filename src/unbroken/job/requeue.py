"""Which job comes back to look for room in the queue, where several end together and each still counts itself."""

from __future__ import annotations

from collections.abc import Callable, Collection

from unbroken.runs.layout import NOTES
from unbroken.system import fs

LEAVING = NOTES / "leaving"
COMES_BACK = NOTES / "comes-back"


def may_leave(job_id: str, alive: Callable[[], Collection[str]]) -> bool:
    """True if somebody looks for room after this job: one that does not leave yet, or the one that comes back.

    `alive` says which jobs may still look.  Each job first says that it leaves and asks then.  So of those that leave
    in the same moment the last one sees that all others do, and of several that see it exactly one comes back.
    """
    LEAVING.mkdir(parents=True, exist_ok=True)
    (LEAVING / job_id).touch()
    others = set(alive()) - {job_id}
    if others - {path.name for path in LEAVING.iterdir()}:
        return True
    return not _is_the_one(job_id, others)


def has_come_back(job_id: str) -> None:
    """Takes back what was said of this job, which starts now: by itself, or by an earlier one of its number."""
    (LEAVING / job_id).unlink(missing_ok=True)
    if _named() == job_id:
        COMES_BACK.unlink(missing_ok=True)


def _is_the_one(job_id: str, others: Collection[str]) -> bool:
    if fs.create_exclusive(COMES_BACK, job_id) or _named() == job_id:
        return True
    if _named() in others:
        return False
    COMES_BACK.unlink(missing_ok=True)  # that of a job that was cancelled while it waited
    return fs.create_exclusive(COMES_BACK, job_id)


def _named() -> str:
    try:
        return COMES_BACK.read_text()
    except FileNotFoundError:
        return ""
