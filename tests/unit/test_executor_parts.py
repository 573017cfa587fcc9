"""The parts of `executor: unbroken` that need neither Snakemake nor Slurm."""

import itertools
import json
import os
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.toyrun import toy, toy_run

from snakemake_executor_plugin_unbroken import settled
from snakemake_executor_plugin_unbroken.job_outcome import Evidence, verdict
from snakemake_executor_plugin_unbroken.records import (
    EARLY_SECONDS,
    NEAR_SECONDS,
    QUIET_AT_ONCE,
    TURNS,
    Records,
    is_near_end,
)
from snakemake_executor_plugin_unbroken.retry_later import Later
from snakemake_executor_plugin_unbroken.segments import Out, Segment
from unbroken.errors import LeaseError
from unbroken.job import array
from unbroken.runs import submissions
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import CHAINS, RunFolder
from unbroken.runs.lease import take
from unbroken.runs.policy import Next, NextAction
from unbroken.runs.record import read_record
from unbroken.runs.segment_end import EndCause, EndKind
from unbroken.runs.times import NO_TIMES
from unbroken.segment.already_done import settle, settle_rest, settled_record
from unbroken.slurm.job_comment import chain_comment
from unbroken.slurm.queue import MyJob


def segment(number: int = 1, **changes: object) -> Segment:
    return Segment(toy_run(**changes), number, "toy_segment", ("demo", f"{number:03d}"))


