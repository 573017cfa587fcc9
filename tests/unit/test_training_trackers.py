"""W&B and MLflow: one run of theirs for all segments, and each step once, over pauses and kills."""

from pathlib import Path

import pytest
from support.trackers import ENDS, of_mlflow, of_wandb, train, train_by, train_to_the_end
from support.wandb_server import wandb_server

pytest.importorskip("torch", reason="missing: torch (pip install torch)")
pytest.importorskip("wandb", reason="missing: wandb (pip install wandb)")
pytest.importorskip("mlflow", reason="missing: mlflow (pip install mlflow-skinny)")

pytestmark = [pytest.mark.frameworks, pytest.mark.process, pytest.mark.slow]

EACH = [(step, step / 2) for step in range(1, 21)]
SCORES = [(10, 0.0), (20, 1.0)]


@pytest.fixture
def file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.mark.parametrize("in_background", [False, True])
def test_wandb_has_one_run_and_each_step_once(in_background: bool, tmp_path: Path) -> None:
    saves = {"steps": 3, "in_background": in_background}
    ends = train_to_the_end(tmp_path, loggers=["wandb"], saves=saves)

    ids, rows = of_wandb(tmp_path)
    assert ends == ENDS
    assert len(ids) == 1
    assert [(row["step"], row["loss"]) for row in rows] == EACH
    assert [(row["step"], row["score"]) for row in rows if "score" in row] == SCORES


def test_wandb_online_has_what_a_kill_took_before_it_was_sent(tmp_path: Path) -> None:
    """wandb sends every few seconds, and its process dies with the training."""
    with wandb_server() as server:
        ends = train_to_the_end(tmp_path, server.url, loggers=["wandb"])

    assert ends == ENDS
    assert [(line["step"], line["loss"]) for line in server.lines.values()] == EACH


def test_mlflow_has_one_run_and_each_step_once(tmp_path: Path, file_store: None) -> None:
    ends = train_to_the_end(tmp_path, loggers=["mlflow"])

    states, losses = of_mlflow(tmp_path, "loss")
    assert ends == ENDS
    assert states == ["FINISHED"]
    assert losses == EACH
    assert of_mlflow(tmp_path, "score")[1] == SCORES


def test_a_script_that_logs_by_itself_has_one_run_and_what_a_kill_cut_twice(tmp_path: Path, file_store: None) -> None:
    """The control: the same kills, and a logger that does not wait for the checkpoints."""
    wandb, mlflow = tmp_path / "wandb", tmp_path / "mlflow"
    wandb.mkdir()
    mlflow.mkdir()

    assert train_to_the_end(wandb, own="wandb", by_step=True) == ENDS
    assert train_to_the_end(mlflow, own="mlflow") == ENDS

    ids, rows = of_wandb(wandb)
    states, losses = of_mlflow(mlflow, "loss")
    assert (len(ids), states) == (1, ["FINISHED"])
    steps = [row["_step"] for row in rows]
    assert sorted(steps) != list(range(1, 21))
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 6, 7, 8, *range(7, 15), *range(13, 21)]


def test_a_run_that_begins_again_elsewhere_is_another_one(tmp_path: Path) -> None:
    for folder in ("run", "other"):
        assert train(tmp_path, loggers=["wandb"], folder=folder, goal=1) == 0

    ids, rows = of_wandb(tmp_path)
    assert [each.rpartition("-")[0] for each in sorted(ids)] == ["other", "run"]
    assert len(rows) == 20


# --- frameworks ---

LOSS = {"trainer": "train/loss", "lightning": "loss"}
STEP = {"trainer": "train/global_step", "lightning": "trainer/global_step"}
FIRST = {"trainer": 1, "lightning": 0}  # the number of the first step, by the framework's own loggers


@pytest.mark.parametrize("framework", ["trainer", "lightning"])
def test_loggers_of_an_adapter_have_each_step_once(framework: str, tmp_path: Path, file_store: None) -> None:
    assert train_by(framework, tmp_path, loggers=["wandb", "mlflow"]) == [85, -9, 0]

    ids, rows = of_wandb(tmp_path)
    states, losses = of_mlflow(tmp_path, "loss")
    assert (len(ids), states) == (1, ["FINISHED"])
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 13))
    assert [step for step, _ in losses] == list(range(1, 13))


@pytest.mark.parametrize("framework", ["trainer", "lightning"])
def test_a_framework_that_logs_by_itself_has_one_run(framework: str, tmp_path: Path, file_store: None) -> None:
    """The page says so, and that the steps that a kill cut are there twice."""
    wandb, mlflow, first = tmp_path / "wandb", tmp_path / "mlflow", FIRST[framework]
    wandb.mkdir()
    mlflow.mkdir()

    assert train_by(framework, wandb, own="wandb") == [85, -9, 0]
    assert train_by(framework, mlflow, own="mlflow") == [85, -9, 0]

    ids, rows = of_wandb(wandb)
    states, losses = of_mlflow(mlflow, "loss")
    once = set(range(first, first + 12))
    assert (len(ids), states) == (1, ["FINISHED"])
    assert {row[STEP[framework]] for row in rows if LOSS[framework] in row} == once
    assert {step for step, _ in losses} == once
    assert len(losses) > 12
