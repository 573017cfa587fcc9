"""Ranks on one GPU: two with DDP by gloo, since NCCL refuses that, and one with FSDP2 by NCCL.

Two with FSDP2 by gloo end with a SIGSEGV in torch (2.11; pytorch/pytorch#152645).
"""

import signal
from pathlib import Path

import pytest
from support.gpu import DEVICE, EXACT
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support import ranks_program

pytestmark = pytest.mark.gpu

TEXT = Path(ranks_program.__file__).read_text()
BESIDE = Path(ranks_program.__file__).with_name("ranks_beside.py").read_text()
# How many ranks a kind can have on one GPU.
KINDS = {"ddp": 2, "fsdp": 1}


def ranks(folder: Path, *arguments: object, text: str = TEXT) -> TrainingParent:
    words = [*map(str, arguments), "--device", DEVICE]
    return TrainingParent(folder, text, words, ranks=KINDS[str(arguments[0])], told=EXACT)


def final_of(parent: TrainingParent) -> dict[str, bytes]:
    """The results; one rank with FSDP2 keeps its mesh in its state, with a hash that each process draws anew."""
    return {name: data for name, data in parent.result().items() if name.startswith("final/")}


def whole_of(kind: str, folder: Path) -> TrainingParent:
    parent = ranks(folder / "whole", kind)
    parent.run_to_the_end()
    assert parent.codes == [0], parent.log
    return parent


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_of_all_ranks_changes_no_byte_of_the_result(kind: str, tmp_path: Path) -> None:
    whole = whole_of(kind, tmp_path)
    pieces = ranks(tmp_path / "run", kind, "--signals", 8)

    pieces.run_to_the_end()

    assert pieces.codes == [85, 0], pieces.log
    assert "final/model.pt" in final_of(pieces)
    assert final_of(pieces) == final_of(whole)


def test_a_rank_that_dies_in_a_save_beside_the_training_costs_that_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = whole_of("ddp", tmp_path)
    parent = ranks(tmp_path / "run", "ddp", "--beside", 4, text=BESIDE + TEXT)
    monkeypatch.setenv("RANKS_MISHAP", "dies")
    parent.run()
    before = len(parent.handovers)
    monkeypatch.delenv("RANKS_MISHAP")
    parent.run_to_the_end()

    assert parent.codes[0] not in (0, 85, -signal.SIGUSR1), parent.log
    assert before >= 1
    assert parent.codes[-1] == 0
    assert final_of(parent) == final_of(whole)