def attempt(outcome: EndKind, **changes: object) -> Attempt:
    values: dict[str, object] = {
        "token": 1,
        "segment": 1,
        "driver_attempt": 1,
        "kind": outcome,
        "started_utc": "2026-01-01T00:00:00Z",
        "ended_utc": "2026-01-01T00:10:00Z",
        "from_checkpoint": None,
        "to_checkpoint": None,
        "progress_from": 0.0,
        "progress_to": 0.0,
        "unit": "steps",
        "work_seconds": 1.0,
        "saves": 0,
        "save_seconds": 0.0,
        "stop_seconds": None,
        "unused_seconds": None,
        "exit_code": 1,
        "host": "node1",
        "pid": 1,
        "slurm_job": "17",
        "message": "the program ended with exit code 1",
    }
    return Attempt(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what follows an end ---


@pytest.mark.parametrize(
    ("state", "outcome", "follows"),
    [
        ("TIMEOUT", None, Next.RESUME),
        ("PREEMPTED", None, Next.RESUME),
        ("NODE_FAIL", None, Next.RESUME),
        ("BOOT_FAIL", None, Next.RESUME),
        ("PREEMPTED", EndKind.FAILED, Next.RESUME),
        ("FAILED", EndKind.INTERRUPTED, Next.RESUME),
        ("FAILED", EndKind.FAILED, Next.RETRY),
        ("FAILED", EndKind.DIED, Next.RETRY),
        ("FAILED", None, Next.RETRY),
        ("OUT_OF_MEMORY", None, Next.RETRY),
        ("COMPLETED", None, Next.RETRY),
        ("CANCELLED", EndKind.INTERRUPTED, Next.STOP),
        ("UNKNOWN", None, Next.RESUME),
    ],
)
def test_what_follows_the_end_of_a_job_without_a_record(state: str, outcome: EndKind | None, follows: Next) -> None:
    found = Evidence(state, attempt(outcome) if outcome else None)

    assert verdict(segment(), "17", found).kind is follows


@pytest.mark.parametrize("outcome", [EndKind.FAILED, EndKind.DIED])
def test_a_stop_that_had_to_be_killed_uses_up_no_retry_while_the_next_one_is_asked_earlier(outcome: EndKind) -> None:
    stopping = replace(attempt(outcome), cause=EndCause.KILLED_STOPPING, message="killed 3.0 s after")
    earlier = replace(stopping, times=replace(NO_TIMES, next_margin_seconds=6.0))

    again = verdict(segment(), "17", Evidence("FAILED", earlier))

    assert again.kind is Next.RESUME
    assert again.why.endswith(": job 17 ended as FAILED, which uses up no retry: killed 3.0 s after")
    assert verdict(segment(), "17", Evidence("FAILED", stopping)).kind is Next.RETRY
    assert verdict(segment(), "17", Evidence("OUT_OF_MEMORY", earlier)).kind is Next.RETRY
    assert (
        verdict(segment(), "17", Evidence("FAILED", earlier, NextAction(Next.STOP, "no further one is made"))).kind
        is Next.STOP
    )


def test_a_job_that_was_killed_after_a_save_uses_up_no_retry() -> None:
    saved = attempt(EndKind.DIED, to_checkpoint="000002_20")

    assert verdict(segment(), "17", Evidence("FAILED", saved)).kind is Next.RESUME


def test_a_job_that_left_because_another_one_holds_the_run_uses_up_no_retry() -> None:
    found = verdict(segment(), "17", Evidence("FAILED", None, is_held=True))

    assert found.kind is Next.WAIT
    assert found.why == (
        "demo segment 1: job 17 ended as FAILED: another job holds the run; the same segment goes on after it"
    )


def test_a_cancelled_job_is_told_with_what_to_type() -> None:
    assert verdict(segment(), "17", Evidence("CANCELLED", None)).why == (
        "demo segment 1: job 17 ended as CANCELLED; this run stops, the others go on; to go on, start snakemake again"
    )


def test_a_failed_program_is_told_in_the_words_of_the_history() -> None:
    assert verdict(segment(), "17", Evidence("FAILED", attempt(EndKind.FAILED))).why == (
        "demo segment 1: job 17 ended as FAILED: the program ended with exit code 1"
    )


def test_a_job_that_left_nothing_is_told_with_its_log() -> None:
    assert verdict(segment(3), "17", Evidence("COMPLETED", None)).why == (
        "demo segment 3: job 17 ended as COMPLETED and left no record; log: logs/demo/003.log"
    )


def test_a_run_that_stops_is_told_in_the_words_of_the_policy() -> None:
    stop = NextAction(Next.STOP, "2 attempts without progress; fix the cause")
    found = verdict(segment(), "17", Evidence("TIMEOUT", None, stop))

    assert (found.kind, found.why) == (
        Next.STOP,
        "demo segment 1: job 17 ended as TIMEOUT; this run stops: 2 attempts without progress; fix the cause",
    )


# --- records ---


def test_a_record_is_found_by_its_name_and_its_content(here: Path) -> None:
    record = toy(here, goal=1000, segment_minutes=0.001)
    path = segment(2).record
    path.write_text(segment(1).record.read_text())

    found = Records(1.0).arrived([segment(1), segment(2), segment(3)])

    assert record.segment == 1
    assert found == {segment(1)}  # what stands at 2 names another segment


def test_looking_takes_a_twentieth_of_the_time_at_most(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 3.0)
    monkeypatch.setattr("snakemake_executor_plugin_unbroken.records.time.monotonic", lambda: next(ticks))
    records = Records(1.0)

    records.arrived([segment()])

    assert records.interval_seconds == 60.0


def test_records_are_looked_for_more_often_near_the_end_of_a_segment(here: Path) -> None:
    records, out = Records(1.0), Out(segment(1), "7")
    limit = out.segment.run.segment_minutes * 60
    assert not is_near_end([out])  # it may wait in the queue for days

    out.first_heard = time.monotonic() - limit + 2 * EARLY_SECONDS
    assert not is_near_end([out]) or limit <= EARLY_SECONDS
    out.first_heard = time.monotonic() - limit
    assert is_near_end([out])

    records.arrived([segment(1)], is_near_end=False)
    assert records.interval_seconds >= 1.0
    records.arrived([segment(1)], is_near_end=True)
    assert records.interval_seconds == pytest.approx(NEAR_SECONDS, abs=0.5)


def test_of_very_many_jobs_that_wait_each_is_looked_for_in_its_turn_and_one_at_work_every_time(here: Path) -> None:
    records = Records(1.0)
    outs = [Out(segment(number), str(number)) for number in range(1, 5 * QUIET_AT_ONCE)]
    outs[7].first_heard = 0.0

    looks = [records.due(outs) for _ in range(TURNS)]

    counted = Counter(found.number for look in looks for found in look)
    assert all(outs[7].segment in look and len(look) <= 1 + QUIET_AT_ONCE for look in looks)
    assert counted == Counter({out.segment.number: 1 for out in outs}) + Counter({8: TURNS - 1})


def test_few_jobs_that_wait_are_looked_for_every_time(here: Path) -> None:
    outs = [Out(segment(number), str(number)) for number in range(1, QUIET_AT_ONCE + 1)]

    assert Records(1.0).due(outs) == [out.segment for out in outs]


def test_a_record_that_its_job_removed_again_is_missed(here: Path) -> None:
    toy(here, goal=1000, segment_minutes=0.001)
    records = Records(1.0)
    records.arrived([segment(1), segment(2)])
    before = records.vanished([segment(1)])

    segment(1).record.unlink()
    records.arrived([segment(2)])

    assert before == []
    assert records.vanished([segment(1)]) == [segment(1)]


# --- submissions ---


def test_exactly_one_of_many_processes_may_submit_the_jobs_of_a_run(here: Path) -> None:
    won: list[bool] = []
    barrier = threading.Barrier(8)

    def try_it() -> None:
        barrier.wait()
        won.append(submissions.take(segment().key, None) is not None)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won) == [False] * 7 + [True]


