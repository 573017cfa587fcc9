"""What of a training no state_dict holds: requires_grad, train and eval, parameter groups, numbers on modules."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.pieces_here import pieces, whole_and_pieces  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import Saves, Training  # noqa: E402

OFTEN = Saves(steps=1)
# 4 batches an epoch: in the first epoch, in the one where something changes, at its end, and after it.
STOPS = (2, 10, 12, 15)


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


def classifier():
    return nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)), nn.Linear(8, 3))


def fit(training, model, optimizer, trap, at_epoch=lambda epoch: None, epochs=5):
    """Train on fixed data; return the weights."""
    generator = torch.Generator().manual_seed(4)
    data = torch.utils.data.TensorDataset(
        torch.randn(20, 6, generator=generator), torch.randint(3, (20,), generator=generator)
    )
    loader = training.loader(data, 5)
    for epoch in training.epochs(epochs):
        at_epoch(epoch)
        for inputs, targets in training.batches(loader):
            trap()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
    training.finish()
    return {name: value.tolist() for name, value in model.state_dict().items()}


def frozen(module, *, is_frozen=True):
    for parameter in module.parameters():
        parameter.requires_grad = not is_frozen


def begin_frozen(model):
    frozen(model[0])


CHANGES = {
    "unfrozen": (begin_frozen, None, lambda model: frozen(model[0], is_frozen=False)),
    # Then each start has them frozen behind the checkpoint.
    "unfrozen, and frozen after Training": (None, begin_frozen, lambda model: frozen(model[0], is_frozen=False)),
    "eval mode": (None, None, lambda model: model[0].eval()),
    "a number on a module": (None, None, lambda model: setattr(model[0][2], "p", 0.1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_at_an_epoch_is_so_after_a_restart(tmp_path, name) -> None:
    before, after, change = CHANGES[name]

    def program(folder, trap):
        model = classifier()
        if before:
            before(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        if after:
            after(model)
        return fit(training, model, optimizer, trap, lambda epoch: epoch == 2 and change(model))

    whole, in_pieces = whole_and_pieces(program, tmp_path, STOPS)

    assert in_pieces == whole


def test_what_a_script_froze_otherwise_than_the_checkpoint_is_said_at_the_first_batch(tmp_path, capsys) -> None:
    def program(folder, trap, is_frozen=False):
        model = classifier()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        frozen(model[1], is_frozen=is_frozen)
        return fit(training, model, optimizer, trap)

    pieces(program, tmp_path / "run", [2], is_ended=False)
    capsys.readouterr()
    pieces(lambda folder, trap: program(folder, trap, is_frozen=True), tmp_path / "run", [])

    said = [line for line in capsys.readouterr().out.splitlines() if "requires_grad" in line]
    assert said == [
        "unbroken: requires_grad of model.1.weight, model.1.bias is put back as it was in the checkpoint, where it is "
        "True; to change it, type: if training.epoch == ...: before batches()"
    ]


def test_a_tensor_that_an_epoch_begins_with_on_a_module_stays_there(tmp_path) -> None:
    class Scaled(nn.Linear):
        scale = calls = None

        def __init__(self):
            super().__init__(6, 3)
            self.scale = None

        def forward(self, inputs):
            self.calls = (self.calls or 0) + 1  # from the first batch on
            return super().forward(inputs) * self.scale * self.calls

    def program(folder, trap):
        model = Scaled()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        return fit(training, model, optimizer, trap, lambda epoch: setattr(model, "scale", torch.tensor(0.1)))

    whole, in_pieces = whole_and_pieces(program, tmp_path, STOPS)

    assert in_pieces == whole


def test_what_a_script_made_of_its_parts_can_be_made_before_a_checkpoint_is_loaded(tmp_path, capsys) -> None:
    """A layer is pruned at epoch 2, and parameters of no model are added to the optimizer."""

    def program(folder, trap):
        model, other = classifier(), nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        asked = []

        def grow():
            prune.random_unstructured(model[1], "weight", 0.5)
            optimizer.add_param_group({"params": other.parameters(), "lr": 0.3})

        def prepare(training):
            asked.append((training.epoch, training.batch))
            if (training.epoch, training.batch) > (2, 0):
                grow()

        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN, prepare=prepare)
        assert len(asked) == (training.step > 0)
        return fit(training, model, optimizer, trap, lambda epoch: epoch == 2 and training.batch == 0 and grow())

    whole, in_pieces = whole_and_pieces(program, tmp_path, STOPS)

    assert in_pieces == whole
    assert "1.weight_mask" in whole
    assert "prepare" not in capsys.readouterr().out


def test_other_names_in_a_model_and_other_groups_than_at_the_start_are_said_at_once(tmp_path, capsys) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.05)
    training = Training(state={"model": model, "optimizer": optimizer}, folder=tmp_path / "run", saves=OFTEN)

    def prune_one(epoch):
        if epoch == 1:
            prune.identity(model[1], "weight")
            optimizer.add_param_group({"params": [model[1].bias]})

    fit(training, model, optimizer, lambda: None, prune_one)

    assert [line for line in capsys.readouterr().out.splitlines() if "prepare" in line] == [
        "unbroken: model has 1.weight_orig, 1.weight_mask now, which it had not when Training(...) was made: a restart "
        "can load it only if it is made so before, by the epoch; type: Training(..., prepare=function)",
        "unbroken: optimizer has group 1 now, which it had not when Training(...) was made: a restart can load it only "
        "if it is made so before, by the epoch; type: Training(..., prepare=function)",
    ]


def test_parameters_in_another_order_than_at_the_save_keep_their_own_state(tmp_path) -> None:
    """As of a set, which each process has in another order; all weights here have one shape."""
    orders = iter(([0, 1, 2], [2, 0, 1], [0, 1, 2]))

    def program(folder, trap):
        model = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(3)))
        optimizer = torch.optim.AdamW([model[number].weight for number in next(orders)], lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        return fit(training, model, optimizer, trap)

    whole, in_pieces = whole_and_pieces(program, tmp_path, [6])

    assert in_pieces == whole


def test_other_parameters_in_a_group_than_at_the_save_are_refused(tmp_path) -> None:
    def program(folder, trap, number=0):
        model = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(3)))
        optimizer = torch.optim.AdamW([model[number].weight], lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        return fit(training, model, optimizer, trap)

    pieces(program, tmp_path / "run", [2], is_ended=False)

    with pytest.raises(CheckpointError, match=r"group 0 of 'optimizer' had model.0.weight, .* has model.2.weight"):
        pieces(lambda folder, trap: program(folder, trap, number=2), tmp_path / "run", [])


def test_what_an_epoch_begins_with_is_done_once_also_where_a_restart_repeats_it(tmp_path) -> None:
    def program(folder, trap):
        model = classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        training = Training(
            state={"model": model, "optimizer": optimizer, "scheduler": scheduler}, folder=folder, saves=OFTEN
        )

        def begin(epoch):
            if epoch:
                scheduler.step()
            if epoch == 2:
                optimizer.param_groups[0]["lr"] *= 0.5
                model[1].reset_parameters()

        return fit(training, model, optimizer, trap, begin)

    whole, in_pieces = whole_and_pieces(program, tmp_path, STOPS)

    assert in_pieces == whole


def test_what_a_script_changes_before_its_epochs_stays_changed(tmp_path) -> None:
    def program(folder, trap, lr=None):
        model = classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        training = Training(state={"model": model, "optimizer": optimizer}, folder=folder, saves=OFTEN)
        if lr:
            optimizer.param_groups[0]["lr"] = lr
        fit(training, model, optimizer, trap)
        return optimizer.param_groups[0]["lr"]

    pieces(program, tmp_path / "run", [2], is_ended=False)

    assert pieces(lambda folder, trap: program(folder, trap, 0.001), tmp_path / "run", []) == 0.001


KILLED = """
import os, signal, sys, torch
from torch import nn
from unbroken.training.torch import Saves, Training, seed_everything
torch.set_num_threads(1)
seed_everything(0)
model = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5)), nn.Linear(8, 3))
for parameter in model[0].parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(model[1].parameters(), lr=0.05)

