"""What an attempt goes on from: the newest good checkpoint, after whatever happened to the files."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support.toyrun import (
    checkpoints,
    final_files,
    flip_byte,
    hidden,
    history,
    program,
    rewrite_passport,
    run_program,
    toy,
    toy_job,
    whole_toy,
)

from unbroken.errors import CheckpointError, IdentityError, LeaseError, NoCheckpointError
from unbroken.store import results as final
from unbroken.store.history import EndKind
from unbroken.store.record import read_record
from unbroken.system import fs
from unbroken.system.fs import unique_name

pytestmark = pytest.mark.process


def steps(base: Path, count: int, **changes: object) -> None:
    """So many segments of one step each."""
    for segment in range(1, count + 1):
        run_program(base, program("one_step"), segment, **changes)  # type: ignore[arg-type]


def dones(base: Path) -> list[float]:
    return [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(base))]


# --- bad checkpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: os.truncate(folder / "state", 1),
        lambda folder: flip_byte(folder / "state"),
        lambda folder: flip_byte(folder / "manifest.json", 100),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "state").unlink(),
        lambda folder: rewrite_passport(folder, run="other"),
    ],
)
def test_after_a_bad_newest_checkpoint_the_work_since_the_one_before_is_done_again(tmp_path: Path, spoil) -> None:
    steps(tmp_path, 3, keep=9)
    spoil(checkpoints(toy_job(tmp_path))[-1].folder)

    record = run_program(tmp_path, program("one_step"), 3, keep=9)

    assert record.progress.done == 3
    assert dones(tmp_path) == [1, 2, 3]
    assert "taking the one before" in toy_job(tmp_path).places.log(3).read_text()
    assert os.readlink(toy_job(tmp_path).places.checkpoints / "latest") == record.checkpoint


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    steps(tmp_path, 3, keep=9)
    flip_byte(checkpoints(toy_job(tmp_path))[-1].folder / "state")

    run_program(tmp_path, program("one_step"), 3, keep=9)

    assert [checkpoint.passport.sequence for checkpoint in checkpoints(toy_job(tmp_path))] == [1, 2, 4]


def test_with_all_checkpoints_bad_the_run_stops_and_a_second_try_does_not_start_from_zero(tmp_path: Path) -> None:
    steps(tmp_path, 2)
    for checkpoint in checkpoints(toy_job(tmp_path)):
        flip_byte(checkpoint.folder / "state")

    for _ in range(2):
        with pytest.raises(NoCheckpointError, match=r"^runs\.demo: no good checkpoint is left; the bad ones and their"):
            run_program(tmp_path, program("one_step"), 3)

    assert dones(tmp_path) == []


def test_a_run_whose_checkpoints_were_deleted_does_not_start_from_zero(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    shutil.rmtree(toy_job(tmp_path).places.checkpoints)

    with pytest.raises(NoCheckpointError, match="begin anew with: unbroken restart demo"):
        run_program(tmp_path, program("one_step"), 1)


@pytest.mark.parametrize("also", [[], ["history.jsonl"], ["history.jsonl", "segments", "lease"]])
def test_a_later_segment_never_starts_from_zero_whatever_was_deleted(tmp_path: Path, also: list[str]) -> None:
    steps(tmp_path, 1)
    for name in ["checkpoints", *also]:
        path = toy_job(tmp_path).places.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    with pytest.raises(NoCheckpointError):
        run_program(tmp_path, program("one_step"), 2)


def test_a_changed_identity_is_refused_before_anything_is_started_or_moved(tmp_path: Path) -> None:
    toy(tmp_path)
    before = checkpoints(toy_job(tmp_path))

    with pytest.raises(IdentityError, match=r"settings\.seed was 1, is 2.*type: unbroken accept demo"):
        toy(tmp_path, 2, seed=2, goal=40)

    assert checkpoints(toy_job(tmp_path)) == before
    assert [attempt.kind for attempt in history(toy_job(tmp_path))][1:] == [EndKind.REFUSED]
    assert history(toy_job(tmp_path))[-1].message.startswith("not the computation that checkpoint")


# --- finished, extended, lowered -----------------------------------------------------------------------------------


def test_a_finished_run_passes_its_finish_on_without_work(tmp_path: Path) -> None:
    toy(tmp_path)

    record = toy(tmp_path, 2)

    assert (record.kind, record.has_worked, record.progress.done) == (EndKind.FINISHED, False, 20)
    assert len(history(toy_job(tmp_path))) == 1


def test_a_raised_goal_reopens_a_finished_run_from_its_last_checkpoint(tmp_path: Path) -> None:
    toy(tmp_path, goal=20)

    record = toy(tmp_path, 2, goal=40)

    job = toy_job(tmp_path)
    assert (record.kind, record.has_worked) == (EndKind.FINISHED, True)
    assert history(job)[-1].progress_from == 20
    assert final_files(job) == whole_toy(tmp_path / "whole", goal=40)


def test_a_lowered_goal_leaves_a_finished_run_finished(tmp_path: Path) -> None:
    toy(tmp_path, goal=20)

    record = toy(tmp_path, 2, goal=10)

    assert (record.kind, record.has_worked, record.progress.done) == (EndKind.FINISHED, False, 20)
    assert len(history(toy_job(tmp_path))) == 1


def test_a_goal_lowered_below_what_is_done_ends_a_run_that_was_not_finished(tmp_path: Path) -> None:
    steps(tmp_path, 3, goal=20)

    record = run_program(tmp_path, program("two_ways_of_the_same", 3), 4, goal=2)

    assert record.kind is EndKind.FINISHED


def test_final_is_made_again_if_somebody_removed_it(tmp_path: Path) -> None:
    toy(tmp_path)
    before = final_files(toy_job(tmp_path))
    shutil.rmtree(toy_job(tmp_path).places.final)

    toy(tmp_path, 1)

    assert final_files(toy_job(tmp_path)) == before
    assert len(history(toy_job(tmp_path))) == 1


def test_final_that_stands_is_not_written_again(tmp_path: Path) -> None:
    toy(tmp_path)
    place = toy_job(tmp_path).places.final
    before = place.stat().st_ino

    toy(tmp_path, 1)

    assert place.stat().st_ino == before


def test_a_torn_summary_makes_final_anew(tmp_path: Path) -> None:
    toy(tmp_path)
    place = toy_job(tmp_path).places.final
    (place / final.SUMMARY).write_text("{")

    toy(tmp_path, 1)

    assert json.loads((place / final.SUMMARY).read_text())["run"] == "demo"


def test_a_summary_of_the_programs_own_is_not_written_over(tmp_path: Path) -> None:
    text = (
        'd="$UNBROKEN_SAVE/draft"; mkdir "$d" "$d/final"; echo mine > "$d/final/summary.json"; '
        'echo \'{"done": 20, "goal": 20}\' > "$d/progress.json"; mv "$d" "$UNBROKEN_SAVE/1.ready"'
    )

    with pytest.raises(CheckpointError, match=r"the name summary\.json in final/ belongs to unbroken; rename yours"):
        run_program(tmp_path, ["sh", "-c", text])

    assert not toy_job(tmp_path).places.final.exists()


# --- records -------------------------------------------------------------------------------------------------------


def test_a_lost_record_of_a_finished_run_is_made_anew_from_the_store(tmp_path: Path) -> None:
    first = toy(tmp_path)
    path = toy_job(tmp_path).places.record(1)
    path.unlink()

    again = toy(tmp_path, 1)

    assert (again.kind, again.checkpoint, again.has_worked) == (first.kind, first.checkpoint, True)
    assert read_record(path) == again
    assert len(history(toy_job(tmp_path))) == 1


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_lost_record_of_a_worked_segment_is_made_anew_without_work(tmp_path: Path, segment: int) -> None:
    steps(tmp_path, 3)
    toy_job(tmp_path).places.record(segment).unlink()

    record = run_program(tmp_path, program("crash"), segment)

    assert (record.kind, record.progress.done, record.has_worked) == (EndKind.PAUSED, 3, True)
    assert len(history(toy_job(tmp_path))) == 3


def test_a_spoilt_record_is_none(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    path = toy_job(tmp_path).places.record(1)
    answers = []
    for text in ("", "{", "[]", '{"format": 2, "run": "demo"}', path.read_text().replace("paused", "x")):
        path.write_text(text)
        answers.append(read_record(path))

    assert answers == [None] * 5


def test_a_segment_whose_work_was_lost_to_a_bad_checkpoint_works_again(tmp_path: Path) -> None:
    steps(tmp_path, 3, keep=9)
    flip_byte(checkpoints(toy_job(tmp_path))[-1].folder / "state")

    record = run_program(tmp_path, program("one_step"), 3, keep=9)

    assert len(history(toy_job(tmp_path))) == 4
    assert record.progress.done == 3


# --- what killed attempts left -------------------------------------------------------------------------------------


def test_leftovers_of_killed_attempts_are_removed_and_told(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    places = toy_job(tmp_path).places
    left = [
        places.checkpoints / unique_name("trash"),
        places.root / unique_name("final"),
        places.root / unique_name("trash"),
        places.work / "000000" / "save",
    ]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "data").write_text("half")
    drafts = [places.segments / unique_name("001.json"), places.checkpoints / unique_name("latest")]
    for path in drafts:
        path.touch()

    run_program(tmp_path, program("one_step"), 2)

    assert hidden(places.root) == []
    assert list(places.work.iterdir()) == []
    told = [line for line in places.log(2).read_text().splitlines() if "removed the unfinished files of" in line]
    assert [path.name for path in [*left[:3], *drafts] if path.name not in told[0]] == []
    assert "work/000000" in told[1]


def test_a_folder_that_cannot_be_removed_ends_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a killed attempt still writes there, say."""
    steps(tmp_path, 1)
    places, remove = toy_job(tmp_path).places, fs._remove
    (places.work / "000000").mkdir()
    monkeypatch.setattr(fs, "_REMOVAL_RESTS_SECONDS", ())

    def inhabited(folder: Path) -> None:
        if folder.parent == places.work:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
        remove(folder)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "_remove", inhabited)
        record = run_program(tmp_path, program("one_step"), 2)
    left = len(hidden(places.work))
    run_program(tmp_path, program("one_step"), 3)

    assert record.kind is EndKind.PAUSED
    assert [attempt.kind for attempt in history(toy_job(tmp_path))] == [EndKind.PAUSED] * 3
    told = re.findall(r"work/(\d+): not removed yet \(.*: Directory not empty\)", places.log(2).read_text())
    assert told == ["000000", "000002"]
    assert (left, list(places.work.iterdir())) == (2, [])


