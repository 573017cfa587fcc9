"""What a program says of itself: a checkpoint that it rejects is set aside, a hopeless run is not tried again."""

import json
import os
from pathlib import Path

import pytest
from support.toyrun import checkpoints, history, program, run_program, toy_job

from unbroken.errors import DivergedError, SegmentError, StalledError
from unbroken.program.verdict import Kind, Verdict, read_verdict, write_verdict
from unbroken.store.history import EndCause, EndKind


def three_steps(base: Path) -> list[str]:
    for segment in (1, 2, 3):
        run_program(base, program("one_step"), segment, keep=9)
    return names(base)


def names(base: Path) -> list[str]:
    return [checkpoint.name for checkpoint in checkpoints(toy_job(base))]


def aside(base: Path) -> list[str]:
    hidden = toy_job(base).places.checkpoints / ".quarantine"
    return sorted(os.listdir(hidden)) if hidden.is_dir() else []


@pytest.mark.process
def test_a_checkpoint_that_the_program_rejects_is_set_aside_and_the_one_before_is_taken_at_once(tmp_path: Path) -> None:
    first, second, third = three_steps(tmp_path)

    record = run_program(tmp_path, program("reject", "3.0"), 4, keep=9)

    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 3)
    assert names(tmp_path) == [first, second, record.checkpoint]
    assert aside(tmp_path) == [third, f"{third}.reason.json"]
    reason = toy_job(tmp_path).places.checkpoints / ".quarantine" / f"{third}.reason.json"
    assert json.loads(reason.read_text()) == {"is_whole": True, "reason": "a prediction differs by 0.5 in state 3"}
    assert [attempt.from_checkpoint for attempt in history(toy_job(tmp_path))] == [None, first, second, second]
    log = toy_job(tmp_path).places.log(4).read_text()
    assert f"bad checkpoint {third}: a prediction differs by 0.5 in state 3; moved to" in log


@pytest.mark.process
def test_two_rejected_in_a_row_are_both_left_where_they_were_and_the_run_is_not_tried_again(tmp_path: Path) -> None:
    before = three_steps(tmp_path)
    line = (
        rf"^runs\.demo: the program calls the checkpoint {before[1]} bad \(a prediction differs by 0.5 in state 2\), "
        rf"and {before[2]}, the one after it, too: the fault may be the program's or the machine's; nothing was set"
    )

    with pytest.raises(DivergedError, match=line):
        run_program(tmp_path, program("reject", "3.0", "2.0"), 4, keep=9)
    with pytest.raises(StalledError, match="no further attempt is made"):
        run_program(tmp_path, program("reject", "3.0", "2.0"), 4, attempt=2, keep=9)

    assert names(tmp_path) == before
    assert aside(tmp_path) == []
    assert [attempt.cause for attempt in history(toy_job(tmp_path))] == [None, None, None, EndCause.DIVERGED]


@pytest.mark.process
def test_the_only_checkpoint_is_never_set_aside_by_a_verdict(tmp_path: Path) -> None:
    run_program(tmp_path, program("one_step"), 1)
    before = names(tmp_path)

    with pytest.raises(
        DivergedError, match=r"bad \(.*\), and there is no other; nothing was set aside; read .*002(\.1)?\.log$"
    ):
        run_program(tmp_path, program("reject", "1.0"), 2)

    assert names(tmp_path) == before


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 1, 85])
def test_a_hopeless_run_keeps_what_it_had_and_is_not_tried_again(tmp_path: Path, code: int) -> None:
    with pytest.raises(
        DivergedError,
        match=r"^runs\.demo: loss is nan at step 12; the checkpoint of before is kept \(1 of 20 steps\); read .*; fix",
    ):
        run_program(tmp_path, program("hopeless", code))
    with pytest.raises(StalledError, match=r"no further attempt is made: loss is nan at step 12"):
        run_program(tmp_path, program("hopeless", code), attempt=2)

    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(tmp_path))] == [1]
    (attempt,) = history(toy_job(tmp_path))
    assert (attempt.kind, attempt.cause) == (EndKind.FAILED, EndCause.DIVERGED)


@pytest.mark.process
def test_who_has_gone_on_from_a_checkpoint_cannot_reject_it_any_more(tmp_path: Path) -> None:
    with pytest.raises(SegmentError, match=r"calls its checkpoint bad \(I changed my mind\), but it was given none$"):
        run_program(tmp_path, program("reject_too_late"))
    with pytest.raises(SegmentError, match="but it has gone on from it and saved"):
        run_program(tmp_path, program("reject_too_late"), 2)

    assert aside(tmp_path) == []


@pytest.mark.process
def test_a_malformed_verdict_is_shown_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(SegmentError, match=r'left the verdict .*hopless.*, allowed: .*"bad_checkpoint" or "hopeless"'):
        run_program(tmp_path, program("malformed_verdict"))


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"

    assert read_verdict(path) is None
    write_verdict(path, Verdict(Kind.HOPELESS, "loss is nan"))

    assert read_verdict(path) == Verdict(Kind.HOPELESS, "loss is nan")
    assert os.listdir(tmp_path) == ["verdict.json"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "x" * 10_000_000, '{"verdict": ["hopeless"], "message": "x"}', "[1]", "5"]
)
def test_whatever_stands_in_a_verdict_is_answered_with_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(text)

    with pytest.raises(SegmentError, match=r"^the program left the verdict '.*', allowed: \{\"verdict\": ") as caught:
        read_verdict(path)

    assert len(str(caught.value)) < 400


def test_a_folder_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").mkdir()

    with pytest.raises(SegmentError, match=r"^the program left the verdict a folder, allowed: "):
        read_verdict(tmp_path / "verdict.json")


def test_a_message_with_half_a_surrogate_pair_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    path.write_text('{"verdict": "hopeless", "message": "loss \\ud800"}')

    verdict = read_verdict(path)

    assert verdict is not None and verdict.message.encode() == b"loss ?"
