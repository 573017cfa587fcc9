"""On a GPU pieces are the whole, bit for bit: AMP with its scaler, generators of the GPU, compiled models, kills."""

import signal
from pathlib import Path

import pytest
from support.gpu import DEVICE, EXACT
from support.training_parent import TrainingParent

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

PROGRAM = Path(__file__).parents[1] / "support" / "gpu_program.py"
pytestmark = pytest.mark.gpu


class GpuParent(TrainingParent):
    """A training whose sums are the same in each process."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **EXACT}


def training(folder: Path, *arguments: object) -> GpuParent:
    return GpuParent(folder, PROGRAM.read_text(), list(map(str, arguments)))


def differences(one: GpuParent, other: GpuParent) -> list[str]:
    """The files of the last checkpoints that differ, and the parts of a state."""
    left, right = one.result(), other.result()
    assert left.keys() == right.keys()
    return [name for name in left if left[name] != right[name]]


@pytest.mark.parametrize("kind", [(), ("--compiled",), ("--workers", 2)], ids=["eager", "compiled", "workers"])
def test_stops_change_no_byte_of_the_result(tmp_path: Path, kind: tuple[object, ...]) -> None:
    whole = training(tmp_path / "whole", *kind)
    whole.run_to_the_end()
    pieces = training(tmp_path / "pieces", *kind, "--signals", 2, 5, 9)

    pieces.run_to_the_end()

    assert (whole.codes, pieces.codes) == ([0], [85, 85, 85, 0]), pieces.log
    assert differences(pieces, whole) == []


@pytest.mark.parametrize("kind", [(), ("--compiled",)], ids=["eager", "compiled"])
def test_a_kill_in_the_middle_of_a_save_costs_the_steps_since_the_save_before(
    tmp_path: Path, kind: tuple[object, ...]
) -> None:
    whole = training(tmp_path / "whole", *kind)
    whole.run_to_the_end()
    killed = training(tmp_path / "killed", *kind, "--beside", "--dies-in-save", 3)
    killed.run()
    before = len(killed.handovers)
    killed.arguments = [*map(str, kind), "--beside", "--dies-at", "8"]
    killed.run()
    killed.arguments = [*map(str, kind), "--beside"]
    killed.run_to_the_end()

    assert killed.codes == [-signal.SIGKILL, -signal.SIGKILL, 0], killed.log
    assert before == 2
    assert differences(killed, whole) == []


def test_a_checkpoint_of_a_gpu_resumes_where_there_is_none_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = training(tmp_path / "run", "--signals", 5)
    assert parent.run() == 85, parent.log
    parent.arguments = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("UNBROKEN_GPU_DEVICE", "cpu")

    parent.run_to_the_end()

    assert parent.handovers[-1]["done"] == 3
    if DEVICE == "cuda":
        assert "GPUs 1 -> 0 since this was saved: random numbers will differ" in parent.log
        assert "generator was the generator of another kind of device than cpu: it begins anew" in parent.log
