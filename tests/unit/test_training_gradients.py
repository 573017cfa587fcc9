"""Gradients that are added up over several batches survive a stop after any batch."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support import fsdp2, gradient_ranks  # noqa: E402
from support.forked_ranks import ForkedRanks  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

from unbroken.training.torch import Saves, Training, seed_everything  # noqa: E402
from unbroken.training.torch.gradients import Gradients  # noqa: E402
from unbroken.training.torch.state import load  # noqa: E402

PROGRAM = Path(gradient_ranks.__file__).read_text()
BATCHES, EPOCHS = 6, 2
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 3 * BATCHES

    def __getitem__(self, index):
        return torch.randn(4) + index / 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(5, 4, sparse=True)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def forward(self, batch):
        return self.layers(batch + self.rows(batch[:, 0].abs().long() % 5))


def every_fourth(training, model, optimizer, loss):
    """Over the borders of epochs too: of 12 batches, 3 times 4."""
    (loss() / 4).backward()
    if (training.step + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()


def every_fourth_of_an_epoch(training, model, optimizer, loss):
    """As in most tutorials; what is left at the end of an epoch is thrown away at its beginning."""
    (loss() / 4).backward()
    if (training.batch + 1) % 4 == 0 or training.batch + 1 == BATCHES:
        optimizer.step()
        optimizer.zero_grad()


def step_first(training, model, optimizer, loss):
    """A step and then a backward pass in one batch."""
    if training.step % 3 == 0:
        optimizer.step()
        optimizer.zero_grad()
    loss().backward()


def zeroed_in_place(training, model, optimizer, loss):
    (loss() / 4).backward()
    if (training.step + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def never_zeroed(training, model, optimizer, loss):
    loss().backward()
    optimizer.step()


def rarely_zeroed(training, model, optimizer, loss):
    if training.step % 5 == 0:
        optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def each_batch(training, model, optimizer, loss):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def clipped_by_hand(training, model, optimizer, loss):
    """Without any optimizer of torch."""
    (loss() / 4).backward()
    if (training.step + 1) % 4 == 0:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


LOOPS = [
    every_fourth,
    every_fourth_of_an_epoch,
    step_first,
    zeroed_in_place,
    never_zeroed,
    rarely_zeroed,
    each_batch,
    clipped_by_hand,
]


def train(folder: Path, do, stops=(), saves=Saves(), give_optimizer=True):  # noqa: B008
    """Returns the exit code; a stop is a number of batches of all epochs."""
    torch.set_num_threads(1)
    seed_everything(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    parts = {"optimizer": optimizer} if give_optimizer else {}
    training = Training(state={"model": model, **parts}, folder=folder, saves=saves)
    loader = training.loader(Numbers(), 3)
    try:
        for epoch in training.epochs(EPOCHS):
            if do is every_fourth_of_an_epoch:
                optimizer.zero_grad()
            for batch in training.batches(loader):
                assert (epoch, training.epoch * BATCHES + training.batch) == (training.epoch, training.step)
                do(training, model, optimizer, lambda batch=batch: model(batch).square().mean())
                if training.step + 1 in stops:
                    os.kill(os.getpid(), signal.SIGUSR1)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        return leaving.code
    return 0


def content(folder: Path) -> dict[str, bytes]:
    files = (folder / "checkpoints" / "latest").rglob("*.pt")
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("do", LOOPS, ids=lambda do: do.__name__)
def test_stops_after_any_batch_change_no_byte(do, tmp_path: Path) -> None:
    whole, once, often = (tmp_path / name for name in ("whole", "once", "often"))
    all_stops = range(1, BATCHES * EPOCHS)

    codes = [
        train(whole, do),
        *(train(once, do, [6]) for _ in range(2)),
        *(train(often, do, all_stops) for _ in range(12)),
    ]

    assert codes == [0, 85, 0, *[85] * 11, 0]
    assert content(once) == content(whole)
    assert content(often) == content(whole)


def test_gradients_are_saved_only_where_they_are_needed(tmp_path: Path) -> None:
    found = {}
    for do in (each_batch, every_fourth):
        train(tmp_path / do.__name__, do, [6, 8])
        for stop in (6, 8):
            state = load(tmp_path / do.__name__ / "checkpoints" / "latest")
            found[do.__name__, stop] = len(state["unbroken.gradients"]["tensors"])
            train(tmp_path / do.__name__, do, [8])

    parameters = len(list(Net().parameters()))
    assert found == {
        ("each_batch", 6): 0,
        ("each_batch", 8): 0,
        ("every_fourth", 6): parameters,
        ("every_fourth", 8): 0,
    }


def test_a_save_beside_the_training_holds_the_gradients_of_its_moment(tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    beside = Saves(steps=1, in_background=True)

    codes = [
        train(whole, every_fourth),
        train(pieces, every_fourth, [6], beside),
        train(pieces, every_fourth, (), beside),
    ]

    assert codes == [0, 85, 0]
    assert content(pieces) == content(whole)


def test_a_model_without_its_optimizer_is_enough(tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"

    codes = [
        train(folder, every_fourth, stops, give_optimizer=False)
        for folder, stops in ((whole, ()), (pieces, [6]), (pieces, ()))
    ]

    assert codes == [0, 85, 0]
    assert content(pieces) == content(whole)


def test_an_earlier_training_that_is_collected_in_the_middle_of_a_step_disturbs_nothing() -> None:
    """torch goes through its hooks then, and does not bear it that one is taken away."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    earlier = [Gradients({"model": nn.Linear(2, 1)})]
    hook = register_optimizer_step_post_hook(lambda *_: earlier.clear())
    now = Gradients({"model": model})

    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    hook.remove()

    assert earlier == []
    assert now.state()["stepped"] == ["model.weight", "model.bias"]


