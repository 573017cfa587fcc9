"""What a training changes and no state of its parts holds is refused or named, and what nobody changes is not."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.pieces_here import pieces, whole_and_pieces  # noqa: E402
from torch import nn  # noqa: E402

from unbroken.training.torch import Saves, Training  # noqa: E402
from unbroken.training.torch.unsaved import make_persistent  # noqa: E402

OFTEN = Saves(steps=1)


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


def fit(training, model, optimizer, trap=lambda: None, each=lambda: None, epochs=3):
    data = torch.randn(20, 6, generator=torch.Generator().manual_seed(4))
    loader = training.loader(torch.utils.data.TensorDataset(data), 5)
    for _ in training.epochs(epochs):
        for (inputs,) in training.batches(loader):
            trap()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            each()
    training.finish()


def said(capsys):
    return [line.removeprefix("unbroken: ") for line in capsys.readouterr().out.splitlines() if "lose" in line]


def made(folder, model=None, optimizer=None, **parts):
    model = model or nn.Linear(6, 2)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    return (
        Training(state={"model": model, "optimizer": optimizer, **parts}, folder=folder, saves=OFTEN),
        model,
        optimizer,
    )


def test_a_metric_of_several_ranks_that_is_not_each_ones_own_is_named() -> None:
    torchmetrics = pytest.importorskip("torchmetrics", reason="missing: torchmetrics")
    parts = {"mean": torchmetrics.MeanMetric(), "sum": torchmetrics.SumMetric(), "model": nn.Linear(2, 1)}
    for metric in (parts["mean"], parts["sum"]):
        metric.persistent(True)

    assert list(make_persistent(parts, {"sum"}, 1)) == []
    assert list(make_persistent(parts, {"sum"}, 2)) == [
        "mean (MeanMetric): each rank has seen other batches, and that of the first rank is saved for all; type: "
        "Training(per_rank={'mean': ...})"
    ]


@pytest.mark.parametrize("is_persistent", [True, False])
@pytest.mark.parametrize("is_by_forward", [True, False])
def test_a_metric_is_that_of_one_piece(tmp_path, is_by_forward, is_persistent) -> None:
    torchmetrics = pytest.importorskip("torchmetrics", reason="missing: torchmetrics")

    class Mean(torchmetrics.Metric):
        """Its state is put together by how many updates it had."""

        full_state_update = False

        def __init__(self):
            super().__init__()
            self.add_state("value", torch.tensor(0.0), dist_reduce_fx="mean", persistent=is_persistent)

        def update(self, value):
            self.value = value.detach().mean()

        def compute(self):
            return self.value

    def program(folder, trap):
        model, metric = nn.Linear(6, 2), Mean()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        training = Training(
            state={"model": model, "optimizer": optimizer, "metric": metric}, folder=folder, saves=OFTEN
        )
        loader = training.loader(torch.utils.data.TensorDataset(torch.arange(120.0).reshape(20, 6)), 5)
        found = []
        for _ in training.epochs(3):
            metric.reset()
            for (inputs,) in training.batches(loader):
                trap()
                metric(inputs) if is_by_forward else metric.update(inputs)
            training.log(mean=metric.compute().item())
            found.append(metric.compute().item())
        training.finish()
        return [row["mean"] for row in training._log.metrics.table()]

    whole, in_pieces = whole_and_pieces(program, tmp_path, [2, 7, 8])

    assert in_pieces == whole
    assert len(set(whole)) > 1


def test_a_metric_inside_of_a_model_is_named_when_it_has_seen_a_batch(tmp_path, capsys) -> None:
    torchmetrics = pytest.importorskip("torchmetrics", reason="missing: torchmetrics")

    class Model(nn.Linear):
        def __init__(self):
            super().__init__(6, 2)
            self.mean = torchmetrics.MeanMetric()

    training, model, optimizer = made(tmp_path / "run", Model())
    fit(training, model, optimizer, each=lambda: model.mean.update(1.0))

    assert said(capsys) == [
        "model.mean changes in the training and is not saved, so a restart loses it in the middle of an epoch; type: "
        "model.mean.persistent(True)"
    ]


def test_a_part_with_an_empty_state_is_named_if_it_changes(tmp_path, capsys) -> None:
    class Counter:
        count = 0

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    still, moving = Counter(), Counter()
    training, model, optimizer = made(tmp_path / "run", still=still, moving=moving)
    fit(training, model, optimizer, each=lambda: setattr(moving, "count", moving.count + 1))

    assert said(capsys) == [
        "moving changes in the training and is not saved, so a restart loses it; its state_dict is empty; type what it "
        "must keep into its state_dict"
    ]


class Kept(nn.Linear):
    """Has a buffer that is not saved, and a tensor that is no buffer."""

    def __init__(self):
        super().__init__(6, 2)
        self.register_buffer("calls", torch.zeros(1), persistent=False)
        self.register_buffer("table", torch.ones(3), persistent=False)
        self.hidden = None
        self.sums, self.constant = torch.zeros(2), torch.ones(2)


def test_a_buffer_and_a_tensor_that_no_state_holds_are_named_if_they_change(tmp_path, capsys) -> None:
    training, model, optimizer = made(tmp_path / "run", Kept())

    def each():
        model.calls += 1
        model.hidden = (torch.zeros(2), torch.zeros(2))
        model.sums += 1
        model.constant = torch.ones(2)

    fit(training, model, optimizer, each=each)

    assert said(capsys) == [
        "model.calls changes in the training and is not saved, so a restart loses it; it is a buffer with "
        "persistent=False; if it matters, type: persistent=True",
        *(
            f"model.{name} changes in the training and is not saved, so a restart loses it; it is a tensor and no "
            f"buffer; if a batch needs that of the batch before, type: self.register_buffer({name!r}, ...)"
            for name in ("hidden", "sums")
        ),
    ]


class RunningMean:
    def __init__(self):
        self.mean, self.count = torch.zeros(6), 0


class Normalized(nn.Linear):
    """Keeps running values in attributes that no state holds."""

    def __init__(self):
        super().__init__(6, 2)
        self.mean, self.counts, self.names = np.zeros(6), {"calls": 0}, ["a", "b"]
        self.running, self.limits = RunningMean(), SimpleNamespace(low=0.0, high=1.0)
        self.number, self.layers = np.array(1.0), [self]  # a module is looked at by itself

    def forward(self, inputs):
        self.counts["calls"] += 1
        self.running.mean, self.running.count = 0.9 * self.running.mean + 0.1 * inputs.mean(0), self.running.count + 1
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0).numpy()
        return super().forward(inputs)


def test_a_view_of_a_weight_is_saved_with_it_and_not_named(tmp_path, capsys) -> None:
    model = nn.Linear(6, 2)
    model.seen = model.weight.data[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    training = Training(state={"model": model, "optimizer": optimizer}, folder=tmp_path, saves=OFTEN)
    for _ in training.epochs(1):
        for (inputs,) in training.batches(training.loader(torch.utils.data.TensorDataset(torch.ones(4, 6)), 2)):
            model(inputs).sum().backward()
            optimizer.step()
    training.finish()

    assert "is not saved" not in capsys.readouterr().out


def test_a_container_on_a_module_is_named_if_it_changes(tmp_path, capsys) -> None:
    fit(*made(tmp_path / "run", Normalized()))

    assert said(capsys) == [
        f"model.{name} changes in the training and is not saved, so a restart loses it; it is no buffer; if a batch "
        "needs that of the batch before, give it to Training in a Variables"
        for name in ("mean", "counts", "running")
    ]


def test_an_optimizer_and_a_scheduler_that_training_was_not_given_are_named(tmp_path, capsys) -> None:
    model = nn.Linear(6, 2)
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    training, _, _ = made(tmp_path / "run", model, optimizer)

    fit(training, model, optimizer, each=other.step)

    assert scheduler.last_epoch == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "not given" in line] == [
        "unbroken: a learning rate scheduler of optimizer was not given to Training(...), so it is not saved and "
        "starts at 0 after a restart; type: Training(state={'scheduler': scheduler}, ...)",
        "unbroken: an optimizer (AdamW) that Training(...) was not given has changed model.weight; its state is not "
        "saved; type: Training(state={'optimizer': optimizer}, ...)",
    ]


class Around(torch.optim.Optimizer):
    """Steps another optimizer, whose state it may leave out of its own."""

    def __init__(self, params, saves_inner):
        super().__init__(params, {"lr": 0.01})
        self.inner, self.saves_inner = torch.optim.SGD(self.param_groups, lr=0.01, momentum=0.9), saves_inner
        self.param_groups = self.inner.param_groups

    def step(self):
        self.inner.step()

    def state_dict(self):
        return {**super().state_dict(), **({"inner": self.inner.state_dict()} if self.saves_inner else {})}


LOST = (
    "an optimizer (SGD) that Training(...) was not given has changed model.weight; its state is not saved; type: "
    "Training(state={'optimizer': optimizer}, ...)"
)


@pytest.mark.parametrize(("saves_inner", "lines"), [(False, [LOST]), (True, [])])
def test_an_optimizer_inside_of_another_one_is_named_if_its_state_is_not_saved_there(
    tmp_path, capsys, saves_inner, lines
) -> None:
    model = nn.Linear(6, 2)
    training, model, optimizer = made(tmp_path / "run", model, Around(model.parameters(), saves_inner))

    fit(training, model, optimizer)

    assert [line for line in capsys.readouterr().out.replace("unbroken: ", "").splitlines() if "SGD" in line] == lines


def test_an_optimizer_that_only_its_scheduler_holds_is_named(tmp_path, capsys) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    training = Training(state={"model": model, "scheduler": scheduler}, folder=tmp_path / "run", saves=OFTEN)

    fit(training, model, optimizer)

    assert LOST in capsys.readouterr().out


def test_a_part_that_adds_what_it_loads_is_loaded_once(tmp_path) -> None:
    class Memory(list):
        def state_dict(self):
            return {"rows": [*self]}

        def load_state_dict(self, state):
            self.extend(state["rows"])

    def program(folder, trap):
        model, memory = nn.Linear(6, 2), Memory()
        training, model, optimizer = made(folder, model, memory=memory)
        fit(training, model, optimizer, trap, lambda: memory.append(len(memory)))
        return [*memory]

    whole, in_pieces = whole_and_pieces(program, tmp_path, [2, 5])

    assert in_pieces == whole == [*range(12)]


def test_optimizers_that_share_their_groups_share_them_after_a_restart(tmp_path) -> None:
    def program(folder, trap):
        model = nn.Linear(6, 2)
        around = Around(model.parameters(), saves_inner=False)
        scheduler = torch.optim.lr_scheduler.StepLR(around, 1, 0.5)
        training, *_ = made(folder, model, around, inner=around.inner, scheduler=scheduler)
        fit(training, model, around, trap, scheduler.step)
        return around.inner.param_groups[0]["lr"], model.weight.tolist()

    whole, in_pieces = whole_and_pieces(program, tmp_path, [2, 5])

    assert in_pieces == whole


def test_nothing_is_said_of_a_training_that_gives_all_it_has(tmp_path, capsys) -> None:
    """Norms that make one weight of two, spectral norm, an average, a schedule of two."""
    model = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(6, 6)), nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)),
        nn.BatchNorm1d(6), nn.GRU(6, 6), nn.Flatten(),
    )  # fmt: skip
    model[3].forward = lambda inputs: inputs
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = [torch.optim.lr_scheduler.LinearLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [2])
    average = torch.optim.swa_utils.AveragedModel(model)

    def program(folder, trap):
        training, _, _ = made(folder, model, optimizer, scheduler=scheduler, average=average)
        fit(training, model, optimizer, trap, each=lambda: average.update_parameters(model))
        return True

    pieces(program, tmp_path / "run", [6])

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unbroken: ")]
    assert [line for line in lines if "lose" in line or "not given" in line or "put back" in line] == []
