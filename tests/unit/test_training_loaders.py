"""Several loaders in one training, and orders that follow it: pieces are the whole, bit for bit."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.forked_ranks import ForkedRanks  # noqa: E402
from support.training_parent import TrainingParent  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import (  # noqa: E402
    InterruptibleBatchSampler,
    InterruptibleDistributedSampler,
    InterruptibleSampler,
    Training,
    seed_everything,
)

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("signals_kept")]


class Numbers(Dataset):
    """The numbers from `first` on, each with what was drawn for it."""

    def __init__(self, size, first=0):
        self.size, self.first = size, first

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.first + index, torch.rand(()).item()


def rows(batch):
    return [each.tolist() for each in batch]


def again_and_again(loader):
    while True:
        yield from loader


def by_iter(first, second, training, epoch):
    unlabeled = iter(second)
    for batch in training.batches(first):
        yield rows(batch), rows(next(unlabeled))


def by_renewed_iter(first, second, training, epoch):
    unlabeled = iter(second)
    for batch in training.batches(first):
        try:
            other = next(unlabeled)
        except StopIteration:
            unlabeled = iter(second)
            other = next(unlabeled)
        yield rows(batch), rows(other)


def by_zip(first, second, training, epoch):
    for batch, other in zip(training.batches(first), second, strict=False):
        yield rows(batch), rows(other)


def by_zip_ahead(first, second, training, epoch):
    for other, batch in zip(again_and_again(second), training.batches(first), strict=False):
        yield rows(batch), rows(other)


def by_generator(first, second, training, epoch):
    unlabeled = again_and_again(second)
    for batch in training.batches(first):
        yield rows(batch), rows(next(unlabeled))


def by_one_draw_each(first, second, training, epoch):
    for batch in training.batches(first):
        yield rows(batch), rows(next(iter(second)))


def by_passes(first, second, training, epoch):
    """Passes of each kind: complete before the loop, left early in it, complete at the end of the epoch."""
    before = [rows(other) for other in second]
    kept = iter(second)
    for batch in training.batches(first):
        part = [rows(other) for other, _ in zip(second, range(2), strict=False)] if training.batch % 2 else []
        yield rows(batch), rows(next(kept)), part
    yield before, [rows(other) for other in second]


def train(folder: Path, body, *, second=24, workers=0, stop_at=None, epochs=3, across=None):
    """Returns what each step saw; `stop_at` 6.5 is between two epochs, of 6 steps each."""
    seed_everything(1)
    model, seen = torch.nn.Linear(1, 1), []
    try:
        training = Training(model=model, folder=folder)
        loaders = [training.loader(Numbers(24), 4, num_workers=workers)]
        loaders += [training.loader(Numbers(second, 100), 4, num_workers=workers)]
        if across:
            loaders[1] = across(loaders[1])
        for epoch in training.epochs(epochs):
            for found in body(*loaders, training, epoch):
                seen.append((epoch, training.step, found))
                stop(stop_at, training.step + 1)
            stop(stop_at, training.step + 0.5)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


def stop(when, now):
    if when == now:
        os.kill(os.getpid(), signal.SIGUSR1)


def last_state(folder: Path) -> bytes:
    return (folder / "checkpoints" / "latest" / "state.pt").read_bytes()


def assert_pieces_are_the_whole(tmp_path: Path, stops, body, **more) -> None:
    whole = train(tmp_path / "whole", body, **more)
    for number in stops:
        folder, pieces = tmp_path / f"stop-{number}", []
        for at in (number, int(number) + 5, None):
            pieces += train(folder, body, stop_at=at, **more)

        assert repeated_once(pieces) == whole, number
        assert last_state(folder) == last_state(tmp_path / "whole"), number


def repeated_once(seen):
    """What a restart at the last batch of an epoch runs again of the epoch's end is not trained twice."""
    return [each for place, each in enumerate(seen) if each not in seen[:place]]


# A generator that is made in each epoch and kept is that of the next test.
BODIES = (by_iter, by_renewed_iter, by_zip, by_zip_ahead, by_generator, by_one_draw_each, by_passes)


@pytest.mark.process
@pytest.mark.parametrize("body", BODIES)
def test_a_second_loader_goes_on_where_it_was(body, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [1, 6, 6.5, 8], body)


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "size"),
    [(by_renewed_iter, 8), (by_renewed_iter, 60), (by_zip_ahead, 10), (by_zip_ahead, 60), (by_generator, 10)],
)
def test_a_second_loader_of_another_length_goes_on_where_it_was(body, size: int, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [1, 2, 6, 6.5, 9], body, second=size)


def by_kept_generator(first, second, training, epoch):
    training.kept = again_and_again(second)
    for batch in training.batches(first):
        yield rows(batch), rows(next(training.kept))


@pytest.mark.process
@pytest.mark.parametrize("body", [by_generator, by_kept_generator])
def test_a_generator_that_is_made_in_each_epoch_begins_again_as_it_was_seen_to_do(body, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [2, 8, 12, 12.5], body, second=60)


