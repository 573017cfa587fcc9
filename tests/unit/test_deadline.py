import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.making import ATTEMPT

from longhaul.deadline import deadline_for, learn_margin
from longhaul.slurm import SlurmJob, current_job


def job(seconds: float) -> SlurmJob:
    return SlurmJob("1", "node", "gpu", time.time() + seconds)


def test_without_slurm_the_configured_length_counts_and_nobody_ends_it_by_force() -> None:
    deadline = deadline_for(100, None)

    assert deadline.left_seconds() == pytest.approx(100, abs=1)
    assert deadline.seconds_to_force() == float("inf")


def test_a_job_that_ends_earlier_shortens_the_segment() -> None:
    deadline = deadline_for(100, job(30))

    assert deadline.left_seconds() == pytest.approx(30, abs=1)
    assert deadline.seconds_to_force() == pytest.approx(30, abs=1)


def test_a_job_that_lasts_longer_does_not_lengthen_the_segment() -> None:
    deadline = deadline_for(100, job(365 * 86400))

    assert deadline.left_seconds() == pytest.approx(100, abs=1)
    assert deadline.seconds_to_force() == pytest.approx(365 * 86400, abs=1)


def test_the_child_is_told_the_deadline_in_unix_seconds() -> None:
    assert deadline_for(100, None).unix(20) == pytest.approx(time.time() + 80, abs=1)


def test_a_deadline_counts_on_a_clock_that_cannot_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = deadline_for(100, None)
    now = time.time()

    monkeypatch.setattr(time, "time", lambda: now + 86400)

    assert deadline.left_seconds() == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    ("environment", "end"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000000"}, 1700000000.0),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "UNLIMITED"}, None),
    ],
)
def test_the_end_of_the_job_is_read_from_slurms_variables(environment: Mapping[str, str], end: float | None) -> None:
    found = current_job(environment)

    assert found is not None and (found.job_id, found.end_unix) == ("7", end)


def test_an_end_time_without_a_job_is_nothing() -> None:
    assert current_job({"SLURM_JOB_END_TIME": "1700000000"}) is None


@pytest.mark.parametrize(("seconds", "margin"), [(3, 1.0), (100, 10.0), (86400, 60.0), (1, 0.5)])
def test_before_anything_was_measured_the_margin_is_a_tenth_within_bounds(seconds: float, margin: float) -> None:
    assert learn_margin([], seconds, None).stop_seconds == margin


def test_the_first_margin_can_be_set() -> None:
    assert learn_margin([], 86400, 300).stop_seconds == 300


def test_a_margin_is_learned_from_the_longest_stop_of_late() -> None:
    attempts = [replace(ATTEMPT, stop_seconds=seconds, save_seconds=0.0) for seconds in (90, 2, 4, 1, 2, 2)]

    assert learn_margin(attempts, 86400, 300).stop_seconds == pytest.approx(1.5 * 4 + 0.2)


def test_an_attempt_that_was_not_stopped_teaches_no_stop() -> None:
    attempts = [replace(ATTEMPT, stop_seconds=None), replace(ATTEMPT, stop_seconds=2, save_seconds=0.0)]

    assert learn_margin(attempts, 86400, None).stop_seconds == pytest.approx(3.2)


def test_time_to_publish_is_kept_even_if_the_stop_itself_was_quick() -> None:
    margin = learn_margin([replace(ATTEMPT, stop_seconds=0.1, save_seconds=20)], 86400, None)

    assert margin.publish_seconds == pytest.approx(30.1)
    assert margin.stop_seconds == pytest.approx(30.1)


def test_no_margin_eats_more_than_half_of_a_segment() -> None:
    margin = learn_margin([replace(ATTEMPT, stop_seconds=100, save_seconds=100)], 60, None)

    assert (margin.stop_seconds, margin.publish_seconds) == (30, 30)
