"""Saves beside the training of two ranks, one of which dies, fails or is spoilt: nothing torn is shown, all know it."""

import json
from pathlib import Path

import pytest
from support.forked_ranks import ForkedRanks
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support import ranks_program

SUPPORT = Path(ranks_program.__file__).parent
TEXT = (SUPPORT / "ranks_beside.py").read_text() + Path(ranks_program.__file__).read_text()


def ranks(
    folder: Path, mishap: str, monkeypatch: pytest.MonkeyPatch, *arguments: str, start: type[TrainingParent]
) -> TrainingParent:
    monkeypatch.setenv("RANKS_MISHAP", mishap)
    return start(folder, TEXT, [*arguments, "--beside", "1"], ranks=2)


def files_handed_over(parent: TrainingParent) -> list[set[str]]:
    folders = sorted(parent.root.glob("checkpoint-*"))
    return [{str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()} for each in folders]


@pytest.mark.slow
def test_a_rank_that_is_killed_in_a_save_costs_the_steps_since_the_save_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ranks(tmp_path / "run", "dies", monkeypatch, "fsdp", start=TrainingParent)
    parent.run()
    before, left = len(parent.handovers), {path.name for path in (parent.root / "desk-0" / "save").iterdir()}
    monkeypatch.setenv("RANKS_MISHAP", "")
    parent.run_to_the_end()

    assert parent.codes == [137, 0]
    assert "unbroken: rank 1 was ended by SIGKILL; the others here have 10 s to leave by themselves" in parent.log
    assert (before, left) == (2, {"draft-000003"})
    wanted = {"state.pt", "ranks/00001.pt"}
    wanted |= {"shards/.metadata", "shards/__0_0.distcp", "shards/__1_0.distcp"}
    assert all(wanted <= files for files in files_handed_over(parent))
    assert parent.handovers[-1]["done"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mishap", "line"),
    [
        ("ddp", "fails", "rank 1 could not save: the disk is full"),
        ("fsdp", "fails with shards", "shards: rank 1: OSError(28, 'No space left on device')"),
    ],
)
def test_a_rank_that_cannot_write_ends_the_training_on_all_and_the_checkpoint_of_before_stays(
    kind: str, mishap: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ranks(tmp_path / "run", mishap, monkeypatch, kind, start=ForkedRanks)
    parent.run()

    assert parent.codes == [1]
    assert len(parent.handovers) == 2
    assert parent.log.count(line) >= 2, parent.log  # one of each rank; both write into one file, at the same moment


@pytest.mark.slow
def test_a_weight_that_is_no_number_on_one_rank_is_never_saved_and_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ranks(tmp_path / "run", "", monkeypatch, "fsdp", "--spoils", "1", "3", start=ForkedRanks)
    parent.run()

    assert parent.codes == [1]
    line = "unbroken: the weights model.0.weight hold NaN or infinity, at step "
    assert parent.log.count(line) == 2
    assert all(handover["done"] < 3 * 2 / 11 for handover in parent.handovers)


@pytest.mark.slow
def test_a_loss_that_is_no_number_on_one_rank_ends_all_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNBROKEN_VERDICT", str(tmp_path / "verdict.json"))
    parent = ranks(tmp_path / "run", "", monkeypatch, "ddp", "--loses", "1", "2", start=TrainingParent)
    parent.run()
    verdict = json.loads((tmp_path / "verdict.json").read_text())

    assert parent.codes == [1]
    message = "loss is nan, allowed: a finite number (Guard.finite), at step 2 in epoch 0"
    assert verdict == {"verdict": "hopeless", "message": message}
    assert f"unbroken: {message}" in parent.log


@pytest.mark.slow
def test_a_rank_that_ends_by_an_error_does_not_wait_for_the_others_to_complete_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ranks(tmp_path / "run", "waits", monkeypatch, "ddp", "--raises", "0", "3", start=TrainingParent)
    parent.run()

    assert parent.codes == [1]
    assert "ValueError: a mistake of the user's" in parent.log
    assert "the last save failed: it was not complete 5 s after the training had ended" in parent.log
    assert parent.handovers == []
