"""How an attempt ends, with small programs that keep the contract or break it."""

import json
import os
import time
from pathlib import Path

import pytest
from support.toyrun import (
    checkpoints,
    final_files,
    hidden,
    history,
    program,
    run_program,
    toy,
    toy_job,
    until,
    whole_toy,
)

from unbroken.engines.testing.chain import is_alive
from unbroken.errors import CheckpointError, FencedError, ForeignFolderError, SegmentError, StalledError
from unbroken.store.history import EndKind
from unbroken.store.record import read_record

pytestmark = pytest.mark.process


def dones(base: Path) -> list[float]:
    return [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(base))]


def outcomes(base: Path) -> list[str]:
    return [attempt.kind.value for attempt in history(toy_job(base))]


def fails(base: Path, *words: object, segment: int = 1, attempt: int = 1, **changes: object) -> str:
    """The line of an attempt that must fail."""
    with pytest.raises(SegmentError) as caught:
        run_program(base, program(*words), segment, attempt, **changes)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_run_that_reaches_its_goal_leaves_a_record_final_and_one_line_of_history(tmp_path: Path) -> None:
    record = toy(tmp_path)

    job = toy_job(tmp_path)
    assert (record.kind, record.progress.done, record.has_worked) == (EndKind.FINISHED, 20, True)
    assert read_record(job.places.record(1)) == record
    assert final_files(job) == whole_toy(tmp_path / "whole")
    assert json.loads((job.places.final / "summary.json").read_text())["checkpoint"] == record.checkpoint
    assert os.readlink(job.places.checkpoints / "latest") == record.checkpoint
    assert outcomes(tmp_path) == ["finished"]
    assert hidden(job.places.root) == []
    assert list(job.places.work.iterdir()) == []


def test_the_passports_of_a_run_are_a_chain(tmp_path: Path) -> None:
    toy(tmp_path, keep=9)

    passports = [checkpoint.passport for checkpoint in checkpoints(toy_job(tmp_path))]
    names = [checkpoint.name for checkpoint in checkpoints(toy_job(tmp_path))]
    assert [passport.progress.done for passport in passports] == [5, 10, 15, 20]
    assert [passport.parent for passport in passports] == [None, *names[:-1]]
    assert [passport.parent_digest for passport in passports] == [None, *(one.digest for one in passports[:-1])]


def test_a_program_that_pauses_gives_the_next_segment_its_place(tmp_path: Path) -> None:
    records = [run_program(tmp_path, program("one_step"), segment, goal=3) for segment in (1, 2, 3)]

    assert [(record.kind.value, record.progress.done) for record in records] == [
        ("paused", 1),
        ("paused", 2),
        ("finished", 3),
    ]
    assert [(one.progress_from, one.progress_to) for one in history(toy_job(tmp_path))] == [(0, 1), (1, 2), (2, 3)]


def test_a_crash_keeps_nothing_and_names_the_log(tmp_path: Path) -> None:
    line = fails(tmp_path, "crash")

    job = toy_job(tmp_path)
    log = job.places.log(1).with_suffix(".1.log")
    assert line == f"runs.demo: the program ended with exit code 1; nothing new was saved; read {log}"
    assert dones(tmp_path) == []
    assert outcomes(tmp_path) == ["failed"]
    assert not job.places.record(1).exists()


def test_a_crash_after_progress_keeps_it_and_the_next_attempt_goes_on_from_there(tmp_path: Path) -> None:
    line = fails(tmp_path, "crash_after_progress")
    record = run_program(tmp_path, program("one_step"), 1, 2)

    assert "kept: 1 of 20 steps" in line
    assert record.progress.done == 2
    assert outcomes(tmp_path) == ["failed", "paused"]


