"""The forecast of a run: what it takes from a history, what it says, and what no history may make of it."""

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.histories import MONDAY, chain
from support.making import ATTEMPT

from unbroken.report.forecast import Forecast, budget_words, finish_words, forecast
from unbroken.store.history import Attempt, EndKind
from unbroken.store.times import Times
from unbroken.system.clock import utc_text

HOUR = 3600.0
SEEN = chain(100, 102, 98, 101, 99)
NOW = MONDAY + 5 * 3510


@pytest.fixture(autouse=True)
def clocks_in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(os.environ, "TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def of(made: Forecast | None) -> Forecast:
    assert made is not None
    assert 0 <= made.low_seconds <= made.median_seconds <= made.p90_seconds <= made.high_seconds
    assert all(math.isfinite(each) for each in vars(made).values())
    assert made.segments_median <= made.segments_p90
    return made


# --- what it takes from a history ---


def test_an_even_run_is_done_when_its_pace_says_so() -> None:
    made = of(forecast(SEEN, 500, 1000, now=NOW, segment_seconds=HOUR))

    assert made == forecast(SEEN, 500, 1000, now=NOW, segment_seconds=HOUR)  # the same history, the same forecast
    assert made.median_seconds == pytest.approx(5 * 3510, rel=0.05)
    assert made.high_seconds - made.low_seconds < 0.6 * made.median_seconds
    assert made.segments_median in {5, 6}
    assert made.based_on == 5


def test_one_segment_is_enough_and_less_is_known_of_it() -> None:
    few = of(forecast(chain(100), 100, 1000, now=MONDAY + 3510, segment_seconds=HOUR))
    many = of(forecast(chain(*[100] * 9), 900, 1800, now=MONDAY + 9 * 3510, segment_seconds=HOUR))

    assert few.median_seconds == pytest.approx(9 * 3510, rel=0.2)
    assert few.high_seconds - few.low_seconds > many.high_seconds - many.low_seconds


def tasks_of_array(wait: float, first_wait: float, array: str = "17", sent: float | None = None) -> list[Attempt]:
    """Five tasks with `wait` seconds between them; the first one waited for `first_wait` in the queue."""
    made = chain(100, 102, 98, 101, 99, wait=wait)
    times = Times(submitted=MONDAY - first_wait if sent is None else sent)
    return [replace(each, slurm_job=f"{array}_{task}", times=times) for task, each in enumerate(made, 1)]


def test_tasks_of_an_array_are_not_taken_to_wait_as_the_first_one_did() -> None:
    at_once = of(forecast(tasks_of_array(1.0, 0.0), 500, 1000, now=NOW, segment_seconds=HOUR))
    after_a_day = of(forecast(tasks_of_array(1.0, 24 * HOUR), 500, 1000, now=NOW, segment_seconds=HOUR))

    assert after_a_day == at_once
    assert at_once.median_seconds == pytest.approx(5 * 3501, rel=0.1)
    assert at_once.knows_waits


def test_before_a_wait_between_two_tasks_was_seen_none_is_added_and_that_is_said() -> None:
    (first, *_) = tasks_of_array(1.0, 24 * HOUR)
    made = of(forecast([first], 100, 1000, now=MONDAY + 3510, segment_seconds=HOUR))

    assert made.median_seconds == pytest.approx(9 * 3510, rel=0.2)
    assert not made.knows_waits
    assert "waits for later segments come on top, none was seen yet" in finish_words(made, NOW)


def test_tasks_that_wait_again_each_time_are_expected_to_wait_again() -> None:
    made = of(
        forecast(
            tasks_of_array(2 * HOUR, 24 * HOUR), 500, 1000, now=MONDAY + 5 * (3500 + 2 * HOUR), segment_seconds=HOUR
        )
    )

    assert 5 * 3500 + 4 * 1.5 * HOUR < made.median_seconds < 5 * 3500 + 6 * 3 * HOUR


def test_the_wait_of_an_array_that_a_new_start_submitted_is_not_expected_again() -> None:
    before = tasks_of_array(1.0, 0.0)
    ended = MONDAY + 5 * 3501
    again = [
        replace(
            each,
            token=each.token + 5,
            slurm_job=f"18_{task}",
            started_utc=utc_text(ended + 10 * HOUR + (task - 1) * 3501),
            progress_from=each.progress_from + 500,
            progress_to=each.progress_to + 500,
            times=Times(submitted=ended + 60),
        )
        for task, each in enumerate(before, 1)
    ]
    made = of(forecast([*before, *again], 1000, 1500, now=ended + 10 * HOUR + 5 * 3501, segment_seconds=HOUR))

    assert made.median_seconds == pytest.approx(5 * 3501, rel=0.1)


def test_within_the_first_segment_there_is_one_as_soon_as_its_pace_is_known() -> None:
    began = NOW - 600

    assert forecast([], 0, 1000, now=NOW, segment_seconds=HOUR, at_work_since=began) is None
    assert forecast([], 1, 1000, now=began + 30, segment_seconds=HOUR, at_work_since=began) is None
    assert (
        forecast([], 3, 300, now=NOW, segment_seconds=6, at_work_since=NOW - 2) is None
    )  # most of two seconds are imports
    made = of(forecast([], 17, 1000, now=NOW, segment_seconds=HOUR, at_work_since=began))
    assert made.segments_median == pytest.approx(10, abs=2)
    assert not made.knows_waits


def test_what_the_attempt_at_work_has_done_counts() -> None:
    fast = of(forecast(SEEN, 500 + 180, 1000, now=NOW + 3000, segment_seconds=HOUR, at_work_since=NOW))
    even = of(forecast(SEEN, 500 + 85, 1000, now=NOW + 3000, segment_seconds=HOUR, at_work_since=NOW))

    assert fast.median_seconds < even.median_seconds - 3000


def test_waits_are_those_of_the_partition_in_which_it_is_now() -> None:
    """Six segments that waited for hours each, then four that waited for a minute."""
    moments, lines = MONDAY, []
    for number, each in enumerate(chain(*[100] * 10, slurm_job="1")):
        moments += 3500 + (7 * HOUR if number < 6 else 60)
        times = Times(submitted=moments - (7 * HOUR if number < 6 else 60), program_started=moments)
        lines.append(replace(each, started_utc=utc_text(moments), times=times))
    moved = [replace(line, slurm_partition="gpu" if n < 6 else "short") for n, line in enumerate(lines)]
    few = [replace(line, slurm_partition="gpu" if n < 8 else "short") for n, line in enumerate(lines)]
    now = moments + 3500

    unknown, there, too_few = (
        of(forecast(each, 1000, 1500, now=now, segment_seconds=HOUR)) for each in (lines, moved, few)
    )

    assert there.high_seconds < 5 * (3500 + 1800) < 5 * 3500 + 7 * HOUR < unknown.high_seconds
    assert too_few == unknown  # two waits are not enough to go by


def test_a_new_machine_is_followed_before_the_old_one_is_forgotten() -> None:
    faster = chain(*[100] * 8, 300, 300, 300)

    made = of(forecast(faster, 1700, 3500, now=MONDAY + 11 * 3510, segment_seconds=HOUR))

    assert made.median_seconds == pytest.approx(6 * 3510, rel=0.2)


def test_kills_cost_time_and_no_segments() -> None:
    killed = [
        replace(each, kind=EndKind.DIED, work_seconds=1500.0, progress_to=each.progress_from + 40)
        if number % 2
        else each
        for number, each in enumerate(SEEN)
    ]

    with_kills = of(forecast(killed, 500, 1500, now=NOW, segment_seconds=HOUR))
    without = of(forecast(SEEN, 500, 1500, now=NOW, segment_seconds=HOUR))

    assert with_kills.median_seconds > without.median_seconds
    assert with_kills.segments_median <= without.segments_p90


def test_nights_in_which_nobody_had_submitted_are_no_waits() -> None:
    night = 14 * HOUR
    sent = [
        replace(each, slurm_job="1", times=Times(submitted=MONDAY + number * (3500 + night) - 60))
        for number, each in enumerate(chain(100, 100, 100, 100, wait=night))
    ]
    now = MONDAY + 3 * (3500 + night) + 3500

    made = of(forecast(sent, 400, 800, now=now, segment_seconds=HOUR, at_work_since=now - 1))

    assert made.high_seconds < 10 * HOUR


def test_without_a_limit_the_rest_is_one_segment() -> None:
    made = of(forecast([], 500, 1000, now=NOW, segment_seconds=None, at_work_since=NOW - 500))

    assert (made.segments_median, made.segments_p90, made.knows_waits) == (1, 1, True)
    assert made.median_seconds == pytest.approx(500, rel=0.1)


# --- what no history may make of it ---


def test_at_its_goal_nothing_is_left() -> None:
    assert forecast(SEEN, 1000, 1000, now=NOW) == Forecast(0, 0, 0, 0, 0, 0, 5)
    assert of(forecast([], 2000, 1000, now=NOW)).segments_p90 == 0
    assert finish_words(of(forecast(SEEN, 1000, 1000, now=NOW)), NOW) == ""


@pytest.mark.parametrize(
    ("done", "goal", "now"),
    [(math.nan, 10, NOW), (1, math.inf, NOW), (1, math.nan, NOW), (1, 10**400, NOW), (1, 10, math.nan)],
)
def test_without_numbers_or_a_step_forward_there_is_none(done: float, goal: float, now: float) -> None:
    assert forecast(SEEN, done, goal, now=now) is None
    still = [replace(each, progress_from=5.0, progress_to=5.0, kind=EndKind.FAILED) for each in SEEN]

    assert forecast(still, 5, 1000, now=NOW, segment_seconds=HOUR) is None
    assert forecast([], 5, 1000, now=NOW, segment_seconds=HOUR) is None


def test_an_attempt_that_went_back_is_no_pace() -> None:
    back = [*SEEN[:2], replace(SEEN[2], progress_from=202.0, progress_to=150.0), *SEEN[3:]]

    assert of(forecast(back, 500, 1000, now=NOW, segment_seconds=HOUR)).median_seconds == pytest.approx(
        5 * 3510, rel=0.1
    )


def test_a_history_in_another_unit_is_not_mixed_in() -> None:
    epochs = [replace(each, unit="epochs", progress_from=0.0, progress_to=0.01) for each in SEEN]

    assert of(forecast([*epochs, *SEEN], 500, 1000, now=NOW, segment_seconds=HOUR)).based_on == 5
    assert forecast(epochs, 0, 1000, now=NOW, segment_seconds=HOUR) is not None


@pytest.mark.parametrize("jump", [-1e6, 1e6, 1e9])
def test_a_clock_that_jumped_is_no_wait_of_years(jump: float) -> None:
    before = of(forecast(SEEN, 500, 1000, now=NOW, segment_seconds=HOUR, at_work_since=NOW - 1))
    made = of(forecast(SEEN, 500, 1000, now=NOW + jump, segment_seconds=HOUR, at_work_since=NOW - 1 + jump))

    assert made.median_seconds == pytest.approx(before.median_seconds, rel=0.2)


@pytest.mark.parametrize("factor", [1e-300, 1e-9, 1e9, 1e300])
def test_huge_and_tiny_numbers_change_nothing(factor: float) -> None:
    scaled = [
        replace(each, progress_from=each.progress_from * factor, progress_to=each.progress_to * factor) for each in SEEN
    ]

    made = of(forecast(scaled, 500 * factor, 1000 * factor, now=NOW, segment_seconds=HOUR))

    assert made.median_seconds == pytest.approx(5 * 3510, rel=0.05)


def test_a_goal_that_no_chain_reaches_still_gives_numbers() -> None:
    assert of(forecast(SEEN, 500, 1e300, now=NOW, segment_seconds=HOUR)).segments_median > 1000


def test_damaged_lines_are_left_out() -> None:
    damaged = [
        replace(SEEN[0], work_seconds=math.nan),
        replace(SEEN[0], progress_to=math.inf),
        replace(SEEN[0], started_utc="yesterday"),
        replace(SEEN[0], work_seconds=-5.0),
        replace(SEEN[0], progress_to=None),  # type: ignore[arg-type]
    ]

    assert forecast([*damaged, *SEEN], 500, 1000, now=NOW, segment_seconds=HOUR) == forecast(
        SEEN, 500, 1000, now=NOW, segment_seconds=HOUR
    )


@pytest.mark.parametrize("limit", [0.0, -5.0, math.nan, math.inf, 1e-9])
def test_a_limit_that_is_none_ends_nothing(limit: float) -> None:
    of(forecast(SEEN, 500, 1000, now=NOW, segment_seconds=limit))


# --- in words ---


@pytest.mark.parametrize(
    ("median", "late", "words"),
    [
        (45.0, 60.0, "done in about 45 s (90 %: 60 s)"),
        (29 * HOUR, 48 * HOUR, "done about Tue 14:00 (90 %: by Wed 09:00)"),
        (20 * 24 * HOUR, 30 * 24 * HOUR, "done about 25 Jan (90 %: by 4 Feb)"),
        (400 * 24 * HOUR, 500 * 24 * HOUR, "done about 9 Feb 2027 (90 %: by 20 May 2027)"),
        (1e12, 1e12, "done in more than 10 years at this pace"),
    ],
)
def test_when_it_is_done(median: float, late: float, words: str) -> None:
    assert finish_words(Forecast(1, median, late, late, 3, 4, 2), MONDAY) == words


def test_a_budget_that_will_not_do_is_said_with_what_to_type() -> None:
    made = Forecast(1, 2, 3, 4, 20, 23, 7)

    assert budget_words(made, 7, 20) == "`segments: 20` will not do: about 27; type `segments: 30`"
    assert budget_words(made, 7, 27) == ""
    assert budget_words(None, 7, 20) == ""


def test_the_budget_is_told_within_the_first_segment() -> None:
    made = forecast([], 17, 1000, now=NOW, segment_seconds=HOUR, at_work_since=NOW - 600)

    assert budget_words(made, 0, 5).startswith("`segments: 5` will not do: about ")
    assert budget_words(made, 0, 40) == ""


def test_segments_that_do_whatever_their_time_alarm_nobody() -> None:
    """One step a segment, all of them longer than their limit: two steps are left, and two segments do them."""
    line = replace(ATTEMPT, progress_to=1.0, work_seconds=0.9, unused_seconds=-0.8)
    made = forecast([line], 1, 3, now=NOW, segment_seconds=0.1)

    assert budget_words(made, 1, 4) == ""
    assert budget_words(made, 1, 2) != ""