@pytest.mark.process
def test_a_generator_of_which_nobody_knows_whether_it_outlives_its_epoch_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, by_kept_generator, second=60, stop_at=6.5)
    train(tmp_path, by_kept_generator, second=60)

    assert "unbroken: loader 1 continues at batch 6, because an iterator over it was in use at the checkpoint; " in (
        capsys.readouterr().out
    )


def by_pieces_that_are_kept(first, second, training, epoch):
    """Evaluates on two batches now and then, and leaves the iterator where it is."""
    for batch in training.batches(first):
        if training.batch % 2:
            part = iter(second)
            yield rows(batch), rows(next(part)), rows(next(part))


@pytest.mark.process
def test_an_iterator_that_is_left_before_its_end_is_begun_again_or_the_script_is_refused(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", by_pieces_that_are_kept)
    train(tmp_path / "late", by_pieces_that_are_kept, stop_at=4)
    train(tmp_path / "early", by_pieces_that_are_kept, stop_at=2)

    assert train(tmp_path / "late", by_pieces_that_are_kept) == whole[2:]
    with pytest.raises(CheckpointError, match="loader 1 was continued after the restart, and the script begins it aga"):
        train(tmp_path / "early", by_pieces_that_are_kept)


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_loader_goes_on_with_worker_processes(workers: int, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [2, 8], by_renewed_iter, second=12, workers=workers)


def drawn_across(first, unlabeled, training, epoch):
    for batch in training.batches(first):
        yield rows(batch), rows(next(unlabeled))


def after_one_draw(loader):
    found = iter(loader)
    next(found)
    return found


@pytest.mark.process
@pytest.mark.parametrize(("across", "size"), [(again_and_again, 20), (after_one_draw, 200), (iter, 100)])
def test_an_iterator_that_lives_longer_than_an_epoch_goes_on_where_it_was(across, size: int, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [1, 4, 6, 6.5, 9, 12.5], drawn_across, second=size, across=across)


def test_loaders_of_one_length_have_orders_and_draws_of_their_own() -> None:
    training = Training()
    loaders = [training.loader(Numbers(1000), 1000) for _ in range(3)]
    found = [next(rows(batch) for batch in loader) for loader in loaders for _ in training.epochs(2)]
    pairs = [(one, other) for place, one in enumerate(found) for other in found[:place]]

    for one, other in pairs:
        assert sum(a == b for a, b in zip(one[0], other[0], strict=True)) < 20
        assert len({*one[1]} & {*other[1]}) < 20


@pytest.mark.process
def test_loaders_that_are_made_in_each_epoch_have_the_same_order_after_a_restart(tmp_path: Path) -> None:
    def made_anew(first, second, training, epoch):
        newest = training.loader(Numbers(24), 4)
        for batch, other in zip(training.batches(newest), training.loader(Numbers(24), 4), strict=True):
            yield rows(batch), rows(other)

    assert_pieces_are_the_whole(tmp_path, [2, 6, 6.5, 8], made_anew)


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.ones(24))


def train_by_weights(folder: Path, *, stop_at=None, epochs=3, replacement=True, asks_length=False, is_second=False):
    """Each batch changes the weights by which the next epoch is drawn; between epochs they change again."""
    seed_everything(1)
    kept, seen = Weights(), []
    weights = kept.weights
    try:
        training = Training(kept=kept, folder=folder)
        plain = training.loader(Numbers(24), 4)
        hard = training.loader(
            Numbers(24), 4, order=lambda g: torch.multinomial(weights, 24, replacement=replacement, generator=g)
        )
        if asks_length:
            len(hard)
        for epoch in training.epochs(epochs):
            if training.batch == 0:
                weights.mul_(1 + torch.arange(24) % (epoch + 2))
            others = iter(hard) if is_second else None
            for batch in training.batches(plain if is_second else hard):
                chosen = next(others) if others else batch
                seen.append((epoch, training.step, rows(chosen)))
                weights[chosen[0]] = 0.3 * weights[chosen[0]] + training.step % 3
                stop(stop_at, training.step + 1)
            stop(stop_at, training.step + 0.5)
        training.finish()
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


@pytest.mark.process
@pytest.mark.parametrize(
    "options",
    [{}, {"replacement": False}, {"asks_length": True}, {"is_second": True}],
    ids=str,
)
def test_an_order_by_weights_that_follow_the_losses_is_that_of_its_epoch(options, tmp_path: Path) -> None:
    whole = train_by_weights(tmp_path / "whole", **options)
    for number in (1, 4, 6, 6.5, 9):
        folder, pieces = tmp_path / f"stop-{number}", []
        for at in (number, int(number) + 3, None):
            pieces += train_by_weights(folder, stop_at=at, **options)

        assert pieces == whole, number
        assert last_state(folder) == last_state(tmp_path / "whole"), number


def sampler_of(kind, weights):
    def order(generator):
        return torch.multinomial(weights, 24, generator=generator)

    options = {"rank": 0, "ranks": 1} if kind is InterruptibleDistributedSampler else {}
    return kind(24, *([4] if kind is InterruptibleBatchSampler else []), order=order, **options)


