"""What an attempt's program is started in, against what the checkpoint was made in that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping

from unbroken.errors import ChangedEnvironmentError
from unbroken.program.environment import described, unread
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.environment import changes, in_words, refusal
from unbroken.segment.job import Job


def environment_for(job: Job, origin: Checkpoint | None) -> Mapping[str, Mapping[str, object]]:
    """What the run names, for the passport; tells each change.

    ChangedEnvironmentError in a strict run; the checkpoint is as good as before, and nothing is set aside.
    """
    parts = described(job.run, job.base)
    if parts:
        job.tell(f"environment: {in_words(parts)}")
    found = changes(origin.passport, parts, unread(job.run, parts)) if origin else []
    if found and job.run.is_strict:
        raise ChangedEnvironmentError(refusal(job.run.name, found))
    for line in found:
        job.tell(line)
    return parts