def test_the_desk_of_a_successor_is_never_removed(tmp_path: Path) -> None:
    """Should this job have slept before it tidies up."""
    steps(tmp_path, 1)
    attempt_folder = toy_job(tmp_path).places.work / "000999"
    attempt_folder.mkdir()

    run_program(tmp_path, program("one_step"), 2)

    assert attempt_folder.is_dir()


def test_a_killed_attempt_gets_its_line_of_history_from_the_next(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    places = toy_job(tmp_path).places
    claim = json.loads((places.lease / "000001.json").read_text())
    dead = {**claim, "token": 2, "segment": 2, "pid_start": "1", "released_utc": ""}
    (places.lease / "000002.json").write_text(json.dumps(dead))

    run_program(tmp_path, program("one_step"), 2)

    found = history(toy_job(tmp_path))
    assert [(one.token, one.segment, one.kind.value) for one in found] == [
        (1, 1, "paused"),
        (2, 2, "died"),
        (3, 2, "paused"),
    ]


def test_two_killed_attempts_in_a_row_both_get_their_line(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    places = toy_job(tmp_path).places
    claim = json.loads((places.lease / "000001.json").read_text())
    for token in (2, 3):
        dead = {**claim, "token": token, "segment": 2, "pid_start": "1", "released_utc": ""}
        (places.lease / f"{token:06d}.json").write_text(json.dumps(dead))

    run_program(tmp_path, program("one_step"), 2)

    assert [one.token for one in history(toy_job(tmp_path))] == [1, 2, 3, 4]


def test_a_malformed_claim_stops_the_segment_and_touches_nothing(tmp_path: Path) -> None:
    steps(tmp_path, 1)
    (toy_job(tmp_path).places.lease / "000002.json").write_text("{")

    with pytest.raises(LeaseError, match=r"000002\.json: not a claim of unbroken"):
        run_program(tmp_path, program("one_step"), 2)

    assert dones(tmp_path) == [1]


def test_a_log_tells_what_was_given_and_how_it_ended(tmp_path: Path) -> None:
    toy(tmp_path)

    lines = toy_job(tmp_path).places.log(1).read_text().splitlines()
    assert "engine toy, 1 minutes, attempt 1: a test" in lines[0]
    assert "finished: 20 steps, checkpoint 000004_20-steps_" in lines[-1]


# --- who -----------------------------------------------------------------------------------------------------------
