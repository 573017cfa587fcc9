"""The parts of `executor: unbroken` that need neither Snakemake nor Slurm."""

import json
import os
import threading
from pathlib import Path

import pytest
from support.toyrun import toy, toy_run

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError
from unbroken.job import array
from unbroken.runs import submissions
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import CHAINS, RunFolder
from unbroken.runs.lease import take
from unbroken.runs.record import read_record
from unbroken.runs.segment_end import EndKind
from unbroken.segment.settled import is_done, settle_rest, settled_record
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


@pytest.mark.process
def test_a_segment_is_done_though_the_job_of_a_later_one_holds_the_run(here: Path) -> None:
    toy(here, goal=10**6, segment_minutes=0.01)
    first = Segment(toy_run(goal=10**6), 1, "toy_segment", ("demo", "001"))

    with take(first.folder.lease, 2, 0.0, print):
        assert first.is_done(print)
        first.record.unlink()
        with pytest.raises(LeaseError):
            first.is_done(print)


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


# --- segments without a job ---


@pytest.mark.process
def test_the_segments_behind_a_finish_are_settled_without_a_job(here: Path) -> None:
    toy(here, goal=5)
    run = toy_run(goal=5)

    are_done = [is_done(run, number, print) for number in (1, 2, 3)]

    records = [read_record(RunFolder("demo").record(number)) for number in (1, 2, 3)]
    assert are_done == [True] * 3
    assert [record and (record.kind, record.has_worked) for record in records] == [
        (EndKind.FINISHED, True),
        (EndKind.FINISHED, False),
        (EndKind.FINISHED, False),
    ]


@pytest.mark.process
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


@pytest.mark.process
def test_segments_that_have_work_to_do_are_not_settled_at_once(here: Path) -> None:
    toy(here, goal=5)

    assert not settle_rest(toy_run(goal=9), range(2, 5), print)  # the goal was raised
    assert not RunFolder("demo").record(2).exists()


@pytest.mark.process
def test_a_lost_record_is_made_anew_without_a_job(here: Path) -> None:
    made = toy(here, goal=10**6, segment_minutes=0.01)
    path = RunFolder("demo").record(1)
    path.unlink()

    assert is_done(toy_run(goal=10**6), 1, print)

    again = read_record(path)
    assert again is not None
    assert (again.kind, again.checkpoint, again.progress) == (EndKind.PAUSED, made.checkpoint, made.progress)


@pytest.mark.process
def test_what_is_not_done_needs_a_job(here: Path) -> None:
    run = toy_run(goal=10**6)
    assert not is_done(run, 1, print)
    toy(here, goal=10**6, segment_minutes=0.01)

    assert not is_done(run, 2, print)


@pytest.mark.process
def test_a_finish_whose_results_are_missing_needs_a_job(here: Path) -> None:
    toy(here, goal=5)
    (here / "results/demo/final/summary.json").unlink()

    assert not is_done(toy_run(goal=5), 2, print)


@pytest.mark.process
def test_nothing_is_written_while_another_job_holds_the_run(here: Path) -> None:
    toy(here, goal=5)
    places = RunFolder("demo")

    with take(places.lease, 1, 0.0, print), pytest.raises(LeaseError, match="held, segment 1 by process"):
        is_done(toy_run(goal=5), 2, print)

    assert settled_record(toy_run(goal=5), 2, places) is not None
    assert not places.record(2).exists()


@pytest.mark.process
def test_settling_leaves_the_history_alone(here: Path) -> None:
    toy(here, goal=5)
    before = History(RunFolder("demo").history).path.read_text()

    is_done(toy_run(goal=5), 2, print)

    assert History(RunFolder("demo").history).path.read_text() == before
    assert json.loads(before.splitlines()[0])["kind"] == "finished"
