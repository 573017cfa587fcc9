"""Back to an earlier checkpoint: by itself where nothing goes on from the newest, and by hand; nothing is lost."""

import json
from pathlib import Path

import pytest
from support.toyrun import checkpoints, history, program, run_program, toy, toy_job

from unbroken.cli.back import go_back
from unbroken.errors import ConfigError, SegmentError, StalledError
from unbroken.store import lease
from unbroken.store.checkpoints import QUARANTINE
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process

# Counts one step and saves; breaks when it is to go on from a number of steps that its arguments name.
STEP = """\
done=0
[ -z "$UNBROKEN_RESUME" ] || done=$(cat "$UNBROKEN_RESUME/state")
for bad in "$@"; do [ "$bad" != "$done" ] || exit 3; done
done=$((done + 1))
echo $done > "$UNBROKEN_SAVE/state"
echo "{\\"done\\": $done, \\"goal\\": 9, \\"unit\\": \\"steps\\"}" > "$UNBROKEN_SAVE/progress.json"
exit 85
"""


def dones(base: Path) -> list[float]:
    return [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(base))]


def step(*bad: int) -> list[str]:
    return ["sh", "-c", STEP, "step", *map(str, bad)]


def advanced(base: Path, steps: int) -> None:
    for segment in range(1, steps + 1):
        run_program(base, step(), segment, keep=5)


def attempts(base: Path, count: int, *bad: int, segment: int = 4) -> list[str]:
    """What so many attempts of one start say."""
    said = []
    for number in range(1, count + 1):
        try:
            run_program(base, step(*bad), segment, number, keep=5)
            said.append("")
        except SegmentError as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_the_one_before_is_tried_and_what_did_not_work_is_set_aside(tmp_path: Path) -> None:
    advanced(tmp_path, 3)
    bad = checkpoints(toy_job(tmp_path))[-1].name

    said = attempts(tmp_path, 3, 3)

    assert [bool(text) for text in said] == [True, True, False]
    assert dones(tmp_path) == [1, 2, 3]  # made anew, from 2
    assert bad not in [checkpoint.name for checkpoint in checkpoints(toy_job(tmp_path))]
    aside = toy_job(tmp_path).places.checkpoints / QUARANTINE
    assert (aside / bad / "state").read_text() == "3\n"
    assert (
        (aside / f"{bad}.reason.json").read_text().__contains__("no attempt came forward from it; from 000002_2-steps")
    )
    assert run_program(tmp_path, step(), 5).progress.done == 4


def test_a_program_that_fails_from_every_checkpoint_loses_none(tmp_path: Path) -> None:
    advanced(tmp_path, 3)
    before = checkpoints(toy_job(tmp_path))

    said = attempts(tmp_path, 6, 1, 2, 3)

    assert checkpoints(toy_job(tmp_path)) == before
    assert not (toy_job(tmp_path).places.checkpoints / QUARANTINE).exists()
    tried = [attempt.from_checkpoint for attempt in history(toy_job(tmp_path))][3:]
    assert tried == [before[2].name, before[2].name, before[1].name]
    stop = f"neither from {before[2].name} nor from {before[1].name}, the checkpoint before; both stay where they are"
    assert [stop in text for text in said] == [False, False, False, True, True, True]
    assert said[3].startswith("StalledError: runs.demo: 3 attempts without progress")


@pytest.mark.parametrize("said", ["Disk quota exceeded", "Input/output error", "Stale file handle"])
def test_a_program_that_breaks_at_its_files_does_not_speak_against_the_checkpoint(tmp_path: Path, said: str) -> None:
    advanced(tmp_path, 2)
    before = checkpoints(toy_job(tmp_path))
    command = ["sh", "-c", f"echo 'OSError: {said}' >&2; exit 1"]

    for number in (1, 2):
        with pytest.raises(SegmentError, match=said):
            run_program(tmp_path, command, 3, number)
    with pytest.raises(StalledError, match=said):
        run_program(tmp_path, step(), 3, 3)

    assert {attempt.from_checkpoint for attempt in history(toy_job(tmp_path))[2:]} == {before[1].name}
    assert checkpoints(toy_job(tmp_path)) == before


def test_each_start_of_snakemake_begins_with_the_newest_again(tmp_path: Path) -> None:
    advanced(tmp_path, 3)
    before = checkpoints(toy_job(tmp_path))
    attempts(tmp_path, 4, 1, 2, 3)

    attempts(tmp_path, 1, 2)

    assert history(toy_job(tmp_path))[-1].from_checkpoint == before[2].name
    assert dones(tmp_path) == [1, 2, 3, 4]


