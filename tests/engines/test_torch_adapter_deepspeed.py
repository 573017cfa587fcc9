"""Trainer and Accelerate with DeepSpeed on two ranks, really killed: the shards of one uninterrupted training."""

import io
from pathlib import Path

import pytest
from support.training_parent import TrainingParent

pytestmark = [pytest.mark.frameworks, pytest.mark.process]
torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")
pytest.importorskip("accelerate", reason="missing: accelerate (pip install accelerate)")
framework_shards = pytest.importorskip("unbroken.training.torch.framework_shards")

PROGRAM = Path(__file__).parents[1] / "support" / "deepspeed_ranks.py"
# Times, folders and what a restart counts again stand in them.
DIFFERING = frozenset({"trainer_state.json", "training_args.bin", "unbroken_metrics.json"})
ON_CPU = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1"}


def training(folder: Path, framework: str, stage: int, *, save_seconds: float = 1000.0, **told: str) -> TrainingParent:
    return TrainingParent(
        folder,
        PROGRAM.read_text(),
        [framework, str(stage)],
        ranks=2,
        save_seconds=save_seconds,
        told={**ON_CPU, **told},
    )


def attempt(parent: TrainingParent, *deeds: str) -> int:
    """One attempt with these deeds."""
    parent.arguments = [*parent.arguments[:2], *deeds]
    return parent.run()


def content(parent: TrainingParent) -> dict[str, object]:
    """The files of the last checkpoint; of those of torch, what they hold."""
    found = {name: data for name, data in parent.result().items() if name not in DIFFERING}
    return {name: plain(loaded(data)) if name.endswith(".pt") else data for name, data in found.items()}


def loaded(data: bytes) -> object:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


def plain(value: object) -> object:
    """A value that `==` compares bit by bit."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return plain(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, type) else repr(value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "stage", "attempts"),
    [
        ("accelerate", 2, [["kill", "4"], ["kill-all", "8"]]),
        ("accelerate", 3, [["kill-all", "5"]]),
        ("transformers", 2, [["kill", "2"]]),
        ("transformers", 3, [["kill-all", "4"]]),
    ],
)
def test_ranks_of_deepspeed_that_are_killed_come_to_the_shards_of_one_piece(
    tmp_path: Path, framework: str, stage: int, attempts: list[list[str]]
) -> None:
    """In the middle of an epoch, with accumulated gradients; a restore that leaves the optimizer out is noticed."""
    pytest.importorskip(framework, reason=f"missing: {framework} (pip install {framework})")
    pytest.importorskip("deepspeed", reason="missing: deepspeed (pip install deepspeed)")
    whole = training(tmp_path / "whole", framework, stage)
    pieces = training(tmp_path / "pieces", framework, stage, save_seconds=0.0)

    assert attempt(whole) == 0, whole.log
    for deeds in attempts:
        assert attempt(pieces, *deeds) != 0
        assert pieces.latest is not None, pieces.log
        assert len(list(pieces.latest.rglob("*zero_pp_rank_*_optim_states.pt"))) == 2
    broken = pieces.latest
    assert attempt(pieces) == 0, pieces.log

    assert content(pieces) == content(whole)
    if framework == "accelerate":
        control = training(tmp_path / "control", framework, stage, WITHOUT_OPTIMIZER="1")
        broken.rename(control.root / "checkpoint-0000")
        assert attempt(control) == 0, control.log
        assert content(control) != content(whole)