def test_a_submission_says_as_which_job_and_with_which_words_a_run_was_submitted(here: Path) -> None:
    taken = submissions.take(segment().key, None)
    assert taken is not None
    empty = submissions.newest(segment().key)
    submissions.fill(taken, "17", ["-p", "short"])
    filled = submissions.newest(segment().key)

    assert empty is not None and empty.is_being_filled and empty.job_id == ""
    assert filled is not None and not filled.is_being_filled and filled.job_id == "17"
    assert submissions.words_of_newest(segment().key) == ["-p", "short"]


def test_after_a_job_that_ended_one_process_may_submit_the_next(here: Path) -> None:
    taken = submissions.take(segment().key, None)
    assert taken is not None
    submissions.fill(taken, "17")
    old = submissions.newest(segment().key)

    assert [submissions.take(segment().key, old) is not None for _ in range(2)] == [True, False]
    newest = submissions.newest(segment().key)
    assert newest is not None and (newest.number, newest.job_id) == (2, "")


def test_after_a_refusal_another_process_may_submit(here: Path) -> None:
    taken = submissions.take(segment().key, None)
    assert taken is not None

    submissions.give_back(taken)

    assert submissions.newest(segment().key) is None
    assert submissions.take(segment().key, None)


@pytest.mark.parametrize("dated", [0, 2**32], ids=["long ago", "in the future"])
def test_a_submission_of_a_process_that_died_before_it_was_filled_holds_no_other_up_for_ever(
    here: Path, dated: int
) -> None:
    submissions.take(segment().key, None)
    os.utime(here / CHAINS / "demo" / "1.json", (dated, dated))

    found = submissions.newest(segment().key)

    assert found is not None and not found.is_being_filled


def test_a_torn_submission_is_not_waited_for(here: Path) -> None:
    submissions.take(segment().key, None)
    (here / CHAINS / "demo" / "1.json").write_text("{")

    found = submissions.newest(segment().key)

    assert found is not None and not found.is_being_filled


def test_the_submissions_of_other_runs_stay(here: Path) -> None:
    taken = submissions.take("demo", None)
    submissions.take("demo2", None)
    assert taken is not None

    submissions.give_back(taken)

    assert submissions.newest("demo") is None
    assert submissions.newest("demo2") is not None


def test_a_segment_is_done_though_the_job_of_a_later_one_holds_the_run(here: Path) -> None:
    toy(here, goal=10**6, segment_minutes=0.01)
    first = Segment(toy_run(goal=10**6), 1, "toy_segment", ("demo", "001"))

    with take(first.places.lease, 2, 0.0, print):
        assert settled.is_done(first, print)
        first.record.unlink()
        with pytest.raises(LeaseError):
            settled.is_done(first, print)