def test_a_program_that_cannot_be_started_fails_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SegmentError):
        run_program(tmp_path, ["/no/such/program"])

    assert outcomes(tmp_path) == ["failed"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zero_too_early", "exit code 0 (goal reached) but its last checkpoint says 1 of 20 steps"),
        ("zero_without_checkpoint", "exit code 0 (goal reached) but left no checkpoint"),
        ("pause_without_checkpoint", "ended with exit code 85 and left no newer checkpoint"),
    ],
)
def test_an_exit_code_without_evidence_is_a_failure(tmp_path: Path, name: str, words: str) -> None:
    line = fails(tmp_path, name)

    assert words in line
    assert outcomes(tmp_path) == ["failed"]
    assert not toy_job(tmp_path).places.record(1).exists()


def test_loose_files_whose_own_count_is_short_of_the_goal_are_not_the_end(tmp_path: Path) -> None:
    line = fails(tmp_path, "loose_with_goal", 0)

    assert "exit code 0 (goal reached) but its last checkpoint says 1 of 20 steps" in line


def test_loose_files_of_a_program_that_counts_nothing_are_believed(tmp_path: Path) -> None:
    paused = run_program(tmp_path, program("loose", 85), 1)
    finished = run_program(tmp_path, program("loose", 0), 2)

    assert (paused.kind, finished.kind) == (EndKind.PAUSED, EndKind.FINISHED)
    assert (toy_job(tmp_path).places.final / "state").read_text() == "2.0\n"


def test_loose_files_of_a_program_that_crashed_are_thrown_away(tmp_path: Path) -> None:
    fails(tmp_path, "loose", 1)

    assert dones(tmp_path) == []


def test_a_program_that_starts_from_zero_again_is_refused_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    for segment in (1, 2):
        run_program(tmp_path, program("one_step"), segment)
    before = checkpoints(toy_job(tmp_path))

    line = fails(tmp_path, "from_zero", segment=3)

    assert "the program handed over 1 after 2 steps: it did not go on from " in line
    assert f"{before[-1].folder} (UNBROKEN_RESUME); nothing of it was kept" in line
    assert checkpoints(toy_job(tmp_path)) == before
    assert outcomes(tmp_path) == ["paused", "paused", "failed"]


def test_a_checkpoint_at_the_same_place_is_no_progress(tmp_path: Path) -> None:
    run_program(tmp_path, program("two_ways_of_the_same", 5), 1)

    line = fails(tmp_path, "two_ways_of_the_same", 5, segment=2)

    assert "left no newer checkpoint" in line
    assert [attempt.has_advanced for attempt in history(toy_job(tmp_path))] == [True, False]


def test_a_loss_that_is_not_a_number_any_more_stops_nothing(tmp_path: Path) -> None:
    record = run_program(tmp_path, program("say_nan"))

    assert record.kind is EndKind.PAUSED
    assert record.progress.metrics == {"loss": "NaN", "best": 0.5}


def test_a_file_of_the_programs_own_named_manifest_is_refused(tmp_path: Path) -> None:
    text = 'mkdir "$UNBROKEN_SAVE/draft"; echo {} > "$UNBROKEN_SAVE/draft/manifest.json"; '
    text += 'mv "$UNBROKEN_SAVE/draft" "$UNBROKEN_SAVE/1.ready"; exit 85'

    with pytest.raises(CheckpointError, match=r"the name manifest\.json belongs to unbroken; rename yours"):
        run_program(tmp_path, ["sh", "-c", text])

    assert outcomes(tmp_path) == ["failed"]


def test_a_program_that_removes_its_save_folder_fails_and_spoils_nothing(tmp_path: Path) -> None:
    run_program(tmp_path, program("one_step"), 1)

    with pytest.raises(ForeignFolderError, match="save: gone; a run's folders stay where unbroken made them"):
        run_program(tmp_path, ["sh", "-c", 'rm -r "$UNBROKEN_SAVE"; exit 85'], 2)

    assert dones(tmp_path) == [1]
    assert run_program(tmp_path, program("one_step"), 2, 2).progress.done == 2