@pytest.mark.parametrize("kind", [InterruptibleSampler, InterruptibleDistributedSampler, InterruptibleBatchSampler])
def test_a_sampler_goes_on_with_the_order_of_its_epoch_whatever_the_weights_are_now(kind, tmp_path: Path) -> None:
    sampler = sampler_of(kind, torch.ones(24))
    whole = list(sampler)
    sampler.advance(2)
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    again = sampler_of(kind, torch.arange(1.0, 25))
    len(again)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))

    assert list(again) == whole[2:]
    assert sampler.state_dict().keys() - {"order"} == {"seed", "epoch", "done", "size"}


@pytest.mark.parametrize("kind", [InterruptibleSampler, InterruptibleDistributedSampler, InterruptibleBatchSampler])
def test_an_epoch_is_drawn_where_it_begins_and_not_where_its_length_is_asked(kind) -> None:
    weights = torch.ones(24)
    early, late = sampler_of(kind, weights), sampler_of(kind, weights)
    len(early)
    weights *= torch.arange(1.0, 25)

    assert list(early) == list(late)


RANKS = """
import os, signal, sys
import torch
from unbroken.training.torch import Training
size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if size > 1:
    torch.distributed.init_process_group("gloo")
weights = torch.ones(40)
kept = torch.nn.Module()
kept.register_buffer("weights", weights)
training = Training(kept=kept)
numbers = torch.utils.data.TensorDataset(torch.arange(40))
hard = training.loader(numbers, 2, order=lambda g: torch.multinomial(weights, 40, generator=g))
others = training.loader(numbers, 2)
for epoch in training.epochs():
    beside = iter(others)
    for (batch,) in training.batches(hard):
        weights[batch] = rank + training.step % 5 + 1.0
        with open(f"{sys.argv[1]}/seen-{rank}", "a") as file:
            print(epoch, *batch.tolist(), *next(beside)[0].tolist(), file=file)
        if training.step + 1 == 14:
            os.kill(os.getpid(), signal.SIGUSR1)
training.finish()
"""


@pytest.mark.process
def test_ranks_whose_weights_differ_share_one_order_and_others_go_on_with_it(tmp_path: Path) -> None:
    together = ForkedRanks(tmp_path / "run", RANKS, [str(tmp_path)], ranks=2)
    together.run()
    alone = TrainingParent(tmp_path / "alone", RANKS, [str(tmp_path)])
    together.latest.rename(alone.root / "checkpoint-0000")
    alone.run()
    lines = [line.split() for rank in (0, 1) for line in (tmp_path / f"seen-{rank}").read_text().splitlines()]

    assert (together.codes, alone.codes) == ([85], [0]), together.log + alone.log
    for epoch in ("0", "1", "2"):
        for columns in (slice(1, 3), slice(3, 5)):
            seen = sorted(int(word) for line in lines if line[0] == epoch for word in line[columns])
            assert seen == list(range(40)), (epoch, columns)


EVERYTHING = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np, torch
from unbroken.training.torch import Training, seed_everything

class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(7)
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return index, self.rng.normal() + random.random()

class Batched(Noisy):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

torch.set_num_threads(1)
seed_everything(3)
model, kept = torch.nn.Linear(4, 4), torch.nn.Module()
kept.register_buffer("weights", torch.ones(40))
training = Training(model=model, kept=kept)
by_loss = lambda g: torch.multinomial(kept.weights, 40, replacement=True, generator=g)
hard = training.loader(Noisy(), 4, order=by_loss, num_workers=2)
more = training.loader(Batched(), 4, num_workers=1, persistent_workers=True)
short = training.loader(torch.utils.data.Subset(Noisy(), range(12)), 4)

def again_and_again(loader):
    while True:
        yield from loader

shorts = again_and_again(short)
for epoch in training.epochs():
    others = iter(more)
    for index, noise in training.batches(hard):
        drawn = torch.stack([noise, next(others)[1], next(shorts)[1], next(shorts)[0].double()])
        kept.weights[index] = 0.5 * kept.weights[index] + drawn[0].abs().float()
        with torch.no_grad():
            model.weight += drawn
        training.log(loss=float(drawn.sum()))
        time.sleep(0.05)
        marker = Path(sys.argv[1]) / f"died-{training.step}"
        if str(training.step) in sys.argv[2:] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
training.finish({"model.pt": model.state_dict()})
"""


@pytest.mark.process
def test_kills_change_no_byte_of_a_training_with_loaders_of_each_kind(tmp_path: Path) -> None:
    whole = TrainingParent(tmp_path / "whole", EVERYTHING, [str(tmp_path)])
    pieces = TrainingParent(tmp_path / "pieces", EVERYTHING, [str(tmp_path), "4", "12", "23"], save_seconds=0.01)
    whole.run_to_the_end()
    codes = [pieces.run() for _ in range(3)]
    pieces.run_to_the_end()

    assert (whole.codes, codes, pieces.codes[3:]) == ([0], [-signal.SIGKILL] * 3, [0]), pieces.log
    assert pieces.result() == whole.result()