def add_group(training):
    if training.epoch > 2 or (training.epoch == 2 and training.batch):
        optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})

training = Training(
    state={"model": model, "optimizer": optimizer},
    folder=sys.argv[1],
    saves=Saves(steps=1),
    prepare=add_group,
)
x, y = torch.randn(20, 6), torch.randint(3, (20,))
loader = training.loader(torch.utils.data.TensorDataset(x, y), 5)
for epoch in training.epochs(5):
    if epoch == 2:
        for parameter in model[0].parameters():
            parameter.requires_grad = True
        if training.batch == 0:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
        model[0][1].eval()
    for inputs, targets in training.batches(loader):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if training.step + 1 in map(int, sys.argv[2:]):
            os.kill(os.getpid(), signal.SIGKILL)
training.finish({"model.pt": model.state_dict()})
"""


def test_kills_before_and_after_the_epoch_of_a_change_alter_no_weight(tmp_path) -> None:
    def start(folder, *kills):
        words = [sys.executable, "-c", KILLED, str(tmp_path / folder), *kills]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    codes = [start("whole"), start("pieces", "6"), start("pieces", "11"), start("pieces", "15"), start("pieces")]

    assert [each.returncode for each in codes] == [0, -9, -9, -9, 0], codes[-1].stderr
    whole, in_pieces = ((tmp_path / folder / "final" / "model.pt").read_bytes() for folder in ("whole", "pieces"))
    assert in_pieces == whole


class Hidden:
    """Carries a hidden state from batch to batch."""

    value = torch.zeros(1, 4, 8)

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_hidden_state_that_goes_from_batch_to_batch_is_that_of_one_piece(tmp_path, workers) -> None:
    windows = torch.utils.data.TensorDataset(torch.randn(8, 4, 5, 6, generator=torch.Generator().manual_seed(1)))

    def program(folder, trap):
        model, hidden = nn.GRU(6, 8, batch_first=True), Hidden()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        training = Training(
            state={"model": model, "optimizer": optimizer, "hidden": hidden}, folder=folder, saves=OFTEN
        )
        loader = training.loader(windows, batch_size=None, shuffle=False, num_workers=workers)
        for _ in training.epochs(2):
            hidden.value = torch.zeros(1, 4, 8)
            for (inputs,) in training.batches(loader):
                trap()
                assert inputs.shape == (4, 5, 6)
                states, last = model(inputs, hidden.value)
                hidden.value = last.detach()
                optimizer.zero_grad()
                states.square().mean().backward()
                optimizer.step()
        training.finish()
        return [value.tolist() for value in model.state_dict().values()]

    whole, in_pieces = whole_and_pieces(program, tmp_path, [3, 12])

    assert in_pieces == whole


def test_samples_that_are_batches_already_are_converted_as_in_dataloader() -> None:
    class Arrays(torch.utils.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return {"x": np.full((2,), index), "n": index}

    def batches(**options):
        training = Training()
        loader = training.loader(Arrays(), batch_size=None, shuffle=False, **options)
        return [batch for _ in training.epochs(1) for batch in training.batches(loader)]

    plain, own = batches(), batches(collate_fn=lambda sample: sample["n"] + 1)
    expected = list(torch.utils.data.DataLoader(Arrays(), batch_size=None))

    assert str(plain) == str(expected)
    assert own == [1, 2, 3]