def test_no_worker_outlives_its_program(tmp_path: Path) -> None:
    text = 'sleep 1000 & echo $! > "$UNBROKEN_SAVE/../../../worker"; exit 1'
    with pytest.raises(SegmentError):
        run_program(tmp_path, ["sh", "-c", text])
    worker = int((tmp_path / "results/demo/worker").read_text())

    until(lambda: not is_alive(worker))


def test_a_run_that_does_not_advance_within_stall_minutes_is_stopped_and_reported(tmp_path: Path) -> None:
    line = fails(tmp_path, "stuck", stall_minutes=0.005)

    assert line.startswith("runs.demo: no progress in 0.005 minutes (stall_minutes); read ")
    assert outcomes(tmp_path) == ["failed"]


def test_a_stop_of_a_program_that_hears_nothing_takes_no_longer_than_its_segment(tmp_path: Path) -> None:
    """Until the TERM, and from that to the KILL: 60 s and 30 s in long segments, and never more than the segment."""
    began = time.monotonic()
    fails(tmp_path, "deaf_and_idle", segment_minutes=0.25, stall_minutes=0.01)

    text = toy_job(tmp_path).places.log(1).read_text()
    assert "the program does not exit by itself: sending TERM" in text
    assert "the program does not exit: sending KILL" in text
    assert time.monotonic() - began < 60


def test_a_margin_and_a_stall_that_a_short_segment_has_no_time_for_are_named(tmp_path: Path) -> None:
    run_program(tmp_path, program("one_step"), segment_minutes=0.3, first_margin_seconds=60, stall_minutes=30)
    run_program(tmp_path, program("one_step"), 2, segment_minutes=1, first_margin_seconds=30, stall_minutes=0.9)

    short, long = (toy_job(tmp_path).places.log(segment).read_text() for segment in (1, 2))
    half = "half of this segment's 18 s counts; for more set a longer segment_minutes"
    never = "this segment ends in 0.3 minutes, before a stall could be seen; set a smaller one"
    assert f"first_margin_seconds: found 60; {half}" in short
    assert f"stall_minutes: found 30; {never}" in short
    assert "first_margin_seconds: found" not in long and "stall_minutes: found" not in long


def test_a_program_that_saves_advances_even_if_it_never_writes_its_progress_file(tmp_path: Path) -> None:
    record = run_program(tmp_path, program("silent_but_saving", 40), goal=100, stall_minutes=0.05)

    (attempt,) = history(toy_job(tmp_path))
    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 40)
    assert attempt.work_seconds > 0.05 * 60  # in each of which it had saved


# --- the brake -----------------------------------------------------------------------------------------------------


def test_after_some_attempts_without_a_step_forward_no_further_one_is_made(tmp_path: Path) -> None:
    for attempt in (1, 2):
        fails(tmp_path, "crash", attempt=attempt)

    with pytest.raises(StalledError) as caught:
        run_program(tmp_path, program("one_step"), 1, 3)

    assert str(caught.value).startswith(
        "runs.demo: 2 attempts without progress, no further one is made; last: the program ended with exit code 1"
    )
    assert outcomes(tmp_path) == ["failed", "failed"]
    assert dones(tmp_path) == []


def test_a_new_start_of_the_driver_tries_again(tmp_path: Path) -> None:
    for attempt in (1, 2):
        fails(tmp_path, "crash", attempt=attempt)

    assert run_program(tmp_path, program("one_step"), 1, 1).progress.done == 1


def test_a_job_that_was_replaced_meanwhile_adds_nothing_to_the_history(tmp_path: Path) -> None:
    """Its program ended while it slept, without a checkpoint: no publish noticed that the run is another's now."""
    replaced = 'cp "$0"/000001.json "$0"/000002.json; exit 1'
    job = toy_job(tmp_path)

    with pytest.raises(FencedError):
        run_program(tmp_path, ["sh", "-c", replaced, str(job.places.lease.resolve())])

    assert history(job) == []
    assert not job.places.record(1).exists()
