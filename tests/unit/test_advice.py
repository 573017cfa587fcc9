"""Which length of a segment is advised, by what is left, what a cut costs and how long jobs wait."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.histories import PLAIN
from support.toyrun import toy_run

from unbroken.cli.advise_command import Choice, lines, request_of
from unbroken.errors import ConfigError
from unbroken.report.advice import Estimate, Rest, Waits, between, estimate, lengths, similar
from unbroken.report.spans import Kind
from unbroken.report.turns import Turn

HOUR = 3600.0
KNOWN = Waits(0.0, (HOUR,) * 5)


def test_each_single_job_waits_and_loses_what_a_cut_costs() -> None:
    rest = Rest(10 * HOUR, 360.0)

    # 4 hours less 6 minutes: three segments.
    assert estimate(rest, 240, KNOWN) == Estimate(3, 10 * HOUR + 3 * 360 + 3 * HOUR)
    assert estimate(rest, 31, KNOWN) == Estimate(24, 10 * HOUR + 24 * 360 + 24 * HOUR)
    assert estimate(rest, 6, KNOWN) is None
    assert estimate(Rest(60.0, 0.0), 60, Waits(300.0)) == Estimate(1, 360.0)


def test_an_array_waits_once_and_then_as_its_history_shows() -> None:
    rest = Rest(10 * HOUR, 360.0, between_seconds=20.0)

    assert estimate(rest, 240, KNOWN) == Estimate(3, 10 * HOUR + 3 * 360 + HOUR + 2 * 20)
    assert estimate(rest, 31, KNOWN) == Estimate(24, 10 * HOUR + 24 * 360 + HOUR + 23 * 20)
    assert estimate(replace(rest, left_seconds=60.0, cut_seconds=0.0), 60, Waits(300.0)) == Estimate(1, 360.0)


def test_short_segments_of_an_array_cost_no_further_wait() -> None:
    rest = Rest(10 * HOUR, 60.0, between_seconds=1.0)
    short, long = estimate(rest, 60, KNOWN), estimate(rest, 240, KNOWN)

    assert short is not None and long is not None
    assert short.seconds - long.seconds == (short.segments - long.segments) * 61.0


@pytest.mark.parametrize(
    ("jobs", "waits", "expected"),
    [
        (["17_1", "17_2", "17_3"], [9.0, 3.0, 5.0], 4.0),
        (["17_1"], [3600.0], 0.0),  # none was seen yet
        (["", ""], [0.0, 2.0], 0.0),  # it has worked elsewhere so far
        (["17", "18"], [0.0, 3600.0], None),  # single jobs
        (["17_1", "18"], [0.0, 3600.0], None),
        (["17_1", "17_2", ""], [9.0, 2.0, 0.0], 2.0),
    ],
)
def test_the_wait_between_two_tasks_is_what_the_history_shows(
    jobs: list[str], waits: list[float], expected: float | None
) -> None:
    turns = [Turn(replace(PLAIN, slurm_job=job), {Kind.QUEUED: wait}) for job, wait in zip(jobs, waits, strict=True)]
    assert between(turns) == expected


def test_few_past_waits_count_less_than_what_slurm_guesses() -> None:
    assert not Waits(60.0, (HOUR,) * 4).is_known
    assert Waits(60.0, (HOUR,) * 4).likely == 60.0
    known = Waits(60.0, (1.0, 2.0, 3.0, 4.0, 100.0))
    assert (known.likely, known.is_known) == (3.0, True)
    assert 4.0 < known.late < 100.0


def test_jobs_are_alike_whose_limits_are() -> None:
    assert list(similar([(29, 1.0), (30, 2.0), (60, 3.0), (120, 4.0), (121, 5.0)], 60)) == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("limit", "now", "left_hours", "found"),
    [
        (480, 60, None, [480, 240, 120, 60, 30]),
        (480, 60, 5, [361, 240, 120, 60, 30]),  # all the rest, a fifth to spare and a cut
        (480, 60, 100, [480, 240, 120, 60, 30]),
        (math.inf, 60, 100, [7201, 60]),
        (math.inf, 60, None, [60]),
        (30, 60, None, [30, 15]),  # too long for this partition
        (5, 0.5, None, [1]),
    ],
)
def test_lengths_are_parts_of_the_limit_that_of_now_and_one_for_all(
    limit: float, now: float, left_hours: float | None, found: list[int]
) -> None:
    assert lengths(limit, now, Rest(left_hours * HOUR, 60.0) if left_hours else None) == found


RUN = replace(toy_run(), segments=4, segment_minutes=60.0)
REST = Rest(10 * HOUR, 60.0)


def choice(partition: str, minutes: int, wait: float) -> Choice:
    waits = Waits(0.0, (wait,) * 5)
    return Choice(partition, minutes, waits, estimate(REST, minutes, waits))


def test_the_soonest_is_typed_with_its_partition() -> None:
    (line,) = lines(RUN, [choice("short", 60, HOUR), choice("long", 240, HOUR)], REST, "short")

    typed, told = line.split(": done about ")
    assert typed == "type `segment_minutes: 240`, `partition: long`"
    assert " instead of about " in told


def test_more_segments_than_the_run_has_are_named() -> None:
    (line, *_) = lines(replace(RUN, segments=2), [choice("short", 120, 60.0)], REST, "short")
    assert "`segments: 6` or more" in line


def test_one_job_for_all_is_said_to_be_best_where_it_is() -> None:
    found = list(lines(RUN, [choice("long", 720, HOUR), choice("short", 60, HOUR)], REST, "short"))
    assert found[0].startswith("type `segment_minutes: 720`, `partition: long`: done about ")
    assert found[1] == "one job of that length does all the rest: segments bring nothing here but safety"


def test_what_is_well_stays_and_guesses_are_called_guesses() -> None:
    guessed = Choice("short", 60, Waits(60.0), estimate(REST, 60, Waits(60.0)))
    well, honest = lines(RUN, [guessed, choice("long", 61, 60.0)], REST, "short")

    assert well.startswith("it is well as it is: done about ")
    assert honest.startswith("its wait is Slurm's guess of now, which knows of no later job")


@pytest.mark.parametrize("text", ["- a\n", "site: null\n", "", "site: [1]\n"])
def test_a_site_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "site.yaml").write_text(text)

    with pytest.raises(ConfigError, match=r"site\.yaml: found no mapping `site:`"):
        request_of(RUN, tmp_path, str(tmp_path))


def test_a_profile_without_a_site_asks_nothing_special(tmp_path: Path) -> None:
    request = request_of(RUN, tmp_path, str(tmp_path))
    assert (request.partition, request.account, request.words) == (None, None, ())


def test_without_a_pace_nothing_is_advised() -> None:
    (line,) = lines(RUN, [Choice("short", 60, KNOWN, None)], None, "short")
    assert line == "too little is known of its pace; after its first segment type: unbroken advise"
