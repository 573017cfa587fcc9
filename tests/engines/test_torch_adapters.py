"""Frameworks that run the loop themselves, killed, told to leave, by hand: what comes out is that of one piece.

Their examples in segments: tests/workflow/test_adapter_examples.py; each kind of stop: test_training_adapter_epochs.py.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import ROOT, until
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.pieces_here import weights_in


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
    assert weights_in(pieces.latest / "final" / result) == weights_in(whole.latest / "final" / result)


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

    assert codes == [85, 0, 0]
    assert weights_in(pieces / "final" / result) == weights_in(whole / "final" / result)
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