def test_a_one_before_that_is_bad_is_passed_over(tmp_path: Path) -> None:
    advanced(tmp_path, 3)
    before = checkpoints(toy_job(tmp_path))
    (before[1].folder / "state").write_text("9\n")

    attempts(tmp_path, 3, 3)

    assert history(toy_job(tmp_path))[-1].from_checkpoint == before[0].name
    assert dones(tmp_path) == [1, 2]


def test_with_one_checkpoint_the_run_stops(tmp_path: Path) -> None:
    advanced(tmp_path, 1)

    for number in (1, 2):
        with pytest.raises(SegmentError):
            run_program(tmp_path, program("crash"), 2, number)

    with pytest.raises(StalledError, match="2 attempts without progress, no further one is made; last: "):
        run_program(tmp_path, step(), 2, 3)
    assert dones(tmp_path) == [1]


# --- by hand ---


def names(base: Path) -> list[str]:
    return [checkpoint.name for checkpoint in checkpoints(toy_job(base))]


def test_back_sets_the_newest_aside_and_its_segment_is_done_again(tmp_path: Path) -> None:
    advanced(tmp_path, 3)
    before = names(tmp_path)

    lines = go_back("demo", "", tmp_path)

    assert names(tmp_path) == before[:2]
    aside = toy_job(tmp_path).places.checkpoints / QUARANTINE
    assert json.loads((aside / f"{before[2]}.reason.json").read_text()) == {
        "is_whole": True,
        "reason": "set aside by hand: unbroken back",
    }
    assert lines[1:] == [
        "demo: segments to be done again: 3",
        f"demo: it goes on from {before[1]} (2 of 9 steps) with: snakemake",
    ]
    assert not toy_job(tmp_path).places.record(3).exists()
    assert run_program(tmp_path, step(), 3, keep=5).progress.done == 3


@pytest.mark.parametrize("by", ["name", "number"])
def test_back_goes_to_a_checkpoint_of_one_s_choice(by: str, tmp_path: Path) -> None:
    advanced(tmp_path, 4)
    before = names(tmp_path)

    go_back("demo", before[1] if by == "name" else "2", tmp_path)

    assert names(tmp_path) == before[:2]
    assert not any(toy_job(tmp_path).places.record(segment).exists() for segment in (3, 4))
    assert (toy_job(tmp_path).places.checkpoints / "latest").resolve().name == before[1]


def test_back_of_a_finished_run_computes_its_end_anew(tmp_path: Path) -> None:
    toy(tmp_path, goal=20)

    go_back("demo", "", tmp_path)
    record = toy(tmp_path, goal=20)

    assert record.kind is EndKind.FINISHED
    assert [attempt.progress_from for attempt in history(toy_job(tmp_path))] == [0, 15]


@pytest.mark.parametrize(
    ("steps", "to", "line"),
    [
        (0, "", "demo: has no checkpoint, so there is none to go back to; type: unbroken restart demo"),
        (1, "", r"demo: has 000001_1-steps_\S+ alone, so there is none to go back to; type: unbroken restart demo"),
        (3, "9", r"demo: --to: found '9', allowed: 000001_1-steps_\S+, 000002_2-steps_\S+ \(or the number at its"),
        (3, "3", r"demo: --to: found '3', allowed: 000001_1"),
    ],
)
def test_back_to_what_is_not_there_is_refused(steps: int, to: str, line: str, tmp_path: Path) -> None:
    advanced(tmp_path, steps)
    before = names(tmp_path)

    with pytest.raises(ConfigError, match=line):
        go_back("demo", to, tmp_path)

    assert names(tmp_path) == before


def test_back_of_a_run_at_work_is_refused(tmp_path: Path) -> None:
    advanced(tmp_path, 3)

    with (
        lease.take(toy_job(tmp_path).places.lease, 4, 0.0),
        pytest.raises(ConfigError, match="held, segment 4 by process"),
    ):
        go_back("demo", "", tmp_path)

    assert len(names(tmp_path)) == 3


def test_nothing_else_is_done_before_a_back_that_is_refused(tmp_path: Path) -> None:
    """Such as the jobs that wait being cancelled."""
    done: list[str] = []
    advanced(tmp_path, 2)
    for to in ("7", "000009_9-steps"):
        with pytest.raises(ConfigError, match="--to: found"):
            go_back("demo", to, tmp_path, lambda: done.append("before"))
    with lease.take(toy_job(tmp_path).places.lease, 1, 0.0), pytest.raises(ConfigError, match="held, segment"):
        go_back("demo", "", tmp_path, lambda: done.append("before"))
    assert done == []

    go_back("demo", "", tmp_path, lambda: done.append("before"))

    assert done == ["before"]
