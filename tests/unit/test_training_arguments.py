"""Arguments of `Training`, its methods, `Saves` and `Guard`: each does something (others: the tests of their parts)."""

import json
import os
import random
import signal
import time

import pytest
from support.telling import begin_as_a_new_process

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import nn  # noqa: E402

from unbroken.store.checkpoints import Store  # noqa: E402
from unbroken.training.torch import Guard, Saves, Training, Variables  # noqa: E402

pytestmark = pytest.mark.usefixtures("signals_kept")


class Drawn(torch.utils.data.Dataset):
    """Twelve samples: their number, and one drawn from Python's generator."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor([float(index), random.random()])


def made(folder=None, **options):
    begin_as_a_new_process()
    torch.manual_seed(1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    return Training(**{"state": {"model": model, "optimizer": optimizer}, "folder": folder, **options})


def numbers(training, goal=1, unit="epochs", **options):
    """The numbers of the samples, a list for each batch."""
    loader = training.loader(Drawn(), **options)
    batches = [batch for _ in training.epochs(goal, unit) for batch in training.batches(loader)]
    return [[int(row[0]) for row in batch] for batch in batches]


def trained(folder, goal=4, values=(), name="loss", after=lambda training: None, **options):
    """Train so many epochs of 3 batches, each with a value to log; return the training."""
    training = made(folder, **options)
    loader = training.loader(Drawn(), 4)
    given = iter(values)
    for _ in training.epochs(goal):
        for _ in training.batches(loader):
            pass
        training.log(**{name: next(given, 1.0)})
        after(training)
    training.finish()
    return training


def steps_saved(folder):
    return [round(each.passport.progress.done * 3) for each in Store(folder / "checkpoints").readable()]


def test_best_and_is_best(tmp_path) -> None:
    seen = []
    trained(None, 4, (3, 1, 2, 0), after=lambda training: seen.append(training.is_best), best=("loss", "min"))
    trained(None, 4, (3, 1, 2, 0), after=lambda training: seen.append(training.is_best), best=("loss", "max"))

    assert seen == [True, True, False, True, True, False, False, False]


@pytest.mark.process
def test_folder_and_state(tmp_path) -> None:
    one, other = Variables(loss=2.0), Variables()
    trained(tmp_path / "run", state={"seed": one})
    trained(tmp_path / "run", 5, state={"seed": other})

    assert other == {"loss": 2.0}


@pytest.mark.process
def test_saves_steps_and_keep(tmp_path) -> None:
    trained(tmp_path / "run", saves=Saves(steps=2, keep=4))

    assert steps_saved(tmp_path / "run") == [8, 10, 12, 12]  # the last one at the end


@pytest.mark.process
def test_saves_minutes(tmp_path) -> None:
    trained(tmp_path / "run", saves=Saves(minutes=1e-9, keep=99))

    assert len(steps_saved(tmp_path / "run")) > 4


def test_saves_mtbf_hours(tmp_path) -> None:
    training = made(tmp_path / "run", saves=Saves(mtbf_hours=1e-9))

    assert training._link.pace.interval_seconds < 1


@pytest.mark.process
def test_saves_milestone_every(tmp_path) -> None:
    trained(tmp_path / "run", saves=Saves(steps=1, keep=1, milestone_every=4))

    found = [each.passport.sequence for each in Store(tmp_path / "run" / "checkpoints").readable()]
    assert found == [4, 8, 12, 13]


@pytest.mark.parametrize("in_background", [True, False])
def test_saves_in_background(tmp_path, in_background) -> None:
    training = made(tmp_path / "run", saves=Saves(in_background=in_background))

    assert training._link._may_be_in_background(100 if in_background else 10**9) is in_background


def test_guard_finite(tmp_path) -> None:
    trained(None, 1, (float("nan"),), guard=Guard(finite=()))
    with pytest.raises(SystemExit, match="mine is nan, allowed: a finite number"):
        trained(None, 1, (float("nan"),), "mine", guard=Guard(finite=("mine",)))


def test_what_is_drawn_for_a_sample_follows_from_the_seed_alone() -> None:
    def draws():
        training = made()
        loader = training.loader(Drawn(), 12)
        return [batch[:, 1].tolist() for _ in training.epochs(1) for batch in training.batches(loader)]

    random.seed(1)
    first = draws()
    random.seed(2)

    assert draws() == first


@pytest.mark.process
def test_collate_fn_and_options_of_dataloader() -> None:
    training = made()
    loader = training.loader(Drawn(), 4, collate_fn=len, num_workers=1, prefetch_factor=7)

    assert [batch for _ in training.epochs(1) for batch in training.batches(loader)] == [4, 4, 4]
    assert (loader.num_workers, loader.prefetch_factor) == (1, 7)


def test_log_and_mean() -> None:
    means = []
    trained(None, 2, (3, 5), after=lambda training: means.append(training.mean("loss")))

    assert means == [3, 5]


def test_timer() -> None:
    training = made()
    with training.timer("forward"):
        time.sleep(0.01)

    count, seconds = training._log.timers.line()["timers"]["forward"]
    assert count == 1 and seconds >= 0.01


@pytest.mark.process
def test_finish(tmp_path) -> None:
    training = made(tmp_path / "run")
    numbers(training, batch_size=4)
    training.finish({"note.txt": "done"})

    final = tmp_path / "run" / "final"
    assert (final / "note.txt").read_text() == "done"
    assert json.loads((final / "metrics.json").read_text())["steps"] == 3


def test_epoch_batch_and_step() -> None:
    training, found = made(), []
    loader = training.loader(Drawn(), 6)
    for _ in training.epochs(2):
        for _ in training.batches(loader):
            found.append((training.epoch, training.batch, training.step))

    assert found == [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]


@pytest.mark.process
def test_save_asks_for_a_checkpoint_after_this_step(tmp_path) -> None:
    training = made(tmp_path / "run", saves=Saves(minutes=99))
    loader = training.loader(Drawn(), 4)
    for _ in training.epochs(2):
        for _ in training.batches(loader):
            if training.step == 1:
                training.save()
    training.finish()

    assert steps_saved(tmp_path / "run") == [2, 6]


@pytest.mark.process
def test_resumed_and_stop_requested(tmp_path) -> None:
    training = made(tmp_path / "run")
    found = [training.resumed, training.stop_requested]
    loader = training.loader(Drawn(), 4)
    with pytest.raises(SystemExit, match="85"):
        for _ in training.epochs(2):
            for _ in training.batches(loader):
                os.kill(os.getpid(), signal.SIGUSR1)
                found.append(training.stop_requested)
    begin_as_a_new_process()
    found.append(made(tmp_path / "run").resumed)

    assert found == [False, False, True, True]
    assert not made().stop_requested and not made().resumed  # without a folder
