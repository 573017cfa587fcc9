"""Whether the time of the job around `unbroken exec` is up."""

import time
from dataclasses import replace

import pytest
from support.making import ATTEMPT

from unbroken.exec.main import is_time_up
from unbroken.slurm.this_job import SlurmJob
from unbroken.store.history import EndKind

# Told 60 s before the end of job 7, and gone 20 s later.
PAUSED = replace(ATTEMPT, slurm_job="7", kind=EndKind.PAUSED, stop_seconds=20.0, unused_seconds=40.0)


def job(left_seconds: float | None, number: str = "7") -> SlurmJob:
    return SlurmJob(number, "node1", "short", None if left_seconds is None else time.time() + left_seconds)


@pytest.mark.parametrize(
    ("attempt", "left_seconds"),
    [(PAUSED, 38), (PAUSED, -3), (ATTEMPT, -3)],
)
def test_it_is_up_behind_a_pause_at_the_end_of_the_same_job_and_behind_its_end(attempt, left_seconds):
    assert is_time_up([attempt], job(left_seconds))


@pytest.mark.parametrize(
    ("attempt", "number", "left_seconds"),
    [
        (PAUSED, "7", None),  # a job without an end
        (PAUSED, "8", 38),
        (PAUSED, "7", 3600),  # put back into the queue
        (replace(PAUSED, stop_seconds=None), "7", 38),  # the program left by itself
        (replace(PAUSED, kind=EndKind.FAILED), "7", 38),
    ],
)
def test_it_is_not_up_elsewhere(attempt, number, left_seconds):
    assert not is_time_up([attempt], job(left_seconds, number))


def test_it_is_not_up_before_any_attempt_nor_without_a_job():
    assert not is_time_up([], job(38))
    assert not is_time_up([PAUSED], None)
