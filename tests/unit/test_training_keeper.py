"""The contract for frameworks with a loop of their own, and what the adapter for the Trainer refuses."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.toyrun import checkpoints, run_program, toy_job

from unbroken.errors import CheckpointError
from unbroken.program.contract import Kind, read_verdict
from unbroken.store.history import EndKind
from unbroken.store.progress import Progress
from unbroken.training.core.environment import SavePlace, read_contract
from unbroken.training.core.save_policy import Saves, best_interval
from unbroken.training.core.session import Connection

pytest.importorskip("torch", reason="missing: torch (pip install torch)")
import torch
from support.plain_adapter import PlainAdapter

TOLD = {"GOAL": "9", "GOAL_UNIT": "steps"}


def test_a_signal_is_a_wish_to_leave_and_progress_is_told(told: Path) -> None:
    adapter = PlainAdapter()

    before = adapter._is_due(Progress(1, 9, "steps", {"loss": 0.5}), 1)
    signal.raise_signal(signal.SIGUSR1)
    after = adapter._is_due(Progress(2, 9), 2)

    said = json.loads((told / "progress.json").read_text())
    assert (before, after) == (False, True)
    assert (said["done"], said["metrics"]) == (1, {"loss": 0.5})
    with pytest.raises(SystemExit, match="85"):
        adapter._hand_over(lambda draft: None, Progress(2, 9))


def test_a_save_is_due_after_the_interval_if_there_is_room(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_SAVE_SECONDS", "0")
    adapter = PlainAdapter()
    wishes = []
    for done in (1, 2, 3):
        wishes.append(adapter._is_due(Progress(done, 9), done))
        if wishes[-1]:
            adapter._hand_over(lambda draft: (draft / "state").write_text("x") and None, Progress(done, 9))

    said = json.loads((told / "save" / "000001.ready" / "progress.json").read_text())
    assert wishes == [True, True, False]  # two wait to be taken
    assert (said["done"], said["versions"]["framework"], said["is_finished"]) == (1, "1.0", False)


def test_a_write_that_fails_leaves_nothing(told: Path) -> None:
    def torn(draft: Path) -> None:
        (draft / "state").write_text("half")
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        PlainAdapter()._hand_over(torn, Progress(1, 9))

    assert list((told / "save").iterdir()) == []


def test_with_a_mean_time_between_failures_the_interval_follows_from_the_save_and_is_shown(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNBROKEN_MTBF_HOURS", "24")
    adapter = PlainAdapter()

    adapter._hand_over(lambda draft: time.sleep(0.01), Progress(1, 9))
    adapter._is_due(Progress(1, 9, "steps", {"loss": 0.5}), 1)

    shown = json.loads((told / "progress.json").read_text())["metrics"]
    cost = shown["save_stall_seconds"]
    assert set(shown) == {"loss", "save_stall_seconds", "save_every_seconds"}
    assert cost >= 0.01
    # What is shown has three digits.
    assert shown["save_every_seconds"] == pytest.approx(best_interval(cost, 24 * 3600), rel=0.02)


def test_what_the_configuration_says_of_failures_comes_before_what_the_script_says(told: Path) -> None:
    contract = read_contract()
    assert contract is not None

    own, both = (
        Connection(each, SavePlace(), Saves(mtbf_hours=5, keep=7), 1).saves
        for each in (contract, replace(contract, mtbf_hours=24.0))
    )

    assert (own.mtbf_hours, both.mtbf_hours, both.keep) == (5, 24, 7)


@pytest.mark.process
def test_the_program_is_told_the_mean_time_between_failures_of_the_config(tmp_path: Path) -> None:
    said = 'cd "$UNBROKEN_SAVE"; printf %s "$UNBROKEN_MTBF_HOURS" >hours; echo "{\\"done\\": 9}" >progress.json'

    record = run_program(tmp_path, ["sh", "-c", said], goal=9, mtbf_hours=2.5)

    (saved,) = checkpoints(toy_job(tmp_path))
    assert (record.kind, (saved.folder / "hours").read_text()) == (EndKind.FINISHED, "2.5")


def test_by_hand_nothing_is_wished_and_nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNBROKEN_SAVE", raising=False)
    adapter = PlainAdapter()

    adapter._hand_over(lambda draft: pytest.fail("written"), Progress(1, 9))

    assert (adapter._is_due(Progress(1, 9), 1), adapter.resume) == (False, None)


def test_a_checkpoint_of_the_trainer_that_other_ranks_made_is_refused(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers", reason="missing: transformers (pip install unbroken[adapters])")
    from unbroken.training.transformers import UnbrokenCallback

    def begin(*files: str) -> None:
        checkpoint = told / "-".join(files)
        checkpoint.mkdir()
        for name in files:
            (checkpoint / name).touch()
        monkeypatch.setenv("UNBROKEN_RESUME", str(checkpoint))
        callback = UnbrokenCallback()
        arguments = {"output_dir": callback.output_dir("out"), "save_strategy": "no", "report_to": "none"}
        callback.on_train_begin(
            transformers.TrainingArguments(**arguments, use_cpu=True),
            transformers.TrainerState(),
            transformers.TrainerControl(),
            model=torch.nn.Linear(1, 1),
        )

    begin("rng_state.pth", "optimizer.pt")
    with pytest.raises(
        CheckpointError, match=r"made by 2 ranks, and now there is 1, which would train .*; type ranks: 2"
    ):
        begin("rng_state_0.pth", "rng_state_1.pth")
    verdict = read_verdict(told / "verdict.json")
    assert verdict is not None
    assert (verdict.kind, verdict.message[-8:]) == (
        Kind.HOPELESS,
        "ranks: 2",
    )  # the segment says it, and is not tried again
