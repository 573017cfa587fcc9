"""Frameworks that run the loop themselves, in segments: what comes out is what comes out of one piece."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.stopping import script_segment
from support.toyrun import ROOT, checkpoints, toy_job, until
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import torch

from unbroken.store.history import EndKind
from unbroken.store.record import Record

IN_PIECES = [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]


def in_pieces(base: Path, goal: int, words: list[str], pause: str, stops: tuple[float, float]) -> list[Record]:
    """Three segments of a script; the pause after each step gives time to stop the first two where they are to be."""
    slowly = [*words, pause]
    told = [script_segment(base, number, goal, slowly, stop_at=stop) for number, stop in enumerate(stops, 1)]
    return [*told, script_segment(base, 3, goal, words)]


def tensors(path: Path) -> dict[str, bytes]:
    """The weights in a file, byte by byte."""
    state = torch.load(path, weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.get("state_dict", state).items()}


@pytest.mark.slow
def test_the_trainer_of_hugging_face_in_pieces_is_the_whole_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    script = str(ROOT / "examples" / "torch_transformers" / "train.py")
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    script_segment(whole, 1, 30, [script])

    # 13 steps an epoch: once in the first epoch, once in the second.
    first, second, last = records = in_pieces(pieces, 30, [script], "0.3", (3, 15))

    found, expected = toy_job(pieces).places.final, toy_job(whole).places.final
    assert [record.kind for record in records] == IN_PIECES
    assert 3 <= first.progress.done < 13 < second.progress.done < 26
    assert (last.progress.done, last.progress.unit) == (30, "steps")
    assert sorted(path.name for path in found.iterdir()) == sorted(path.name for path in expected.iterdir())
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    newest = checkpoints(toy_job(pieces))[-1]
    assert {"optimizer.pt", "trainer_state.json", "final/model.safetensors"} <= set(newest.passport.files)
    assert "transformers" in newest.passport.versions


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "result"), [("lightning", "model.ckpt"), ("accelerate", "model.pt")])
def test_a_framework_in_pieces_comes_to_the_weights_of_one_piece(tmp_path: Path, framework: str, result: str) -> None:
    module = {"lightning": "pytorch_lightning"}.get(framework, framework)
    pytest.importorskip(module, reason=f"missing: {module} (pip install unbroken[adapters])")
    script = str(ROOT / "examples" / f"torch_{framework}" / "train.py")
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    script_segment(whole, 1, 3, [script])

    # 15 batches an epoch: once in the first epoch, once in the second.
    first, second, last = records = in_pieces(pieces, 3, [script], "0.3", (0.2, 1.2))

    found, expected = toy_job(pieces).places.final, toy_job(whole).places.final
    assert [record.kind for record in records] == IN_PIECES
    assert 0.2 <= first.progress.done < 1 < 1.2 <= second.progress.done < 2
    assert (last.progress.done, last.progress.unit) == (3, "epochs")
    assert tensors(found / result) == tensors(expected / result)
    assert framework in checkpoints(toy_job(pieces))[-1].passport.versions


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "result"), [("lightning", "model.ckpt"), ("accelerate", "model.pt")])
def test_a_framework_that_is_killed_and_then_gets_term_comes_to_the_weights_of_one_piece(
    tmp_path: Path, framework: str, result: str
) -> None:
    module = {"lightning": "pytorch_lightning"}.get(framework, framework)
    pytest.importorskip(module, reason=f"missing: {module} (pip install unbroken[adapters])")
    script = (ROOT / "examples" / f"torch_{framework}" / "train.py").read_text()
    whole = TrainingParent(tmp_path / "whole", script)
    pieces = TrainingParent(tmp_path / "pieces", script, ["0.1"], save_seconds=0.3)
    whole.run_to_the_end()

    killed = pieces.run(kill_after=0.7)
    with pieces.start() as child:
        until(pieces.take)
        os.killpg(child.pid, signal.SIGTERM)
    told = pieces.take_last(child)
    left = pieces.handovers[-1]["done"]
    pieces.arguments = []
    pieces.run_to_the_end()

    assert (killed, told, pieces.codes) == (-signal.SIGKILL, 85, [-signal.SIGKILL, 85, 0])
    assert 0 < left < 3
    assert [pieces.handovers[-1][key] for key in ("done", "is_finished")] == [3, True]
    assert whole.latest is not None and pieces.latest is not None
    assert tensors(pieces.latest / "final" / result) == tensors(whole.latest / "final" / result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "module", "result"),
    [
        ("lightning", "pytorch_lightning", "model.ckpt"),
        ("accelerate", "accelerate", "model.pt"),
        ("transformers", "transformers", "model.safetensors"),
    ],
)
def test_by_hand_a_framework_keeps_its_checkpoints_in_a_folder_and_goes_on_from_there(
    tmp_path: Path, framework: str, module: str, result: str
) -> None:
    pytest.importorskip(module, reason=f"missing: {module} (pip install unbroken[adapters])")
    command = [sys.executable, str(ROOT / "examples" / f"torch_{framework}" / "train.py")]
    pieces, whole = tmp_path / "pieces", tmp_path / "whole"

    def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
        told = {"UNBROKEN_FOLDER": str(folder), "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen([*command, *words], env={**os.environ, **told}, cwd=tmp_path)

    with start(pieces, "0.1") as first:
        until(lambda: (pieces / "progress.json").exists() or first.poll() is not None)
        first.terminate()
    left = json.loads((pieces / "progress.json").read_text())["done"]
    codes = [first.returncode, *(start(folder).wait() for folder in (pieces, whole))]

    def weights(folder: Path) -> object:
        path = folder / "final" / result
        return path.read_bytes() if path.suffix == ".safetensors" else tensors(path)

    assert codes == [85, 0, 0]
    assert weights(pieces) == weights(whole)
    history = [json.loads(line) for line in (pieces / "history.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in history] == ["interrupted", "finished"]
    assert history[1]["progress_from"] == history[0]["progress_to"] >= left
    assert history[0]["progress_to"] < history[1]["progress_to"]


@pytest.mark.slow
def test_lightning_stopped_before_any_batch_does_what_it_does_in_one_piece() -> None:
    pytest.importorskip("pytorch_lightning", reason="missing: pytorch-lightning (pip install unbroken[adapters])")
    program = Path(__file__).parents[1] / "support" / "lightning_stops.py"

    told = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=1000)

    found = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    assert told.returncode == 0, told.stderr
    assert [line["case"] for line in found] == ["plain", "validation within epochs", "accumulated gradients", "workers"]
    assert [line["same"] for line in found] == [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 4