def ranks(folder: Path, *arguments: object, count: int = 2) -> ForkedRanks:
    return ForkedRanks(folder, PROGRAM, list(map(str, arguments)), ranks=count)


def files_of(parent: ForkedRanks) -> dict[str, bytes]:
    """All but the one file into which torch writes a new identifier at each save."""
    return {name: data for name, data in parent.result().items() if name != "shards/.metadata"}


@pytest.mark.parametrize(
    "kind", ["ddp", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ddp-views", "fsdp"))]
)
def test_each_of_two_ranks_gets_its_own_gradients_back(kind: str, tmp_path: Path) -> None:
    whole, pieces = ranks(tmp_path / "whole", kind), ranks(tmp_path / "pieces", kind, "--signals", 2, 8)

    whole.run_to_the_end()
    pieces.run_to_the_end()

    assert (whole.codes, pieces.codes) == ([0], [85, 85, 0]), pieces.log
    assert files_of(pieces) == files_of(whole)


@pytest.mark.slow
def test_gradients_that_ranks_of_fsdp2_have_not_shared_are_refused_after_the_first_batch(tmp_path: Path) -> None:
    fsdp2.require_on_the_cpu()
    parent = ranks(tmp_path / "run", "fsdp-unshared")

    assert parent.run() == 1
    assert (
        parent.log.count("unbroken: set_requires_gradient_sync(False): FSDP2 holds gradients that its ranks have") == 2
    )
    assert "allowed: True, with which they are added up as well, at step 1 in epoch 0" in parent.log
    assert parent.handovers == []


def test_fsdp1_is_refused_in_one_line(tmp_path: Path) -> None:
    parent = ranks(tmp_path / "run", "fsdp1")

    assert parent.run() == 1
    line = (
        "TypeError: Training(state={'model': ...}) holds a FullyShardedDataParallel (FSDP1), whose optimizer has "
        "another state on "
    )
    assert parent.log.count(f"{line}each rank under the same names; allowed: FSDP2; type fully_shard(model)") == 2


def noted(parent: ForkedRanks, name: str) -> list[dict[str, torch.Tensor]]:
    return [torch.load(path, weights_only=True) for path in sorted(parent.root.glob(f"{name}-*.pt"))]


@pytest.mark.parametrize(
    ("kinds", "counts"),
    [
        (("ddp", "plain"), (2, 1)),
        pytest.param(("plain", "ddp"), (1, 2), marks=pytest.mark.slow),
        pytest.param(("fsdp", "ddp"), (2, 2), marks=pytest.mark.slow),
    ],
)
def test_other_ranks_go_on_with_the_mean_of_the_gradients(
    kinds: tuple[str, str], counts: tuple[int, int], tmp_path: Path
) -> None:
    parent = ranks(tmp_path / "run", kinds[0], "--signals", 2, count=counts[0])
    parent.run()
    before = noted(parent, "ended")
    parent.arguments, parent.ranks = [kinds[1]], counts[1]
    parent.run_to_the_end()

    mean = {name: sum(each[name] for each in before) / len(before) for name in before[0]}
    after = noted(parent, "begun")[: counts[1]]
    assert parent.codes == [85, 0]
    assert all(each.any() for each in mean.values())
    for each in after:
        assert {name: each[name].tolist() for name in mean} == {name: value.tolist() for name, value in mean.items()}
