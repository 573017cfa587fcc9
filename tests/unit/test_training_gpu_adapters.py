"""Frameworks that train on a GPU, killed and started again: the weights are those of one uninterrupted training."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.gpu import DEVICE, EXACT
from support.training_parent import TrainingParent

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

EXAMPLES, SUPPORT = Path(__file__).parents[2] / "examples", Path(__file__).parents[1] / "support"
WITH_SUPPORT = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
pytestmark = pytest.mark.gpu


@dataclass(frozen=True)
class Framework:
    """Its module, its example's goal, the file of the weights, and the words by which the example keeps to the CPU."""

    module: str
    goal: int
    weights: str
    on_cpu: str
    on_gpu: str


FRAMEWORKS = {
    "accelerate": Framework("accelerate", 3, "model.pt", "Accelerator(cpu=True, ", "Accelerator("),
    "lightning": Framework("pytorch_lightning", 3, "model.ckpt", 'accelerator="cpu"', 'accelerator="gpu"'),
    "transformers": Framework("transformers", 30, "model.safetensors", "use_cpu=True", "use_cpu=False"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_is_killed_on_a_gpu_comes_to_the_weights_of_one_piece(tmp_path: Path, name: str) -> None:
    framework = FRAMEWORKS[name]
    pytest.importorskip(framework.module, reason=f"missing: {framework.module}")
    text = (EXAMPLES / f"torch_{name}" / "train.py").read_text()
    assert framework.on_cpu in text
    if DEVICE == "cuda":
        text = text.replace(framework.on_cpu, framework.on_gpu)
    text = text.replace(
        "\ntorch.set_num_threads(", "\ntorch.use_deterministic_algorithms(True)\ntorch.set_num_threads("
    )
    told = {**EXACT, "HF_HUB_OFFLINE": "1", "UNBROKEN_GOAL": str(framework.goal)}
    whole = TrainingParent(tmp_path / "whole", text, told=told)
    whole.run_to_the_end()
    killed = TrainingParent(tmp_path / "killed", text, ["0.1"], save_seconds=0.5, told=told)
    killed.run(kill_after=0.2)
    killed.arguments = []
    killed.run_to_the_end()

    assert killed.codes == [-signal.SIGKILL, 0], killed.log
    assert killed.result()[f"final/{framework.weights}"] == whole.result()[f"final/{framework.weights}"]


def test_fsdp_on_a_gpu_that_is_killed_comes_to_the_weights_of_one_piece(tmp_path: Path) -> None:
    """With Accelerate, which asserts the class of its model; one rank, because one GPU is there for sure."""
    pytest.importorskip("accelerate", reason="missing: accelerate")
    text = (SUPPORT / "accelerate_ranks.py").read_text()
    told = {**EXACT, "FSDP2": "forced", "PYTHONPATH": WITH_SUPPORT, "UNBROKEN_GPU_DEVICE": DEVICE}
    whole, killed = (TrainingParent(tmp_path / name, text, ranks=1, told=told) for name in ("whole", "killed"))
    whole.run_to_the_end()
    killed.arguments, killed.save_seconds = ["kill", "9"], 0.0
    assert killed.run() != 0, killed.log
    killed.arguments = []
    killed.run_to_the_end()

    assert killed.result()["final/model.pt"] == whole.result()["final/model.pt"]
