"""A training ends early where going on makes no sense, and a checkpoint must do what it did when it was saved."""

import json
import math
import sys
from pathlib import Path

import pytest
from support.telling import begin_as_a_new_process
from support.toyrun import ProgramEngine, checkpoints, history, toy_job

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from unbroken.errors import DivergedError, StalledError  # noqa: E402
from unbroken.job.lifecycle import run_segment  # noqa: E402
from unbroken.store.checkpoints import Store  # noqa: E402
from unbroken.store.history import EndCause, EndKind  # noqa: E402
from unbroken.training.core.guard import Guard, MetricsWatch  # noqa: E402
from unbroken.training.core.validation import difference  # noqa: E402
from unbroken.training.torch import Saves, Training, Validate  # noqa: E402
from unbroken.training.torch.content import non_finite_weight, weights_of  # noqa: E402

NAN = math.nan

# 8 batches an epoch.  `gain` is a state that the author forgot: it is on no part.
PROGRAM = """
import argparse, os, signal, torch
from torch import nn
from unbroken.training.torch import Guard, Training, Validate, seed_everything

parser = argparse.ArgumentParser()
parser.add_argument("--signals", type=int, nargs="*", default=[])
parser.add_argument("--nan-at", type=int)
parser.add_argument("--gain-at", type=int)
options = parser.parse_args()
torch.set_num_threads(1)
seed_everything(3)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    def forward(self, inputs):
        return gain * self.layers(inputs).squeeze(1)

gain, model = 1.0, Model()
optimizer = torch.optim.AdamW(model.parameters())
inputs, targets = torch.randn(32, 3), torch.randn(32)
fixed = torch.randn(5, 3)
state = {"model": model, "optimizer": optimizer}
training = Training(state=state, best=("score", "max"), validate=Validate(lambda: model(fixed)))
loader = training.loader(torch.utils.data.TensorDataset(inputs, targets), 4)
step = 0
for epoch in training.epochs():
    for batch, wanted in training.batches(loader):
        loss = nn.functional.mse_loss(model(batch), wanted)
        step = int(optimizer.state[model.layers[0].weight]["step"]) + 1 if optimizer.state else 1
        if step == options.nan_at:
            loss = loss * float("nan")
        if step == options.gain_at:
            gain = 2.0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
        if step in options.signals:
            os.kill(os.getpid(), signal.SIGUSR1)
    training.log(score=float(epoch))
training.finish({"model.pt": model.state_dict()})
"""


def segment(base: Path, number: int, *words: object, attempt: int = 1):
    """One segment of the program above under unbroken itself, towards three epochs."""
    script = base / "program.py"
    script.write_text(PROGRAM)
    job = toy_job(base, number, attempt, goal=3, keep=9, segment_minutes=9)
    return run_segment(job, ProgramEngine([sys.executable, str(script), *map(str, words)]))


def saved(base: Path) -> list[float]:
    return [checkpoint.passport.progress.done for checkpoint in checkpoints(toy_job(base))]


# --- under unbroken ------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_loss_that_is_no_number_stops_the_run_and_the_checkpoint_before_it_is_kept(tmp_path: Path) -> None:
    line = (
        r"^runs\.demo: loss is nan, allowed: a finite number \(Guard\.finite\), at step 11 in epoch 1; "
        r"the checkpoint of before is kept \(1 of 3 epochs\); read .*; fix the cause"
    )

    with pytest.raises(DivergedError, match=line):
        segment(tmp_path, 1, "--nan-at", 11)
    with pytest.raises(StalledError, match=r"no further attempt is made: .*loss is nan"):
        segment(tmp_path, 1, "--nan-at", 11, attempt=2)

    (kept,) = checkpoints(toy_job(tmp_path))
    state = torch.load(kept.folder / "state.pt", weights_only=True)
    assert (state["position"]["step"], kept.passport.progress.done) == (8, 1)
    assert all(value.isfinite().all() for value in state["parts"]["model"].values())
    assert [(attempt.kind, attempt.cause) for attempt in history(toy_job(tmp_path))] == [
        (EndKind.FAILED, EndCause.DIVERGED)
    ]


