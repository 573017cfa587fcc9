import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.making import ATTEMPT

from unbroken.job.deadline import deadline_for, learn_margin
from unbroken.slurm.this_job import SlurmJob, current_job, own_job_id


@pytest.fixture(autouse=True)
def clocks_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, steady = time.time(), time.monotonic()
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: steady)


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


def test_a_job_that_gets_more_time_works_longer() -> None:
    deadline = deadline_for(90, job(120)).moved(time.time() + 300)

    assert deadline.left_seconds() == pytest.approx(270, abs=1)
    assert deadline.seconds_to_force() == pytest.approx(300, abs=1)


def test_an_allocation_for_many_segments_that_gets_more_time_leaves_the_segment_as_long_as_it_was() -> None:
    deadline = deadline_for(90, job(86400)).moved(time.time() + 2 * 86400)

    assert deadline.left_seconds() == pytest.approx(90, abs=1)
    assert deadline.seconds_to_force() == pytest.approx(2 * 86400, abs=1)


def test_a_job_that_gets_less_time_leaves_earlier() -> None:
    deadline = deadline_for(90, job(120)).moved(time.time() + 40)

    assert (deadline.left_seconds(), deadline.seconds_to_force()) == pytest.approx((40, 40), abs=1)


@pytest.mark.parametrize("end_in_seconds", [121, 119, -5])
def test_an_end_that_was_not_moved_or_is_past_changes_nothing(end_in_seconds: float) -> None:
    deadline = deadline_for(90, job(120))

    assert deadline.moved(time.time() + end_in_seconds) is deadline


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


def test_a_task_of_an_array_is_called_as_squeue_calls_it() -> None:
    """The last one to start has the number of the array, by which Slurm's commands mean all tasks."""
    array = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}

    found = current_job(array)

    assert found is not None and (found.job_id, found.number) == (own_job_id(array), "17") == ("17_3", "17")
    assert own_job_id({"SLURM_JOB_ID": "20"}) == "20"
    assert own_job_id({"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}) == ""


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


@pytest.mark.parametrize(("segment_seconds", "least"), [(3, 0.03), (60, 0.6), (200, 2.0), (28800, 2.0), (10**9, 2.0)])
def test_however_quick_a_stop_was_some_time_is_kept_for_a_busy_node(segment_seconds: float, least: float) -> None:
    quick = replace(ATTEMPT, stop_seconds=0.04, save_seconds=0.0)

    assert learn_margin([quick], segment_seconds, None).stop_seconds == pytest.approx(max(least, 1.5 * 0.04 + 0.2))


@pytest.mark.parametrize("segment_seconds", [3, 60, 240, 28800])
@pytest.mark.parametrize("stop_seconds", [0.0, 0.04, 0.3, 5.0, 300.0])
def test_nobody_is_killed_in_the_moment_in_which_he_is_told(segment_seconds: float, stop_seconds: float) -> None:
    """Where Slurm's limit is the end of the segment, as it is with whole minutes."""
    margin = learn_margin([replace(ATTEMPT, stop_seconds=stop_seconds, save_seconds=0.0)], segment_seconds, None)

    assert margin.last_seconds <= margin.stop_seconds / 8
    assert margin.last_seconds <= 1.0


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


# --- what a save in the middle of a segment teaches ----------------------------------------------------------------


def test_the_slowest_save_raises_the_margin_and_none_lowers_it() -> None:
    first = learn_margin([], 86400, None)

    margin = first.after_save(4.0, 2.0).after_save(100.0, 20.0).after_save(1.0, 1.0)

    assert (first.stop_seconds, margin.stop_seconds) == (60, pytest.approx(1.5 * 120))
    assert margin.publish_seconds == pytest.approx(30.1)


def test_a_program_that_does_not_say_how_long_it_wrote_keeps_the_guess() -> None:
    margin = learn_margin([], 86400, None).after_save(None, 2.0)

    assert (margin.stop_seconds, margin.publish_seconds) == (60, pytest.approx(3.1))


def test_what_publishing_takes_raises_any_margin() -> None:
    measured = learn_margin([replace(ATTEMPT, stop_seconds=2, save_seconds=0.0)], 86400, None)

    assert measured.after_save(None, 20.0).stop_seconds == pytest.approx(30.1)
    assert learn_margin([], 86400, None).after_save(None, 100.0).stop_seconds == pytest.approx(150.1)


def test_a_slow_save_takes_no_more_than_half_of_a_segment_either() -> None:
    margin = learn_margin([], 60, None).after_save(100.0, 100.0)

    assert (margin.stop_seconds, margin.publish_seconds) == (30, 30)
