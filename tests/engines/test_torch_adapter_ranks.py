"""Frameworks that run the loop themselves, on two ranks: stopped at one step, saved together, the same in the end."""

import io
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch

from unbroken.training.torch.state import canonical

SUPPORT = Path(__file__).parents[1] / "support"


@dataclass(frozen=True)
class Case:
    """A framework and its small program, in tests/support."""

    module: str
    program: str
    left_at: float  # where both ranks leave, one step after the one in which the last is told to
    killed_in: int
    of_ranks: frozenset[str]  # files of single ranks
    differing: frozenset[str] = frozenset()  # times and folders stand in them
    pickles: frozenset[str] = frozenset()  # equal when they are read
    told: Mapping[str, str] = field(default_factory=dict)  # by the environment


TRAINER_DIFFERING = frozenset({"trainer_state.json", "training_args.bin", "unbroken_metrics.json"})
DESCRIPTIONS = frozenset(f"{name}/.metadata" for name in ("lightning.ckpt", "optimizer_0", "pytorch_model_fsdp_0"))
FSDP2 = {"FSDP2": "forced", "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])}
CASES = [
    Case(
        "transformers",
        "trainer_ranks.py",
        5,
        7,
        frozenset({"rng_state_0.pth", "rng_state_1.pth"}),
        differing=TRAINER_DIFFERING,
    ),
    Case(
        "pytorch_lightning",
        "lightning_ranks.py",
        4 / 7,
        6,
        frozenset({"ranks/00001.pt"}),
        pickles=frozenset({"lightning.ckpt"}),
    ),
    Case(
        "pytorch_lightning",
        "lightning_ranks.py",
        4 / 7,
        6,
        frozenset({"ranks/00001.pt", "lightning.ckpt/__0_0.distcp", "lightning.ckpt/__1_0.distcp"}),
        differing=DESCRIPTIONS,
        pickles=frozenset({"lightning.ckpt/meta.pt"}),
        told=FSDP2,
    ),
    Case(
        "accelerate",
        "accelerate_ranks.py",
        8 / 13,
        6,
        frozenset({"random_states_0.pkl", "random_states_1.pkl", "ranks/00001.pt"}),
    ),
    Case(
        "transformers",
        "trainer_ranks.py",
        5,
        7,
        frozenset({"pytorch_model_fsdp_0/__1_0.distcp", "optimizer_0/__1_0.distcp"}),
        differing=TRAINER_DIFFERING | DESCRIPTIONS,
        told=FSDP2,
    ),
    Case(
        "accelerate",
        "accelerate_ranks.py",
        8 / 13,
        6,
        frozenset({"pytorch_model_fsdp_0/__1_0.distcp", "optimizer_0/__1_0.distcp"}),
        differing=DESCRIPTIONS,
        told=FSDP2,
    ),
]


def two_ranks(folder: Path, case: Case, *words: str) -> TrainingParent:
    pytest.importorskip(case.module, reason=f"missing: {case.module} (pip install unbroken[adapters])")
    return TrainingParent(folder, (SUPPORT / case.program).read_text(), list(words), ranks=2, told=dict(case.told))


def content(parent: TrainingParent, case: Case) -> dict[str, bytes]:
    """The files of the last checkpoint, byte by byte, as far as their bytes say something."""
    found = {name: data for name, data in parent.result().items() if name not in case.differing}
    for name in case.pickles:
        written = io.BytesIO()
        torch.save(canonical(torch.load(io.BytesIO(found[name]), weights_only=True), name), written)
        found[name] = written.getvalue()
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.module + "-FSDP2" * bool(case.told))
def test_two_ranks_that_stop_and_one_that_is_killed_come_to_the_result_of_one_piece_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    whole, pieces = two_ranks(tmp_path / "whole", case), two_ranks(tmp_path / "pieces", case, "signal", "3")
    whole.run_to_the_end()

    pieces.run()
    pieces.arguments, pieces.save_seconds = ["kill", str(case.killed_in)], 0.0
    pieces.run()
    pieces.arguments = []
    pieces.run_to_the_end()

    assert pieces.codes == [85, 128 + signal.SIGKILL, 0], pieces.log
    assert pieces.handovers[0]["done"] == pytest.approx(case.left_at)
    assert pieces.handovers[-1]["is_finished"]
    assert {row["versions"]["ranks"] for row in pieces.handovers} == {"2"}
    assert set(pieces.result()) == set(whole.result()) > case.of_ranks
    assert content(pieces, case) == content(whole, case)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shards_of_fsdp_that_are_restored_without_the_optimizer_come_to_another_result(tmp_path: Path) -> None:
    """The control: what the test above compares would notice a restore that leaves out a part."""
    case = CASES[-1]
    whole, pieces = two_ranks(tmp_path / "whole", case), two_ranks(tmp_path / "pieces", case, "signal", "3")
    whole.run_to_the_end()

    assert pieces.run() == 85, pieces.log
    pieces.arguments = []
    pieces.told["WITHOUT_OPTIMIZER"] = "1"
    pieces.run_to_the_end()

    assert content(pieces, case) != content(whole, case)


@pytest.mark.slow
def test_fsdp_without_a_gpu_is_refused_under_the_trainer_which_would_take_ddp(tmp_path: Path) -> None:
    parent = two_ranks(tmp_path / "run", CASES[0])
    parent.told = {"FSDP2": "asked for"}

    assert parent.run() == 1
    assert "CheckpointError: FSDP was asked for, and Accelerate trains without it, as" in parent.log
    assert parent.latest is None
