"""Pieces are the whole, bit for bit, also after kills: AMP with its scaler, generators of a GPU, compiled models."""

import signal
from pathlib import Path

import pytest
from support.gpu import DEVICE, EXACT
from support.training_parent import TrainingParent

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

PROGRAM = Path(__file__).parents[1] / "support" / "gpu_program.py"
ON_GPU, ON_CPU = {"marks": pytest.mark.gpu}, {"marks": [pytest.mark.slow, pytest.mark.needs("g++")]}


def training(folder: Path, device: str, *arguments: object) -> TrainingParent:
    told = {**EXACT, "UNBROKEN_GPU_DEVICE": device}
    return TrainingParent(folder, PROGRAM.read_text(), list(map(str, arguments)), told=told)


def differences(one: TrainingParent, other: TrainingParent) -> list[str]:
    """The files of the last checkpoints that differ."""
    left, right = one.result(), other.result()
    assert left.keys() == right.keys()
    return [name for name in left if left[name] != right[name]]


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        pytest.param(DEVICE, (), **ON_GPU, id="eager"),
        pytest.param(DEVICE, ("--compiled",), **ON_GPU, id="compiled"),
        pytest.param(DEVICE, ("--workers", 2), **ON_GPU, id="workers"),
        pytest.param("cpu", ("--compiled",), **ON_CPU, id="compiled on the CPU"),
    ],
)
def test_stops_change_no_byte_of_the_result(tmp_path: Path, device: str, kind: tuple[object, ...]) -> None:
    whole = training(tmp_path / "whole", device, *kind)
    whole.run_to_the_end()
    pieces = training(tmp_path / "pieces", device, *kind, "--signals", 2, 5, 9)

    pieces.run_to_the_end()

    assert (whole.codes, pieces.codes) == ([0], [85, 85, 85, 0]), pieces.log
    assert differences(pieces, whole) == []


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        pytest.param(DEVICE, (), **ON_GPU, id="eager"),
        pytest.param(DEVICE, ("--compiled",), **ON_GPU, id="compiled"),
        pytest.param("cpu", (), **ON_CPU, id="eager on the CPU"),
    ],
)
def test_a_kill_in_the_middle_of_a_save_costs_the_steps_since_the_save_before(
    tmp_path: Path, device: str, kind: tuple[object, ...]
) -> None:
    whole = training(tmp_path / "whole", device, *kind)
    whole.run_to_the_end()
    killed = training(tmp_path / "killed", device, *kind, "--beside", "--dies-in-save", 3)
    killed.run()
    before, drafts = len(killed.handovers), list((killed.root / "desk-0" / "save").iterdir())
    killed.arguments = [*map(str, kind), "--beside", "--dies-at", "8"]
    killed.run()
    killed.arguments = [*map(str, kind), "--beside"]
    killed.run_to_the_end()

    assert killed.codes == [-signal.SIGKILL, -signal.SIGKILL, 0], killed.log
    assert (before, [path.name for path in drafts]) == (2, ["draft-000003"])
    assert not (drafts[0] / "progress.json").exists()
    assert killed.handovers[-1]["done"] == 3
    assert differences(killed, whole) == []


@pytest.mark.gpu
def test_a_checkpoint_of_a_gpu_resumes_where_there_is_none_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = training(tmp_path / "run", DEVICE, "--signals", 5)
    assert parent.run() == 85, parent.log
    parent.arguments = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    parent.told["UNBROKEN_GPU_DEVICE"] = "cpu"

    parent.run_to_the_end()

    assert parent.handovers[-1]["done"] == 3
    if DEVICE == "cuda":
        assert "GPUs 1 -> 0 since this was saved: random numbers will differ" in parent.log
        assert "generator was the generator of another kind of device than cpu: it begins anew" in parent.log
