"""What an attempt notes of a folder before it publishes it, and what its successor finds of that."""

from dataclasses import replace
from pathlib import Path

import pytest

from unbroken.program import handover
from unbroken.program.contract import AttemptFolder
from unbroken.program.handover import HandedOver, noted, noted_states
from unbroken.store.progress import FileDigest, Handover, Progress

HANDOVER = Handover(
    Progress(9, 100, "epochs", {"loss": 0.5, "name": "x"}),
    is_best=True,
    is_finished=True,
    versions={"numpy": "2"},
    save_seconds=1.5,
    algorithm="sha256",
    digests={"state": FileDigest(1, "ab")},
    is_milestone=True,
    stall_seconds=0.25,
)


@pytest.fixture
def attempt_folder(tmp_path: Path) -> AttemptFolder:
    found = AttemptFolder(tmp_path / "000001")
    found.prepare()
    return found


def made(attempt_folder: AttemptFolder, name: str = "state-000001") -> HandedOver:
    draft = attempt_folder.root / name
    (draft / "final").mkdir(parents=True)
    (draft / "final/result").write_text("1")
    return HandedOver(draft, None)


def test_a_successor_finds_all_that_was_known_and_its_files(attempt_folder: AttemptFolder) -> None:
    noted(made(attempt_folder), HANDOVER)

    (found,) = noted_states(attempt_folder)

    assert (found.handover, found.is_judged) == (HANDOVER, True)
    assert (found.draft / "final/result").read_text() == "1"
    assert (attempt_folder.root / "state-000001/final/result").read_text() == "1"


def test_asked_again_it_finds_the_same(attempt_folder: AttemptFolder) -> None:
    noted(made(attempt_folder), HANDOVER)

    assert noted_states(attempt_folder) == noted_states(attempt_folder)


def test_one_that_no_program_finished_either_way(attempt_folder: AttemptFolder) -> None:
    plain = Handover(Progress(3.5, None, "checkpoints"))
    noted(made(attempt_folder), plain)

    assert [each.handover for each in noted_states(attempt_folder)] == [plain]


def test_it_is_on_the_disk_before_anything_says_so(
    attempt_folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(
        handover, "flush_tree", lambda folder: seen.append([each.name for each in folder.parent.glob("whole-*")])
    )

    noted(made(attempt_folder), HANDOVER)

    assert seen == [[]]
    assert (attempt_folder.root / "whole-state-000001.json").is_file()


def test_what_a_program_handed_over_says_it_by_itself(attempt_folder: AttemptFolder) -> None:
    noted(made(attempt_folder, "save/1.ready"), HANDOVER)

    assert not list(attempt_folder.root.rglob("whole-*"))
    assert noted_states(attempt_folder) == []


def test_of_a_checkpoint_nothing_is_left(attempt_folder: AttemptFolder) -> None:
    found = noted(made(attempt_folder), HANDOVER)
    found.draft.rename(attempt_folder.root.parent / "checkpoint")
    assert noted_states(attempt_folder) == []

    found.forget()

    assert not list(attempt_folder.root.glob("whole-*"))


def test_a_link_in_its_place_is_not_followed(attempt_folder: AttemptFolder, tmp_path: Path) -> None:
    found = noted(made(attempt_folder), HANDOVER)
    found.draft.rename(tmp_path / "elsewhere")
    found.draft.symlink_to(tmp_path / "elsewhere")

    assert noted_states(attempt_folder) == []


def test_the_least_progress_comes_first(attempt_folder: AttemptFolder) -> None:
    for number, done in enumerate([9.0, 10.0, 2.0], 1):
        handover = replace(HANDOVER, progress=replace(HANDOVER.progress, done=done))
        noted(made(attempt_folder, f"state-{number:06d}"), handover)

    assert [each.handover.progress.done for each in noted_states(attempt_folder) if each.handover] == [2, 9, 10]


def test_a_malformed_note_is_named_and_takes_no_other_with_it(
    attempt_folder: AttemptFolder, caplog: pytest.LogCaptureFixture
) -> None:
    note = noted(made(attempt_folder), HANDOVER).told
    noted(made(attempt_folder, "state-000002"), HANDOVER)
    assert note is not None
    note.write_text('{"done": "many"}')

    assert [each.draft.name for each in noted_states(attempt_folder)] == ["state-000002"]

    (line,) = caplog.messages
    assert "whole-state-000001.json: 'done' is 'many', allowed: a number" in line


@pytest.mark.parametrize("damaged", [b"", b'{"done": 1', b"\xff\x00", b"[]"])
def test_a_damaged_note_stops_nothing(
    attempt_folder: AttemptFolder, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    note = noted(made(attempt_folder), HANDOVER).told
    assert note is not None
    note.write_bytes(damaged)

    assert noted_states(attempt_folder) == []
    assert [note.name in line for line in caplog.messages] == [True]