@pytest.mark.slow
def test_a_checkpoint_that_predicts_otherwise_is_set_aside_and_the_result_is_as_without_it(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "pieces").mkdir()
    segment(tmp_path / "whole", 1, "--gain-at", 6)
    stops = ["--gain-at", 6, "--signals"]

    first = segment(tmp_path / "pieces", 1, *stops, 3)
    second = segment(tmp_path / "pieces", 2, *stops, 7)
    third = segment(tmp_path / "pieces", 3, *stops)

    places = toy_job(tmp_path / "pieces").places
    (reason,) = (places.checkpoints / ".quarantine").glob("*.reason.json")
    assert [first.progress.done, second.progress.done, third.progress.done] == [3 / 8, 7 / 8, 3]
    assert reason.name == f"{second.checkpoint}.reason.json"
    assert (
        "the prediction differs from the one made when it was saved in 5 of 5 numbers, by up to" in reason.read_text()
    )
    assert "allowed: 1e-05 + 0.001 * |number|), at step 7 in epoch 0" in reason.read_text()
    assert history(toy_job(tmp_path / "pieces"))[-1].from_checkpoint == first.checkpoint
    whole = toy_job(tmp_path / "whole").places.final
    assert (places.final / "model.pt").read_bytes() == (whole / "model.pt").read_bytes()


# --- in this process -----------------------------------------------------------------------------------------------


def handed_over(told: Path) -> Path:
    """The newest folder that was handed over, out of the way as unbroken takes it."""
    for folder in sorted((told / "save").glob("*.ready")):
        folder.rename(told / f"taken-{len(list(told.glob('taken-*'))):06d}")
    return max(told.glob("taken-*"))


@pytest.mark.parametrize(
    ("guard", "losses", "line"),
    [
        (Guard(), [1, math.inf], "loss is inf, allowed: a finite number (Guard.finite), at step 0 in epoch 0"),
        (Guard(highest={"loss": 5}), [5, 5.5], "loss is 5.5, allowed: 5 at most (Guard.highest), at step 0 in epoch 0"),
        (Guard(in_a_row=2), [NAN, 1, NAN, NAN], "loss is nan, allowed: a finite number (Guard.finite), at step 0 in"),
    ],
)
def test_what_must_not_be_ends_the_training_with_a_verdict(told: Path, guard: Guard, losses, line: str) -> None:
    training = Training(guard=guard)
    for loss in losses[:-1]:
        training.log(loss=loss)
        training.log(other=NAN)

    with pytest.raises(SystemExit) as end:
        training.log(loss=losses[-1])

    verdict = json.loads((told / "verdict.json").read_text())
    assert verdict["verdict"] == "hopeless"
    assert verdict["message"].startswith(line)
    assert end.value.code == f"unbroken: {verdict['message']}"  # which Python prints, and leaves with 1


