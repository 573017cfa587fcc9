"""`Variables` and `Training.steps`: a script's own variables as part of the state, and steps without a loader."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

import numpy as np  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import Training, Variables  # noqa: E402

pytestmark = pytest.mark.usefixtures("signals_kept")


def test_what_is_put_in_comes_out_of_a_state_that_was_written_and_read(tmp_path: Path) -> None:
    hidden = torch.ones(2, requires_grad=True) * 2
    values = {"hidden": (hidden, [hidden]), "best": 0.5, "rows": [1, 2], "table": {"a": hidden}, "none": None}
    values |= {"seen": np.arange(3), "accuracy": np.float32(0.5)}
    variables, again = Variables(values), Variables(old=1)
    torch.save(variables.state_dict(), tmp_path / "state.pt")

    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))

    assert list(again) == list(values)
    assert torch.equal(again["hidden"][0], torch.tensor([2.0, 2.0]))
    assert not again["hidden"][1][0].requires_grad and not again["table"]["a"].requires_grad
    assert (again["best"], again["rows"], again["none"]) == (0.5, [1, 2], None)
    assert (again["seen"].tolist(), type(again["seen"]), again["accuracy"]) == ([0, 1, 2], np.ndarray, 0.5)
    assert variables["hidden"][0] is hidden


def test_a_tensor_of_a_device_that_is_not_here_comes_back_on_the_cpu() -> None:
    variables = Variables()

    variables.load_state_dict({"values": {"hidden": torch.ones(2)}, "devices": ["nowhere"]})

    assert variables["hidden"].device.type == "cpu"


@pytest.mark.usefixtures("told")
def test_what_cannot_be_read_back_is_named() -> None:
    variables = Variables(model=torch.nn.Linear(1, 1))

    with pytest.raises(CheckpointError, match=r"variables\.values\.model is a "):
        Training(state={"variables": variables})


@pytest.mark.process
def test_steps_are_counted_on_after_a_stop_and_beyond_what_they_take_for_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "_steps_at_once", 4)
    seen = []

    def train(stop_at: int) -> None:
        training = Training(state={"variables": Variables()}, folder=tmp_path / "run")
        for step in training.steps(11):
            seen.append(step)
            if step == stop_at:
                os.kill(os.getpid(), signal.SIGUSR1)
        training.finish()

    for stop_at in (2, 7):
        with pytest.raises(SystemExit) as left:
            train(stop_at)
        assert left.value.code == 85
    train(-1)

    assert seen == [*range(11)]


def test_steps_of_a_goal_in_epochs_are_refused(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_GOAL_UNIT", "epochs")
    training = Training()

    with pytest.raises(ValueError, match=r"^steps\(\): the goal is in epochs, allowed: goal_unit: steps$"):
        next(training.steps(3))
