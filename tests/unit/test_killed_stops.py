"""A stop that has to be killed says that the program was asked too late: the next one is asked earlier."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.toyrun import Ended, checkpoints, history, program, start_segment, toy_job, until

from unbroken.cli.attempts import attempt_lines
from unbroken.job.deadline import learn_margin
from unbroken.job.needs import nodes_to_avoid
from unbroken.job.policy import Next, Rules, Situation, failures_in_a_row, idle_attempts, next_action
from unbroken.report.status import status_of
from unbroken.slurm.job import EndState
from unbroken.store.history import Attempt, EndCause, EndKind, History
from unbroken.store.times import NO_TIMES


def why_stop(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> str:
    action = next_action(attempts, rules, now)
    return action.why if action.stops else ""


def goes_back(attempts: Sequence[Attempt], rules: Rules, now: Situation) -> bool:
    return next_action(attempts, rules, now).kind is Next.FALL_BACK


SECONDS = 7.0  # a busy machine needs some of them to begin


def on_node(number: int) -> Mapping[str, str]:
    """What a job has around it that Slurm ends in some seconds."""
    ends = f"{time.time() + SECONDS:.0f}"
    return {"SLURM_JOB_ID": str(number), "SLURM_JOB_END_TIME": ends, "SLURMD_NODENAME": "node1"}


def one_attempt(base: Path, number: int, words: list[str], **changes: object) -> Ended:
    return start_segment(base, 1, number, words, environment=on_node(4710 + number), **changes).end()


def killed(margin: float | None, following: float | None, outcome: EndKind = EndKind.FAILED, **more: object) -> Attempt:
    """The line of an attempt whose stop was killed."""
    times = replace(NO_TIMES, stop_margin_seconds=margin, next_margin_seconds=following)
    values = {"to_checkpoint": None, "progress_to": 0.0, "stop_seconds": None, "exit_code": -9, **more}
    return replace(ATTEMPT, kind=outcome, cause=EndCause.KILLED_STOPPING, times=times, **values)  # type: ignore[arg-type]


def stopped(seconds: float, **more: object) -> Attempt:
    return replace(ATTEMPT, stop_seconds=seconds, save_seconds=0.0, **more)  # type: ignore[arg-type]


def margin_of(*attempts: Attempt, first: float | None = None, segment_seconds: float = 3600) -> float:
    return learn_margin(attempts, segment_seconds, first).stop_seconds


# --- with real programs ---------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_program_that_is_killed_while_stopping_is_asked_earlier_until_it_can_save(tmp_path: Path) -> None:
    words = program("slow_to_save", 1.2)
    ended = [one_attempt(tmp_path, number, words, first_margin_seconds=0.5) for number in (1, 2, 3)]

    job = toy_job(tmp_path)
    first, second, third = history(job)
    assert [attempt.kind.value for attempt in (first, second, third)] == ["failed", "failed", "paused"]
    assert [attempt.times.stop_margin_seconds for attempt in (first, second)] == [0.5, 1.0]
    assert (third.times.stop_margin_seconds or 0) > 1.5  # twice as much, or half of the job's time
    assert (first.stop_seconds, second.stop_seconds) == (None, None)
    assert third.stop_seconds is not None and third.stop_seconds >= 1.2
    assert 0.2 <= (first.killed_after_seconds or 0) <= 1.5
    words_said = f"killed {first.killed_after_seconds:.1f} s after it was asked to stop, 0.5 s before its end; "
    advice = "the next attempt is asked 1.0 s before; or raise first_margin_seconds"
    assert words_said + advice in first.message
    assert words_said + advice in ended[0].error
    assert ended[2].record["kind"] == "paused"
    assert [found.passport.progress.done for found in checkpoints(job)] == [1]
    assert nodes_to_avoid("demo", tmp_path) == []


@pytest.mark.process
def test_status_shows_the_kill_and_the_key(tmp_path: Path) -> None:
    one_attempt(tmp_path, 1, program("slow_to_save", 3), first_margin_seconds=0.5)

    places = toy_job(tmp_path).places
    assert "after it was asked to stop" in status_of("demo", tmp_path, None).advice
    lines = "\n".join(attempt_lines(places))
    assert "segment 1  killed while stopping  0 -> 0" in lines
    assert "raise first_margin_seconds" in lines


@pytest.mark.process
def test_a_job_that_is_killed_in_the_middle_of_a_stop_doubles_the_margin_too(tmp_path: Path) -> None:
    segment = start_segment(
        tmp_path, 1, 1, program("slow_to_save", 30), environment=on_node(4711), first_margin_seconds=0.7
    )
    log = toy_job(tmp_path).log
    until(lambda: log.exists() and "stopping the program: its time is up" in log.read_text())
    segment.kill()
    segment.end()
    one_attempt(tmp_path, 2, program("slow_to_save", 0.2), first_margin_seconds=0.7)

    died, after = history(toy_job(tmp_path))
    assert (died.kind, died.was_killed_stopping) == (EndKind.DIED, True)
    assert (died.times.stop_margin_seconds, after.times.stop_margin_seconds) == (0.7, 1.4)
    assert "the job was killed; what it had published counts; killed " in died.message
    assert "raise first_margin_seconds" in died.message
    assert nodes_to_avoid("demo", tmp_path) == []


@pytest.mark.process
def test_a_program_that_saved_when_it_was_asked_and_then_hangs_is_no_reason_for_a_larger_margin(tmp_path: Path) -> None:
    patch = {"job.supervisor.SOFT_PATIENCE_SECONDS": 0.2, "job.supervisor.TERM_PATIENCE_SECONDS": 0.2}
    words = program("saves_and_stays")
    start_segment(tmp_path, 1, 1, words, patch, segment_minutes=0.01, first_margin_seconds=0.05).end()

    (attempt,) = history(toy_job(tmp_path))
    assert (attempt.kind, attempt.cause, attempt.stop_seconds) == (EndKind.PAUSED, None, None)
    assert margin_of(attempt, first=0.05) == pytest.approx(0.05, abs=0.5)


# --- what is learned ------------------------------------------------------------------------------------------------


def test_a_killed_stop_doubles_the_margin_that_it_had_and_says_nothing_of_how_long_one_takes() -> None:
    old = replace(ATTEMPT, stop_seconds=0.277, exit_code=-9, kind=EndKind.FAILED)  # as earlier versions wrote it

    assert margin_of(killed(10, 20), first=10) == 20
    assert margin_of(killed(60, 120)) == 120
    assert margin_of(stopped(4), killed(6.2, 12.4)) == 12.4
    assert margin_of(old, first=60) == 60
    assert margin_of(old) == 60


def test_stops_that_ended_by_themselves_since_take_the_place_of_a_killed_one() -> None:
    attempts = [killed(10, 20), *[stopped(4)] * 4]

    assert margin_of(*attempts) == 20
    assert margin_of(*attempts, stopped(4)) == pytest.approx(1.5 * 4 + 0.2)


def test_the_first_margin_of_the_config_can_be_raised_after_a_killed_stop() -> None:
    assert margin_of(stopped(1), killed(1.7, 3.4), first=300) == 300
    assert margin_of(stopped(1), first=300) == pytest.approx(1.7, abs=0.5)


def test_the_margin_grows_to_half_of_the_segment_and_a_deaf_program_gets_the_first_one_back() -> None:
    attempts: list[Attempt] = []
    margins = []
    for _ in range(6):
        margin = learn_margin(attempts, 40, 3)
        margins.append(margin.stop_seconds)
        attempts.append(killed(margin.stop_seconds, margin.grown_seconds))

    assert margins == [3, 6, 12, 20, 3, 3]
    assert [attempt.gets_more_margin for attempt in attempts] == [True, True, True, False, False, False]
    assert margin_of(*attempts, *[stopped(4)] * 5, first=3, segment_seconds=40) == pytest.approx(6.2)


def test_a_stop_for_which_no_margin_was_kept_leaves_it_as_it_is() -> None:
    assert margin_of(killed(None, None, EndKind.INTERRUPTED), first=30) == 30


def test_a_save_on_the_way_does_not_lower_a_margin_that_has_grown() -> None:
    margin = learn_margin([killed(60, 120)], 3600, None)

    assert margin.after_save(0.1, 0.1).stop_seconds == 120


# --- what follows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [EndKind.FAILED, EndKind.DIED])
def test_as_long_as_the_margin_grows_a_killed_stop_is_no_attempt_without_progress(outcome: EndKind) -> None:
    attempts = [killed(2**n, 2 ** (n + 1), outcome, slurm_node="node1", job_state=EndState.TIMEOUT) for n in range(5)]
    rules, now = Rules(attempts_without_progress=2, retries=2), Situation(1, "b", "a")

    assert idle_attempts(attempts, 1) == []
    assert failures_in_a_row(attempts, 1) == 0
    assert why_stop(attempts, rules, now) == ""
    assert not goes_back(attempts, rules, now)


def test_a_program_that_is_killed_with_the_longest_margin_stops_the_run_without_a_word_against_a_node() -> None:
    attempts = [killed(20, None, slurm_node="node1"), killed(3, None, slurm_node="node1")]

    why = why_stop(attempts, Rules(2), Situation(1, "b", "a", other_nodes=5))

    assert why.startswith("2 attempts without progress, no further one is made; last: ")


def test_a_program_that_only_crashes_between_killed_stops_is_counted_all_the_same() -> None:
    crash = replace(ATTEMPT, kind=EndKind.FAILED, to_checkpoint=None, progress_to=0.0, stop_seconds=None, exit_code=1)
    attempts = [crash, killed(3, 6), crash]

    assert failures_in_a_row(attempts, 1) == 2
    assert why_stop(attempts, Rules(2), Situation(1)) != ""


def test_nodes_are_not_avoided_for_killed_stops_or_results_that_were_not_written(tmp_path: Path) -> None:
    history_file = History(toy_job(tmp_path).places.history)
    for attempt in [killed(20, None, slurm_node="node1")] * 3:
        history_file.append(attempt)
    for _ in range(3):
        history_file.append(replace(killed(None, None, slurm_node="node2"), cause=EndCause.NO_RESULTS))
    for _ in range(3):
        history_file.append(replace(killed(None, None, slurm_node="node3"), cause=None))

    assert nodes_to_avoid("demo", tmp_path) == ["node3"]