def test_weights_that_are_no_numbers_are_never_saved(told: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    training = Training(state={"model": model})
    with torch.no_grad():
        model[1].bias[0] = math.inf

    with pytest.raises(SystemExit, match=r"the weights model\.1\.bias hold NaN or infinity"):
        training.finish()

    assert list((told / "save").iterdir()) == []
    assert json.loads((told / "verdict.json").read_text())["verdict"] == "hopeless"


def test_a_prediction_leaves_no_trace_in_the_model_or_in_the_generators(told: Path) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_before = torch.get_rng_state()

    training = Training(
        state={"model": model}, validate=lambda: {"a": [model(torch.ones(3, 2))], "b": torch.rand(2), "c": 1.5}
    )
    saved_then = training._content.state()["trust"]

    assert [model.training, model[0].training, model[1].training] == [True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_before)
    assert len(saved_then["prediction"]) == 9
    assert torch.equal(saved_then["prediction"], training._content.state()["trust"]["prediction"])


def test_a_prediction_that_is_no_number_is_not_saved(told: Path) -> None:
    with pytest.raises(SystemExit, match=r"the prediction \(validate\) holds NaN or infinity"):
        Training(validate=lambda: NAN)
    with pytest.raises(TypeError, match="the prediction holds no number, allowed: tensors, numbers, or containers"):
        Training(validate=lambda: "text")
    with pytest.raises(TypeError, match=r"validate is 3, allowed: a function without arguments"):
        Training(validate=3)


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, 6e4), (torch.bfloat16, 3e38), (torch.float32, 3e38)])
@pytest.mark.parametrize("other", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_number_is_found_and_large_ones_are_none(
    dtype: torch.dtype, large: float, other: float
) -> None:
    model = torch.nn.Linear(8, 8).to(dtype)
    weights = weights_of({"model": model})
    torch.nn.init.constant_(model.weight, large)  # their sum is none, or not in this type

    sound = non_finite_weight(weights)
    with torch.no_grad():
        model.weight[3, 4] = other

    assert sound == ""
    assert non_finite_weight(weights) == "the weights model.weight hold NaN or infinity"


def train_by_hand(base: Path, value: list[float], last_value: float) -> list[tuple[int, int]]:
    """Train three batches, by a prediction of `value`, and of `last_value` in the last save; return the steps."""
    begin_as_a_new_process()
    steps = []
    training = Training(folder=base / "folder", saves=Saves(steps=1, keep=9), validate=lambda: value[0])
    loader = training.loader(TensorDataset(torch.zeros(3)), 1)
    for epoch in training.epochs(1):
        steps += [(epoch, number) for number, _ in enumerate(training.batches(loader))]
    value[0] = last_value
    training.finish({"model.pt": torch.zeros(1)})
    return steps


@pytest.mark.process
@pytest.mark.usefixtures("signals_kept")
def test_without_the_workflow_one_bad_checkpoint_is_set_aside_and_never_a_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, store = [1.0], tmp_path / "folder" / "checkpoints"
    train_by_hand(tmp_path, value, 1.0)
    before = sorted(path.name for path in store.glob("0*"))
    value[0] = 2.0
    for _ in range(2):
        with pytest.raises(SystemExit, match="the prediction differs from the one made when it was saved"):
            train_by_hand(tmp_path, value, 2.0)
    aside = sorted(path.name for path in (store / ".quarantine").glob("0*"))
    left = sorted(path.name for path in store.glob("0*"))
    value[0] = 1.0
    train_by_hand(tmp_path, value, 1.0)

    assert (left, aside) == (before[:-1], [before[-1], f"{before[-1]}.reason.json"])
    said = capsys.readouterr().out
    assert f"bad checkpoint {before[-1]}: the prediction differs" in said
    assert f"unbroken: {before[-2]} was not set aside, because the one after it was: the fault may be" in said


@pytest.mark.process
@pytest.mark.usefixtures("signals_kept")
def test_without_the_workflow_a_bad_checkpoint_is_set_aside_and_the_one_before_is_taken_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, store = [1.0], tmp_path / "folder" / "checkpoints"
    steps = train_by_hand(tmp_path, value, 2.0)
    before = sorted(path.name for path in store.glob("0*"))
    value[0] = 1.0
    steps += train_by_hand(tmp_path, value, 1.0)

    said = capsys.readouterr().out
    aside = sorted(path.name for path in (store / ".quarantine").glob("0*"))
    assert aside == [before[-1], f"{before[-1]}.reason.json"]
    assert "1 of 1 numbers" in (store / ".quarantine" / aside[1]).read_text()
    assert (
        f"unbroken: bad checkpoint {before[-1]}: the prediction differs from the one made when it was saved in 1"
        in said
    )
    # What the bad one had trained since the one before is trained again, and no more.
    assert steps[:3] == [(0, 0), (0, 1), (0, 2)]
    newest = Store(store).readable()[-1].passport
    assert (newest.is_finished, newest.progress.done, newest.sequence) == (True, 1, len(before) + 1)
    assert newest.parent == before[-2]


def test_a_wider_tolerance_given_later_counts(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = [1.0]
    training = Training(validate=Validate(lambda: value[0], rtol=0.0, atol=0.1))
    training.finish()
    monkeypatch.setenv("UNBROKEN_RESUME", str(handed_over(told)))

    value[0] = 1.25
    Training(validate=Validate(lambda: value[0], rtol=0.25, atol=0.0))
    begin_as_a_new_process()
    with pytest.raises(
        SystemExit, match=r"1 of 1 numbers, by up to 0.25 \(number 0: 1 then, 1.25 now; allowed: 0.1 \+"
    ):
        Training(validate=Validate(lambda: value[0], rtol=0.0, atol=0.0))

    assert json.loads((told / "verdict.json").read_text())["verdict"] == "bad_checkpoint"


def test_predictions_are_compared_number_by_number() -> None:
    line = "the prediction differs from the one made when it was saved in {} of 3 numbers, by up to {}"

    assert difference([1, 2, -3], [1.01, 2, -3.03], 0.01, 1e-9) == ""
    assert difference([1, 2, -3], [1, 2.5, -3.1], 0, 0.2).startswith(line.format(1, "0.5 (number 1: 2 then, 2.5 now;"))
    assert difference([1, 2, 3], [1, NAN, 9], 1, 1).startswith(line.format(2, "nan (number 1"))
    assert difference([1], [1, 2], 1, 1) == "the prediction has 2 numbers and had 1 when it was saved"


def test_saves_wait_while_a_violation_may_have_spoilt_what_is_saved() -> None:
    watch = MetricsWatch(Guard(in_a_row=3), None)

    seen = [(watch.look({name: value}), watch.is_sound) for name, value in (("loss", NAN), ("lr", 1), ("loss", 1))]

    assert seen == [("", False), ("", False), ("", True)]


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda: Guard(finite="loss"), r"Guard\(finite='loss'\), allowed: a tuple of names; type: finite=\('loss',\)"),
        (lambda: Guard(in_a_row=0), r"Guard\(in_a_row=0\), allowed: 1 or more"),
    ],
)
def test_mistakes_in_a_guard_are_named(mistake, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        mistake()
