"""Several loaders in one training, and orders that follow it: pieces are the whole, bit for bit."""

import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support.forked_ranks import ForkedRanks  # noqa: E402
from support.pieces_here import last_state, stop  # noqa: E402
from support.training_parent import TrainingParent  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import (  # noqa: E402
    Loaders,
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


def by_next(first, second, training, epoch):
    for batch in training.batches(first):
        yield rows(batch), rows(next(second))


def by_zip(first, second, training, epoch):
    for batch, other in zip(training.batches(first), second, strict=False):
        yield rows(batch), rows(other)


def by_late_use(first, second, training, epoch):
    """Draws in some epochs, and more than one batch at a time."""
    for batch in training.batches(first):
        yield rows(batch), [rows(next(second)) for _ in range(training.batch % 3)] if epoch else []


def train(folder: Path, body, *, second=24, workers=0, stop_at=None, epochs=3, is_endless=True):
    """Returns what each step saw; `stop_at` 6.5 is between two epochs, of 6 steps each."""
    seed_everything(1)
    model, seen = torch.nn.Linear(1, 1), []
    try:
        training = Training(state={"model": model}, folder=folder)
        loaders = [training.loader(Numbers(24), 4, num_workers=workers)]
        loaders += [training.loader(Numbers(second, 100), 4, num_workers=workers)]
        if is_endless:
            loaders[1] = training.endless(loaders[1])
        for epoch in training.epochs(epochs):
            for found in body(*loaders, training, epoch):
                seen.append((epoch, training.step, found))
                stop(stop_at, training.step + 1)
            stop(stop_at, training.step + 0.5)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


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


@pytest.mark.parametrize("body", [by_next, by_zip, by_late_use])
@pytest.mark.parametrize("size", [10, 60])
def test_an_endless_loader_of_any_length_goes_on_where_it_was(body, size: int, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [1, 6, 6.5, 8], body, second=size)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_endless_loader_goes_on_with_worker_processes(workers: int, tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [2, 8], by_next, second=12, workers=workers)


def test_other_data_in_an_endless_loader_are_refused(tmp_path: Path) -> None:
    train(tmp_path, by_next, stop_at=2)

    with pytest.raises(
        CheckpointError, match="the checkpoint was made with 6 batches in loader 1, and it has 15; allo"
    ):
        train(tmp_path, by_next, second=60)


def by_passes(first, second, training, epoch):
    """Passes before the loop, at some steps in it, left before their end, and at the end of the epoch."""
    for batch in training.batches(first):
        is_asked = training.batch % 2
        part = [rows(other) for other, _ in zip(second, range(2), strict=False)] if is_asked else []
        yield rows(batch), part, [rows(next(iter(second))) for _ in range(2)] if is_asked else []
    yield [rows(other) for other in second], [rows(other) for other in second]


def test_passes_that_a_script_makes_itself_are_those_of_one_piece_and_each_is_another(tmp_path: Path) -> None:
    assert_pieces_are_the_whole(tmp_path, [1, 4, 6, 6.5, 8], by_passes, is_endless=False)
    passes = [str(part) for *_, found in train(tmp_path / "again", by_passes, is_endless=False) for part in found[1:]]

    assert len({*passes} - {"[]"}) == len([each for each in passes if each != "[]"])


def by_iter(first, second, training, epoch):
    others = iter(second)
    yield from ((rows(batch), rows(next(others))) for batch in training.batches(first))


def by_generator(first, second, training, epoch):
    def again_and_again():
        while True:
            yield from second

    others = again_and_again()
    yield from ((rows(batch), rows(next(others))) for batch in training.batches(first))


def by_kept_iterator(first, second, training, epoch):
    for batch in training.batches(first):
        if training.step == 8:
            training.kept = iter(second)
            next(training.kept)
        yield rows(batch)


@pytest.mark.parametrize("body", [by_iter, by_generator, by_kept_iterator])
def test_an_iterator_that_a_restart_would_begin_again_is_refused_before_a_checkpoint_is_made(
    body, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=r"an iterator over loader 1 is in use next to batches\(\).*endless\(loader\)"):
        train(tmp_path, body, is_endless=False, stop_at=10)

    assert not (tmp_path / "checkpoints" / "latest").exists()


def test_what_an_endless_loader_cannot_do_is_refused() -> None:
    training = Training()
    first, second = (training.loader(Numbers(8), 4) for _ in range(2))
    endless = training.endless(second)

    assert training.endless(second) is endless
    with pytest.raises(TypeError, match="a batch was drawn before the epoch's first batch"):
        next(endless)
    with pytest.raises(TypeError, match=r"given a DataLoader, allowed: a loader of training\.loader"):
        training.endless(torch.utils.data.DataLoader(Numbers(8)))
    for _ in training.epochs(1):
        with pytest.raises(TypeError, match=r"allowed: one made before epochs\(\)"):
            training.endless(training.loader(Numbers(8), 4))
        list(training.batches(first))


def test_loaders_of_one_length_have_orders_and_draws_of_their_own() -> None:
    training = Training()
    loaders = [training.loader(Numbers(1000), 1000) for _ in range(3)]
    found = [next(rows(batch) for batch in loader) for loader in loaders for _ in range(2)]
    pairs = [(one, other) for place, one in enumerate(found) for other in found[:place]]

    for one, other in pairs:
        assert sum(a == b for a, b in zip(one[0], other[0], strict=True)) < 20
        assert len({*one[1]} & {*other[1]}) < 20


def test_loaders_that_are_made_in_each_epoch_have_the_same_order_after_a_restart(tmp_path: Path) -> None:
    def made_anew(first, second, training, epoch):
        newest = training.loader(Numbers(24), 4)
        for batch in training.batches(newest):
            yield rows(batch), rows(next(iter(training.loader(Numbers(24), 4))))

    assert_pieces_are_the_whole(tmp_path, [2, 6, 6.5, 8], made_anew, is_endless=False)


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
        training = Training(state={"kept": kept}, folder=folder)
        plain = training.loader(Numbers(24), 4)
        hard = training.loader(
            Numbers(24), 4, order=lambda g: torch.multinomial(weights, 24, replacement=replacement, generator=g)
        )
        others = training.endless(hard) if is_second else None
        if asks_length:
            len(hard)
        for epoch in training.epochs(epochs):
            if training.batch == 0:
                weights.mul_(1 + torch.arange(24) % (epoch + 2))
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


def by_weights(weights):
    loaders = Loaders()
    loader = loaders.loader(range(24), 4, order=lambda g: torch.multinomial(weights, 24, generator=g))
    return loaders, loader


def test_a_pass_goes_on_with_its_order_whatever_the_weights_are_now(tmp_path: Path) -> None:
    loaders, loader = by_weights(torch.ones(24))
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    torch.save(loaders.state_dict(), tmp_path / "state.pt")
    again, other = by_weights(torch.arange(1.0, 25))
    len(other)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))

    assert [batch.tolist() for batch in other] == [batch.tolist() for batch in batches]


