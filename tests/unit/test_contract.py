from pathlib import Path

import pytest

from unbroken.errors import CheckpointError
from unbroken.program.contract import AttemptFolder
from unbroken.program.handover import loose_state, ready_states


@pytest.fixture
def attempt_folder(tmp_path: Path) -> AttemptFolder:
    attempt_folder = AttemptFolder(tmp_path / "desk")
    attempt_folder.prepare()
    return attempt_folder


def put(folder: Path, progress: str = '{"done": 1}') -> Path:
    folder.mkdir()
    (folder / "state").touch()
    (folder / "progress.json").write_text(progress)
    return folder


def test_states_are_found_in_the_order_of_their_names(attempt_folder: AttemptFolder) -> None:
    for name in ("0010.ready", "0002.ready"):
        put(attempt_folder.save / name)

    assert [found.draft.name for found in ready_states(attempt_folder)] == ["0002.ready", "0010.ready"]


def test_the_progress_file_of_a_state_does_not_become_part_of_the_checkpoint(attempt_folder: AttemptFolder) -> None:
    put(attempt_folder.save / "1.ready", '{"done": 7}')

    (found,) = ready_states(attempt_folder)

    assert found.handover is not None and found.handover.progress.done == 7
    assert [item.name for item in found.draft.iterdir()] == ["state"]


def test_a_state_that_says_nothing_is_as_far_as_the_progress_file_says(attempt_folder: AttemptFolder) -> None:
    (attempt_folder.save / "1.ready").mkdir()
    attempt_folder.progress.write_text('{"done": 5}')

    (found,) = ready_states(attempt_folder)

    assert found.handover is not None and found.handover.progress.done == 5


@pytest.mark.parametrize("text", ['{"done"', "", "\xff"])
def test_a_malformed_progress_file_of_a_state_is_named(attempt_folder: AttemptFolder, text: str) -> None:
    put(attempt_folder.save / "1.ready", text)

    with pytest.raises(CheckpointError, match=r"1\.ready/progress\.json: not JSON"):
        ready_states(attempt_folder)


def test_what_is_not_renamed_yet_is_no_state(attempt_folder: AttemptFolder) -> None:
    put(attempt_folder.save / "draft-7")

    assert ready_states(attempt_folder) == []


def test_loose_files_are_one_state_together(attempt_folder: AttemptFolder) -> None:
    (attempt_folder.save / "state").touch()
    (attempt_folder.save / "sub").mkdir()
    (attempt_folder.save / "progress.json").write_text('{"done": 3}')

    found = loose_state(attempt_folder)

    assert found is not None and found.handover is not None and found.handover.progress.done == 3
    assert sorted(item.name for item in found.draft.iterdir()) == ["state", "sub"]


def test_nothing_saved_is_no_state(attempt_folder: AttemptFolder) -> None:
    assert loose_state(attempt_folder) is None


def test_a_draft_that_was_not_ended_is_no_loose_state(attempt_folder: AttemptFolder) -> None:
    put(attempt_folder.save / "draft")
    (attempt_folder.save / "state.tmp").touch()
    (attempt_folder.save / ".hidden").touch()

    assert loose_state(attempt_folder) is None


def test_a_file_whose_name_only_sounds_like_a_draft_is_saved(attempt_folder: AttemptFolder) -> None:
    (attempt_folder.save / "draft_of_the_paper.txt").touch()

    found = loose_state(attempt_folder)

    assert found is not None and [item.name for item in found.draft.iterdir()] == ["draft_of_the_paper.txt"]


def test_a_file_that_only_sounds_like_a_state_is_a_loose_file(attempt_folder: AttemptFolder) -> None:
    (attempt_folder.save / "model.ready").touch()

    assert ready_states(attempt_folder) == []
    found = loose_state(attempt_folder)
    assert found is not None and [item.name for item in found.draft.iterdir()] == ["model.ready"]


def test_a_folder_in_place_of_a_progress_file_is_named(attempt_folder: AttemptFolder) -> None:
    (attempt_folder.save / "1.ready" / "progress.json").mkdir(parents=True)

    with pytest.raises(
        CheckpointError, match=r"1\.ready/progress\.json: a folder, allowed: a file with an object in it"
    ):
        ready_states(attempt_folder)


def test_a_progress_file_that_is_nested_without_end_is_named(attempt_folder: AttemptFolder) -> None:
    put(attempt_folder.save / "1.ready", "[" * 100_000)

    with pytest.raises(CheckpointError, match=r"1\.ready/progress\.json: not JSON \(nested too deeply\)"):
        ready_states(attempt_folder)
