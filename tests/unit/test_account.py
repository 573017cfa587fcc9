"""The account of a run: each second by what it was spent on, beside a simulation that knows."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.making import ATTEMPT
from support.run_life import BEGIN, Life, Turn, noted_by

from unbroken.report.account import Account, Waiting, account
from unbroken.report.spans import Kind
from unbroken.store.history import EndKind
from unbroken.store.times import Times
from unbroken.system.clock import unix_seconds

few, many = st.floats(0, 20), st.floats(0, 5000)
ENDS = ("paused", "killed", "failed", "interrupted", "before work")
turns = st.builds(
    Turn,
    ends=st.sampled_from(ENDS),
    idle=many,
    held=few,
    queued=many,
    ahead=many,
    starting=st.floats(0.01, 60),
    work=st.lists(st.floats(30, 4000), min_size=1, max_size=5).map(tuple),
    stall=few,
    suspended=few,
    stopped=st.one_of(st.just(0.0), few),
    saving=few,
    publishing=few,
    unused=few,
    is_requeued=st.booleans(),
)


def assert_whole(found: Account) -> None:
    """The spans follow each other and cover all."""
    if found.spans:
        assert (found.spans[0].begin, found.spans[-1].end) == (found.begin, found.end)
    assert all(before.end == after.begin for before, after in pairwise(found.spans))
    assert all(span.end > span.begin for span in found.spans)
    assert sum(found.seconds.values()) == pytest.approx(found.end - found.begin, abs=1e-3)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(turns, min_size=1, max_size=12), st.booleans(), st.lists(st.floats(-4e6, 4e6), min_size=12, max_size=12)
)
def test_each_kind_agrees_with_what_really_happened(lived: list[Turn], reaches_goal: bool, clocks: list[float]) -> None:
    life = Life()
    for turn in lived:
        life.live(turn)
    if reaches_goal:
        life.live(Turn("finished"))
    history = [noted_by(line, ahead) for line, ahead in zip(life.told, [*clocks, 0.0], strict=False)]

    found = account(history, life.now)

    assert_whole(found)
    for kind in Kind:
        assert found.seconds[kind] == pytest.approx(life.truth[kind], abs=1.0), kind
    assert found.kills == life.kills
    assert found.kept_by_checkpoints == pytest.approx(life.kept, abs=1.0)


def test_kills_in_numbers() -> None:
    life = Life()
    for turn in (
        Turn("paused", work=(3600.0,)),
        Turn("killed", work=(3000.0, 120.0)),
        Turn("killed", work=(60.0,)),
        Turn("finished", work=(1800.0,)),
    ):
        life.live(turn)
    found = account(life.attempts, life.now)
    assert found.kills == 2
    assert found.seconds[Kind.LOST] == pytest.approx(180.0)
    assert found.kept_by_checkpoints == pytest.approx((3600 + 3120) + (3600 + 3000 + 60))
    assert found.goodput == pytest.approx(
        (3600 + 3000 + 1800) / sum(found.seconds[kind] for kind in Kind if kind not in (Kind.IDLE, Kind.QUEUED))
    )


def test_work_that_a_run_goes_back_behind_is_lost() -> None:
    life = Life()
    life.live(Turn("paused", work=(1000.0,)))
    life.live(Turn("paused", work=(1000.0,)))
    life.live(Turn("paused", work=(1500.0,)))
    # The third went on from the middle of the second.
    back = replace(life.attempts[2], progress_from=1500.0, progress_to=3000.0)
    found = account([*life.attempts[:2], back], life.now)
    assert found.seconds[Kind.LOST] == pytest.approx(500.0)
    assert found.seconds[Kind.USEFUL] == pytest.approx(3000.0)
    assert_whole(found)


def test_a_run_at_work_counts_as_useful_until_now() -> None:
    life = Life()
    life.live(Turn("paused", work=(1000.0,)))
    began = life.now
    times = Times(submitted=began, eligible=began, job_started=began + 10, first_step=began + 30)
    live = replace(ATTEMPT, token=9, kind=EndKind.INTERRUPTED, progress_from=1000.0, to_checkpoint=None, times=times)
    found = account(life.attempts, began + 130, at_work=live)
    assert found.spans[-1].kind is Kind.USEFUL and found.spans[-1].end == began + 130
    assert found.seconds[Kind.USEFUL] == pytest.approx(1100.0)
    assert found.seconds[Kind.QUEUED] == pytest.approx(10.0)


def test_a_job_that_waits_and_one_that_is_held() -> None:
    life = Life()
    life.live(Turn("paused"))
    end = life.now
    waits = account(life.told, end + 100, [Waiting(end + 40, end + 60)])
    held = account(life.told, end + 100, [Waiting(end + 40)])
    nobody = account(life.told, end + 100)
    assert [waits.seconds[kind] for kind in (Kind.IDLE, Kind.QUEUED)] == [pytest.approx(60), pytest.approx(40)]
    assert [held.seconds[kind] for kind in (Kind.IDLE, Kind.QUEUED)] == [pytest.approx(100), 0]
    assert [nobody.seconds[kind] for kind in (Kind.IDLE, Kind.QUEUED)] == [pytest.approx(100), 0]


def test_between_two_tasks_of_an_array_the_run_waits_in_the_queue() -> None:
    """Slurm calls a task eligible when the one before has ended, or when it starts."""
    first = Times(submitted=BEGIN, eligible=BEGIN + 2, job_started=BEGIN + 52, first_step=BEGIN + 52)
    first = replace(first, program_started=BEGIN + 52, last_step=BEGIN + 100, program_ended=BEGIN + 100)
    first = replace(first, saved=BEGIN + 100, ended=BEGIN + 100, job_ended=BEGIN + 100)
    moments = (
        "job_started",
        "program_started",
        "first_step",
        "last_step",
        "program_ended",
        "saved",
        "ended",
        "job_ended",
    )
    second = replace(first, eligible=BEGIN + 130, **{name: getattr(first, name) + 78 for name in moments})
    one = replace(ATTEMPT, token=1, slurm_job="17_1", times=first)
    two = replace(ATTEMPT, token=2, slurm_job="17_2", progress_from=10.0, progress_to=20.0, times=second)

    found = account([one, two], BEGIN + 178)

    assert_whole(found)
    assert found.seconds[Kind.IDLE] == 0
    assert found.seconds[Kind.QUEUED] == pytest.approx(52.0 + 30.0)


def test_a_run_is_over_at_its_goal_until_somebody_raises_that() -> None:
    life = Life()
    life.live(Turn("finished"))
    assert account(life.attempts, life.now + 1e6).end == life.attempts[-1].times.ended
    more = life.told[-1].times.job_ended or 0.0
    life.now = more
    life.live(Turn("finished", idle=1000.0))
    found = account(life.attempts, life.now + 1e6)
    assert found.seconds[Kind.IDLE] == pytest.approx(1000.0)
    assert found.seconds[Kind.UNUSED] == pytest.approx(1.0)


def test_lines_without_times_say_what_they_know() -> None:
    died = replace(
        ATTEMPT,
        token=2,
        kind=EndKind.DIED,
        started_utc="2026-11-21T01:00:00Z",
        ended_utc="2026-11-21T01:30:00Z",
        work_seconds=1500.0,
        progress_from=10.0,
        progress_to=20.0,
    )
    assert_whole(account([ATTEMPT, died], 0.0))
    found = account([ATTEMPT, died], unix_seconds("2026-11-21T02:00:00Z"))
    assert_whole(found)
    assert found.seconds[Kind.USEFUL] == 60.0 + 1500.0
    assert found.seconds[Kind.IDLE] == found.end - found.begin - 1560.0


def test_a_run_of_which_nothing_is_known() -> None:
    found = account([], BEGIN)
    assert (found.spans, found.goodput, found.kills) == ((), None, 0)
    waits = account([], BEGIN, [Waiting(BEGIN - 50, BEGIN - 20)])
    assert waits.seconds[Kind.QUEUED] == 20.0 and waits.seconds[Kind.IDLE] == 30.0