@pytest.mark.parametrize(
    ("comment", "folder", "is_taken_over"),
    [
        (chain_comment("demo"), ".", True),
        (chain_comment("other"), ".", False),
        (chain_comment("demo2"), ".", False),
        (chain_comment("demo"), "/elsewhere", False),
        ("rule_toy_segment_wildcards_demo_001", ".", False),
        ("(null)", ".", False),
    ],
)
def test_a_number_that_slurm_gave_again_is_no_job_of_the_run(
    here: Path, comment: str, folder: str, is_taken_over: bool
) -> None:
    """After a crash a controller counts from the last number that it had saved."""
    job = MyJob("17", "RUNNING", "None", "name", comment, Path(folder))

    assert (array.alive_of([job], "demo") == [job]) is is_taken_over


def test_jobs_for_later_are_handed_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("snakemake_executor_plugin_unbroken.retry_later.time.monotonic", lambda: now[0])
    later = Later()
    later.add(5.0, "job")

    assert (later.due(), later.seconds_to_next()) == ([], 5.0)
    now[0] = 5.0
    assert later.due() == ["job"]
    assert (later.due(), later.seconds_to_next()) == ([], None)


# --- segments without a job ---


def test_the_segments_behind_a_finish_are_settled_without_a_job(here: Path) -> None:
    toy(here, goal=5)
    run = toy_run(goal=5)

    records = [settle(run, number, print) for number in (1, 2, 3)]

    assert [record and (record.kind, record.has_worked) for record in records] == [
        (EndKind.FINISHED, True),
        (EndKind.FINISHED, False),
        (EndKind.FINISHED, False),
    ]
    assert read_record(RunFolder("demo").record(3)) == records[2]


def test_all_segments_behind_a_finish_are_settled_at_once(here: Path) -> None:
    toy(here, goal=5)
    places = RunFolder("demo")

    with take(places.lease, 1, 0.0, print), pytest.raises(LeaseError):
        settle_rest(toy_run(goal=5), range(2, 5), print)
    held = [read_record(places.record(number)) for number in (2, 3, 4)]
    is_settled = settle_rest(toy_run(goal=5), range(2, 5), print)

    records = [read_record(places.record(number)) for number in (2, 3, 4)]
    assert held == [None] * 3
    assert is_settled
    assert [record and record.segment for record in records] == [2, 3, 4]
    assert {record and (record.kind, record.has_worked) for record in records} == {(EndKind.FINISHED, False)}


def test_segments_that_have_work_to_do_are_not_settled_at_once(here: Path) -> None:
    toy(here, goal=5)

    assert not settle_rest(toy_run(goal=9), range(2, 5), print)  # the goal was raised
    assert not RunFolder("demo").record(2).exists()


def test_a_lost_record_is_made_anew_without_a_job(here: Path) -> None:
    made = toy(here, goal=10**6, segment_minutes=0.01)
    path = RunFolder("demo").record(1)
    path.unlink()

    again = settle(toy_run(goal=10**6), 1, print)

    assert again is not None
    assert (again.kind, again.checkpoint, again.progress) == (EndKind.PAUSED, made.checkpoint, made.progress)
    assert read_record(path) == again


def test_what_is_not_done_needs_a_job(here: Path) -> None:
    run = toy_run(goal=10**6)
    assert settle(run, 1, print) is None
    toy(here, goal=10**6, segment_minutes=0.01)

    assert settle(run, 2, print) is None


def test_a_finish_whose_results_are_missing_needs_a_job(here: Path) -> None:
    toy(here, goal=5)
    (here / "results/demo/final/summary.json").unlink()

    assert settle(toy_run(goal=5), 2, print) is None


def test_nothing_is_written_while_another_job_holds_the_run(here: Path) -> None:
    toy(here, goal=5)
    places = RunFolder("demo")

    with take(places.lease, 1, 0.0, print), pytest.raises(LeaseError, match="held, segment 1 by process"):
        settle(toy_run(goal=5), 2, print)

    assert settled_record(toy_run(goal=5), 2, places) is not None
    assert not places.record(2).exists()


def test_settling_leaves_the_history_alone(here: Path) -> None:
    toy(here, goal=5)
    before = History(RunFolder("demo").history).path.read_text()

    settle(toy_run(goal=5), 2, print)

    assert History(RunFolder("demo").history).path.read_text() == before
    assert json.loads(before.splitlines()[0])["kind"] == "finished"