def test_an_order_is_drawn_where_its_pass_begins_and_not_where_its_length_is_asked() -> None:
    weights = torch.ones(24)
    (_, early), (_, late) = by_weights(weights), by_weights(weights)
    len(early)
    weights *= torch.arange(1.0, 25)

    assert [batch.tolist() for batch in early] == [batch.tolist() for batch in late]


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
training = Training(state={"kept": kept})
numbers = torch.utils.data.TensorDataset(torch.arange(40))
hard = training.loader(numbers, 2, order=lambda g: torch.multinomial(weights, 40, generator=g))
others = training.endless(training.loader(numbers, 2))
for epoch in training.epochs():
    for (batch,) in training.batches(hard):
        weights[batch] = rank + training.step % 5 + 1.0
        with open(f"{sys.argv[1]}/seen-{rank}", "a") as file:
            print(epoch, *batch.tolist(), *next(others)[0].tolist(), file=file)
        if training.step + 1 == 14:
            os.kill(os.getpid(), signal.SIGUSR1)
training.finish()
"""


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
training = Training(state={"model": model, "kept": kept})
by_loss = lambda g: torch.multinomial(kept.weights, 40, replacement=True, generator=g)
hard = training.loader(Noisy(), 4, order=by_loss, num_workers=2)
more = training.loader(Batched(), 4, num_workers=1, persistent_workers=True)
short = training.loader(torch.utils.data.Subset(Noisy(), range(12)), 4)

shorts, others = training.endless(short), training.endless(more)
for epoch in training.epochs():
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


def test_kills_change_no_byte_of_a_training_with_loaders_of_each_kind(tmp_path: Path) -> None:
    whole = TrainingParent(tmp_path / "whole", EVERYTHING, [str(tmp_path)])
    pieces = TrainingParent(tmp_path / "pieces", EVERYTHING, [str(tmp_path), "4", "12", "23"], save_seconds=0.01)
    whole.run_to_the_end()
    codes = [pieces.run() for _ in range(3)]
    pieces.run_to_the_end()

    assert (whole.codes, codes, pieces.codes[3:]) == ([0], [-signal.SIGKILL] * 3, [0]), pieces.log
    assert pieces.result() == whole.result()
