"""When a run is not tried again: one rule, asked by segments, by jobs without a driver, and by drivers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.making import ATTEMPT

from unbroken.job.policy import (
    Next,
    NextAction,
    Rules,
    Situation,
    failures_in_a_row,
    idle_attempts,
    next_action,
    of_start,
)
from unbroken.slurm.job import EndState
from unbroken.store.history import Attempt, EndCause, EndKind
from unbroken.store.times import NO_TIMES


def why_stop(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> str:
    action = next_action(attempts, rules, now)
    return action.why if action.stops else ""


def goes_back(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> bool:
    return next_action(attempts, rules, now).kind is Next.FALL_BACK


RULES = Rules(attempts_without_progress=2)


def attempt(kind: EndKind = EndKind.FAILED, **more: object) -> Attempt:
    nothing = {"from_checkpoint": None, "to_checkpoint": None, "progress_from": 0.0, "progress_to": 0.0}
    values = {"kind": kind, "message": "it broke", **nothing, **more}
    return replace(ATTEMPT, **values)  # type: ignore[arg-type]


def saved(outcome: EndKind = EndKind.FAILED, **more: object) -> Attempt:
    return replace(attempt(outcome, **{"progress_to": 1.0, **more}), to_checkpoint="000002_2")


def on(*nodes: str) -> list[Attempt]:
    return [attempt(slurm_node=node) for node in nodes]


def stops(attempts: Sequence[Attempt], other_nodes: int = 0, rules: Rules = RULES) -> bool:
    return why_stop(attempts, rules, Situation(1, other_nodes=other_nodes)) != ""


def dead_tasks(array: int, node: str, count: int) -> list[Attempt]:
    """Attempts of tasks in which nothing ran."""
    return [attempt(EndKind.NEVER_RAN, slurm_job=f"{array}_{task}", slurm_node=node) for task in range(1, count + 1)]


def test_tasks_of_one_array_that_die_on_a_node_before_anything_runs_are_one_failure() -> None:
    """None of them could keep the next one off that node."""
    once, again = dead_tasks(17, "node1", 6), dead_tasks(18, "node1", 6)

    assert (failures_in_a_row(once, 1), len(idle_attempts(once, 1))) == (1, 1)
    assert (failures_in_a_row([*once, *again], 1), len(idle_attempts([*once, *again], 1))) == (2, 2)
    assert len(idle_attempts([*once, *dead_tasks(17, "node2", 2)], 1)) == 2
    assert failures_in_a_row([attempt(slurm_job=f"17_{task}", slurm_node="node1") for task in (1, 2, 3)], 1) == 3


@pytest.mark.parametrize(
    ("state", "end", "follows"),
    [
        (EndState.TIMEOUT, EndKind.DIED, Next.RESUME),
        (EndState.PREEMPTED, EndKind.INTERRUPTED, Next.RESUME),
        (EndState.PREEMPTED, EndKind.FAILED, Next.RESUME),
        (EndState.NODE_FAIL, EndKind.DIED, Next.RESUME),
        (EndState.BOOT_FAIL, EndKind.FAILED, Next.RESUME),
        (EndState.FAILED, EndKind.INTERRUPTED, Next.RESUME),
        (EndState.FAILED, EndKind.DIED, Next.RESUME),
        (None, EndKind.PAUSED, Next.RESUME),
        (EndState.UNKNOWN, EndKind.FAILED, Next.RESUME),
        (EndState.COMPLETED, EndKind.FAILED, Next.RETRY),
        (EndState.FAILED, EndKind.FAILED, Next.RETRY),
        (None, EndKind.FAILED, Next.RETRY),
        (EndState.OUT_OF_MEMORY, EndKind.DIED, Next.MORE_MEMORY),
        (EndState.CANCELLED, EndKind.INTERRUPTED, Next.STOP),
    ],
)
def test_only_a_failure_of_the_program_itself_uses_up_a_retry(
    state: EndState | None, end: EndKind, follows: Next
) -> None:
    assert next_action([attempt(end, job_state=state)], RULES, Situation(1)).kind is follows


def test_what_follows_says_what_the_last_attempt_said() -> None:
    failed, paused = attempt(job_state=EndState.FAILED), attempt(EndKind.PAUSED)

    assert next_action([failed], RULES, Situation(1)).why == "it broke"
    assert next_action([failed, paused], RULES, Situation(1)).why == ""
    assert next_action([], RULES, Situation(1)) == NextAction(Next.RESUME)


def test_a_stop_that_had_to_be_killed_uses_up_no_retry_while_the_next_one_is_asked_earlier() -> None:
    stopping = attempt(job_state=EndState.FAILED, cause=EndCause.KILLED_STOPPING)
    earlier = replace(stopping, times=replace(NO_TIMES, next_margin_seconds=6.0))

    assert next_action([earlier], RULES, Situation(1)).kind is Next.RESUME
    assert next_action([stopping], RULES, Situation(1)).kind is Next.RETRY
    assert (
        next_action([replace(earlier, job_state=EndState.OUT_OF_MEMORY)], RULES, Situation(1)).kind is Next.MORE_MEMORY
    )


# --- by its own fault ---


@pytest.mark.parametrize(
    ("attempts", "is_over"),
    [
        ([], False),
        ([attempt()], False),
        ([attempt(), attempt()], True),
        ([attempt(EndKind.DIED), attempt()], True),
        ([attempt(), saved()], False),
        ([attempt(), attempt(EndKind.PAUSED), attempt()], False),
        ([attempt(EndKind.DIED), saved(EndKind.DIED), attempt(EndKind.INTERRUPTED)], False),
        ([attempt(job_state=EndState.TIMEOUT), attempt(job_state=EndState.TIMEOUT)], True),
        ([attempt(job_state=EndState.PREEMPTED)] * 9, False),
        (
            [attempt(), attempt(job_state=EndState.NODE_FAIL), attempt()],
            True,
        ),  # a lost node says nothing, for better or worse
        ([attempt(), attempt(job_state=EndState.OUT_OF_MEMORY)], False),  # the next one gets more
        ([attempt(segment=2), attempt()], False),
    ],
)
def test_a_run_stops_after_some_attempts_without_a_step_forward(attempts: list[Attempt], is_over: bool) -> None:
    assert stops(attempts) is is_over


def test_what_has_diverged_is_not_tried_again() -> None:
    why = why_stop([attempt(cause=EndCause.DIVERGED)], RULES, Situation(1, other_nodes=9))

    assert why == "no further attempt is made: it broke; fix the cause, then start snakemake again"


def test_a_cancelled_job_stops_its_run() -> None:
    why = why_stop(
        [attempt(EndKind.INTERRUPTED, job_state=EndState.CANCELLED, slurm_job="17")], RULES, Situation(1, other_nodes=9)
    )

    assert why == "Slurm job 17 was canceled; to go on, start snakemake again"


def test_failures_in_a_row_are_limited_where_nobody_else_counts_them() -> None:
    rules = Rules(attempts_without_progress=9, retries=2)

    steps = [saved(progress_from=step, progress_to=step + 1) for step in range(9)]

    assert not stops(steps[:2], rules=rules)
    assert why_stop(steps[:3], rules, Situation(1, log="logs/demo/001.log")) == (
        "segment 1 failed 3 times; last: it broke; read logs/demo/001.log; fix the cause, then start snakemake again"
    )
    assert not stops(steps)


@pytest.mark.parametrize(
    ("outcomes", "count"),
    [
        ([], 0),
        ([EndKind.FAILED, EndKind.FAILED], 2),
        ([EndKind.FAILED, EndKind.PAUSED], 0),
        ([EndKind.FAILED, EndKind.DIED, EndKind.FAILED], 1),
    ],
)
def test_only_failures_by_its_own_fault_count_as_attempts(outcomes: list[EndKind], count: int) -> None:
    assert failures_in_a_row([attempt(outcome) for outcome in outcomes], 1) == count


def test_failures_of_another_segment_do_not_count() -> None:
    assert failures_in_a_row([attempt(segment=2)], 1) == 0


def test_the_line_says_where_it_was_tried_where_to_look_and_what_to_type() -> None:
    assert why_stop(on("n1", "n2"), RULES, Situation(1, other_nodes=5, log="logs/demo/001.log")) == (
        "2 attempts without progress on n1, n2, no further one is made; last: it broke; read logs/demo/001.log; "
        "fix the cause, then start snakemake again"
    )


# --- nodes ---


def test_a_node_that_breaks_everything_does_not_stop_a_run_that_may_go_elsewhere() -> None:
    assert not stops(on("n1", "n1"), other_nodes=3)
    assert stops(on("n1", "n1"), other_nodes=0)


def test_two_nodes_are_enough_to_say_that_it_is_the_program() -> None:
    assert stops(on("n1", "n1", "n2"), other_nodes=2)
    assert stops(on("n1", "n2"), other_nodes=2)


def test_where_slurm_goes_on_to_take_the_same_node_there_is_an_end() -> None:
    assert not stops(on("n1", "n1", "n1"), other_nodes=3)
    assert stops(on("n1", "n1", "n1", "n1"), other_nodes=3)


def test_with_one_attempt_allowed_a_second_one_still_goes_to_another_node() -> None:
    rules = Rules(attempts_without_progress=1)

    assert not stops(on("n1"), 3, rules)
    assert stops(on("n1", "n1"), 3, rules)
    assert stops(on("n1"), 0, rules)


def test_a_job_that_died_before_our_code_ran_counts_for_its_node() -> None:
    died = [attempt(EndKind.NEVER_RAN, slurm_node="n1", slurm_job=job) for job in ("1", "2")]

    assert not stops(died, other_nodes=3)
    assert stops(died, other_nodes=0)
    assert stops([*died, attempt(EndKind.NEVER_RAN, slurm_node="n2", slurm_job="3")], other_nodes=3)


# --- before the work ---


def test_what_would_be_refused_again_stops_the_run_at_once() -> None:
    assert (
        why_stop([attempt(EndKind.REFUSED)], RULES, Situation(1, other_nodes=9))
        == "no further attempt is made: it broke; fix the cause, then start snakemake again"
    )


def test_the_second_job_that_cannot_reach_its_disk_stops_the_run() -> None:
    jobs = [attempt(EndKind.UNAVAILABLE, slurm_job=job, slurm_node="n1") for job in ("17", "17", "18")]

    assert not stops(jobs[:2])  # one job tries for a while itself
    assert why_stop(jobs, RULES, Situation(1, other_nodes=9)) == (
        "2 attempts in a row ended before their work on n1; last: it broke; fix the cause, then start snakemake again"
    )


def test_a_disk_that_was_away_says_nothing_about_the_program() -> None:
    away = attempt(EndKind.UNAVAILABLE, slurm_job="17")

    assert not stops([attempt(slurm_job="16"), away, attempt(slurm_job="18", job_state=EndState.NODE_FAIL)])
    assert idle_attempts([attempt(), away], 1) == [attempt()]


def test_an_attempt_that_worked_lets_the_disk_fail_anew() -> None:
    away = [attempt(EndKind.UNAVAILABLE, slurm_job=job) for job in ("17", "18")]

    assert not stops([away[0], saved(), away[1]])


# --- since when ---


def test_counting_begins_anew_with_each_start() -> None:
    old, new = attempt(start="a"), attempt(start="b")

    assert of_start([old, old, new], "b") == [new]
    assert of_start([old, old], "b") == []


def test_what_another_driver_did_meanwhile_counts_too() -> None:
    mine, others = attempt(start="a"), saved(start="b")

    assert of_start([mine, others, mine], "a") == [mine, others, mine]


# --- the checkpoint before the newest ---


NOW = Situation(1, newest="000002_2", older="000001_1")


def from_newest(count: int, **more: object) -> list[Attempt]:
    return [replace(attempt(**more), from_checkpoint="000002_2") for _ in range(count)]


def test_after_the_attempts_from_the_newest_the_checkpoint_before_is_tried_once() -> None:
    back = replace(attempt(), from_checkpoint="000001_1")

    assert not goes_back(from_newest(1), RULES, NOW)
    assert goes_back(from_newest(2), RULES, NOW)
    assert why_stop(from_newest(2), RULES, NOW) == ""
    assert why_stop([*from_newest(2), back], RULES, NOW) == (
        "3 attempts without progress, no further one is made, neither from 000002_2 nor from 000001_1, the "
        "checkpoint before; both stay where they are; last: it broke; fix the cause, then start snakemake again"
    )


def test_an_attempt_from_the_one_before_that_was_killed_is_not_made_again() -> None:
    """Whoever writes its line does not know from where it went on."""
    assert not goes_back(from_newest(3), RULES, NOW)
    assert why_stop(from_newest(3), RULES, NOW) != ""


def test_another_node_is_tried_before_another_checkpoint() -> None:
    now = replace(NOW, other_nodes=3)

    assert not goes_back(from_newest(2, slurm_node="n1"), RULES, now)
    assert why_stop(from_newest(2, slurm_node="n1"), RULES, now) == ""
    assert goes_back([*from_newest(2, slurm_node="n1"), *from_newest(1, slurm_node="n2")], RULES, now)


@pytest.mark.parametrize(
    "attempts",
    [
        from_newest(2, kind=EndKind.NEVER_RAN),
        from_newest(2, job_state=EndState.OUT_OF_MEMORY),
        from_newest(2, cause=EndCause.STORAGE),
        [*from_newest(1), *from_newest(1, cause=EndCause.STORAGE)],
        from_newest(2, cause=EndCause.DIVERGED),
        from_newest(2, job_state=EndState.CANCELLED),
    ],
)
def test_what_says_nothing_of_the_checkpoint_leads_to_no_other(attempts: list[Attempt]) -> None:
    assert not goes_back(attempts, RULES, NOW) or why_stop(attempts, RULES, NOW)
    assert why_stop(attempts, RULES, NOW) == why_stop(attempts, RULES, replace(NOW, older=""))


def test_a_run_with_one_checkpoint_stops() -> None:
    assert why_stop(from_newest(2), RULES, replace(NOW, older="")) != ""


def test_a_way_that_was_gone_before_is_no_step_forward() -> None:
    """From the checkpoint before, a program may save what it had saved already, and break there again and again."""
    newest = [replace(each, progress_from=2.0, progress_to=2.0) for each in from_newest(2)]
    same_way = replace(saved(), from_checkpoint="000001_1", progress_from=1.0, progress_to=2.0)
    further = replace(same_way, progress_to=3.0)

    assert stops([*newest, same_way])
    assert not stops([*newest, further])
