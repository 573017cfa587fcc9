"""The StatefulDataLoader of torchdata as a part of a training: pieces are the whole, mistakes are named."""

import random
import signal
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")
torchdata = pytest.importorskip("torchdata", reason="missing: torchdata (pip install torchdata)")

from support.pieces_here import last_state, stop  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler  # noqa: E402

from unbroken.errors import CheckpointError  # noqa: E402
from unbroken.training.torch import (  # noqa: E402
    ResumableStream,
    Training,
    seed_everything,
)

# torchdata 0.11, the newest there is, calls it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.usefixtures("signals_kept"),
]

# 23 samples in batches of 4: 6 batches an epoch, 3 epochs.
SAMPLES, BATCHES, EPOCHS = 23, 6, 3
STEPS = BATCHES * EPOCHS


class Noisy(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, random.random() + np.random.rand() + torch.rand(()).item()


class Counting(IterableDataset):
    """Numbers as long as anybody asks, up to 10 an epoch; knows where it is, and nobody knows how long it is."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < 10:
            self.at += 1
            yield self.at - 1, 0.0
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def noisy(workers=0, **options):
    return StatefulDataLoader(Noisy(), 4, shuffle=True, num_workers=workers, **options)


def by_rank(workers=0):
    data = Noisy()
    return StatefulDataLoader(data, 4, sampler=StatefulDistributedSampler(data, 1, 0), num_workers=workers)


def train(folder, make, stop_at=None, workers=0, goal=(EPOCHS, "epochs")):
    """Returns what it saw of the data and drew by itself, step by step; `stop_at` 6.5 is between two epochs."""
    seed_everything(1)
    loader = make(workers)
    model, seen = torch.nn.Linear(1, 1), []
    try:
        training = Training(state={"model": model, "loader": loader}, folder=folder)
        for epoch in training.epochs(*goal):
            for indices, noise in training.batches(loader):
                own = torch.rand(()).item() + random.random()
                seen.append((epoch, indices.tolist(), noise.tolist(), own))
                stop(stop_at, training._course.position.step + 1)
            stop(stop_at, training._course.position.step + 0.5)
        training.finish({"model.pt": model.state_dict()})
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


def pieces_are_the_whole(tmp_path: Path, stops, make, **more) -> None:
    whole = train(tmp_path / "whole", make, **more)
    for number in stops:
        folder = tmp_path / f"stop-{number}"
        first = train(folder, make, stop_at=number, **more)
        rest = train(folder, make, **more)

        assert len(first) == int(number)
        assert first + rest == whole
        assert last_state(folder) == last_state(tmp_path / "whole")


@pytest.mark.process
@pytest.mark.parametrize(("make", "stops"), [(noisy, [*range(1, 13), 6.5, 17]), (by_rank, [2, 6, 6.5, 7])])
def test_a_stop_at_any_batch_changes_nothing(make, stops: list[float], tmp_path: Path) -> None:
    pieces_are_the_whole(tmp_path, stops, make)


@pytest.mark.process
@pytest.mark.parametrize(("is_persistent", "stops"), [(False, [2, 6, 6.5]), (True, [8])])
def test_random_numbers_of_worker_processes_go_on_exactly(
    is_persistent: bool, stops: list[float], tmp_path: Path
) -> None:
    def make(workers):
        return noisy(workers, persistent_workers=is_persistent)

    pieces_are_the_whole(tmp_path, stops, make, workers=2)


@pytest.mark.process
def test_every_sample_comes_once_an_epoch_and_each_epoch_in_an_order_of_its_own(tmp_path: Path) -> None:
    seen = train(tmp_path, noisy)
    epochs = [[index for epoch, indices, *_ in seen if epoch == number for index in indices] for number in range(3)]

    assert [sorted(indices) for indices in epochs] == [list(range(SAMPLES))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.process
def test_the_start_of_a_loader_leaves_no_trace_in_the_global_generators(tmp_path: Path) -> None:
    one, two = ([own for *_, own in train(tmp_path / str(workers), by_rank, workers=workers)] for workers in (1, 2))

    assert one == two


@pytest.mark.process
def test_a_stream_of_unknown_length_goes_on_in_the_middle(tmp_path: Path) -> None:
    def make(workers):
        return StatefulDataLoader(Counting(), 4)

    whole = train(tmp_path / "seen", make, goal=(8, "steps"))
    pieces_are_the_whole(tmp_path, [1, 2, 3, 4, 7], make, goal=(8, "steps"))

    assert [(epoch, indices) for epoch, indices, *_ in whole] == [
        *((epoch, part) for epoch in (0, 1) for part in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])),
        (2, [0, 1, 2, 3]),
        (2, [4, 5, 6, 7]),
    ]


@pytest.mark.process
def test_workers_are_not_started_before_their_epoch_and_live_through_a_term(tmp_path: Path) -> None:
    class Looking(Noisy):
        def __getitem__(self, index):
            assert get_worker_info() is not None
            ignored = signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
            return index, float(ignored and signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    loader = StatefulDataLoader(Looking(), 4, num_workers=1)
    training = Training(state={"loader": loader}, folder=tmp_path)
    is_started = loader._iterator is not None
    answers = [answer for _ in training.epochs(1) for _, noise in training.batches(loader) for answer in noise.tolist()]
    training.finish()

    assert not is_started
    assert answers == [1.0] * SAMPLES


@pytest.mark.process
def test_another_number_of_workers_is_refused_in_one_line(tmp_path: Path) -> None:
    train(tmp_path, noisy, stop_at=2, workers=2)

    with pytest.raises(
        CheckpointError, match=r"StatefulDataLoader 'loader' was made with 2 workers, now 0; allowed: 2"
    ):
        train(tmp_path, noisy)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: StatefulDataLoader(range(9), shuffle=True, generator=torch.Generator()), "has a generator of its own"),
        (lambda: StatefulDataLoader(range(9), sampler=RandomSampler(range(9))), "order of a RandomSampler of torch"),
    ],
)
def test_a_loader_that_would_go_on_otherwise_is_refused(make, line: str) -> None:
    with pytest.raises(TypeError, match=rf"Training\(state=\{{'data': ...\}}\): .*{line}"):
        Training(state={"data": make()})


def test_mistakes_with_a_loader_are_named(tmp_path: Path) -> None:
    loader = noisy()
    training = Training()
    epoch = training.epochs(1)
    next(epoch)

    with pytest.raises(TypeError, match=r"no part of the training; type Training\(state=\{'loader': loader\}"):
        next(training.batches(loader))
    with pytest.raises(TypeError, match=r"a loader of training\.loader\(dataset, ...\), or a StatefulDataLoader of"):
        next(training.batches(DataLoader(Noisy())))
    with pytest.raises(TypeError, match=r"an IterableDataset are of unknown length; allowed: a goal in steps"):
        train(None, lambda workers: StatefulDataLoader(Counting(), 4))


def test_a_loader_that_gives_less_than_it_says_ends_the_training(tmp_path: Path) -> None:
    class Short(StatefulDistributedSampler):
        def __iter__(self):
            return iter(range(8))

    def make(workers):
        return StatefulDataLoader(Noisy(), 4, sampler=Short(Noisy(), 1, 0))

    with pytest.raises(CheckpointError, match="the loader ended after batch 2 of 6 in epoch 0; allowed: a sampler"):
        train(tmp_path, make)


def test_two_stateful_loaders_have_orders_of_their_own_and_one_that_is_iterated_alone_is_refused() -> None:
    one, other = (StatefulDataLoader(range(200), 200, shuffle=True) for _ in range(2))
    training = Training(state={"one": one, "other": other})
    epochs = training.epochs(2)
    next(epochs)
    (first,) = training.batches(one)
    next(epochs)
    (second,) = training.batches(other)
    again = Training(state={"one": one, "other": other})
    first_epoch, other_again = again.epochs(1), StatefulDataLoader(range(200), 200, shuffle=True)
    next(first_epoch)
    iter(other_again)
    beside = Training(state={"one": StatefulDataLoader(range(8), 2), "other": other_again})
    next(beside.epochs(1))

    assert (first == second).sum() < 20
    with pytest.raises(
        TypeError, match=r"state=\{'other': ...\}\): the StatefulDataLoader is iterated without batches"
    ):
        list(beside.batches(beside._content.stateful["one"].loader))


class Forgetting(Counting):
    """A stream that tells where it is only after it gave something since a restart, as that of datasets 5.2 does."""

    def __init__(self):
        super().__init__()
        self.told = 0

    def __iter__(self):
        worker = get_worker_info()
        while self.at < 12:
            self.at += 1
            self.told = self.at
            yield 100 * (worker.id if worker else 0) + self.at - 1, 0.0
        self.at = self.told = 0

    def state_dict(self):
        return {"at": self.told}


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_restart_goes_on_where_a_worker_gave_nothing_since_the_first(workers: int, tmp_path: Path) -> None:
    def make(workers):
        return StatefulDataLoader(Forgetting(), 4, num_workers=workers)

    whole = train(tmp_path / "whole", make, workers=workers, goal=(9, "steps"))
    pieces = []
    for at in (3, 4, 5, 6, 6.5, 7, 8, None):
        pieces += train(tmp_path / "pieces", make, stop_at=at, workers=workers, goal=(9, "steps"))

    assert pieces == whole


def draw_from_all(folder: Path, workers=0, stop_at=None, steps=STEPS):
    """What a training sees of one loader in batches() and of two in endless(), one of them a stream."""
    seed_everything(1)
    names = ("first", "second", "stream")
    data = Noisy(), Noisy(), ResumableStream(Shuffled())
    loaders = [
        StatefulDataLoader(each, 4, shuffle=None if name == "stream" else True, num_workers=workers)
        for name, each in zip(names, data, strict=True)
    ]
    seen = []
    try:
        training = Training(state=dict(zip(names, loaders, strict=True)), folder=folder)
        others = [training.endless(loader) for loader in loaders[1:]]
        for epoch in training.epochs(EPOCHS):
            for batch in training.batches(loaders[0]):
                drawn = [[part.tolist() for part in each] for each in (batch, *map(next, others))]
                drawn += [[part.tolist() for part in next(others[1])]] * (training.step % 2)
                seen.append((epoch, drawn, random.random()))
                stop(stop_at, training.step + 1)
        training.finish()
    except SystemExit as leaving:
        assert leaving.code == 85
    return seen


class Shuffled(IterableDataset):
    """Numbers in an order drawn from Python's generator, with noise from all; it has no state."""

    def __iter__(self):
        for number in random.sample(range(10), 10):
            yield number, random.random() + np.random.rand() + torch.rand(()).item()


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_several_loaders_go_on_each_where_it_was(workers: int, tmp_path: Path) -> None:
    whole = draw_from_all(tmp_path / "whole", workers)
    pieces = []
    for at in (1, 2, 4, 9, None):
        pieces += draw_from_all(tmp_path / "pieces", workers, at)

    assert len(whole) == STEPS
    assert pieces == whole
    assert last_state(tmp_path / "pieces") == last_state(tmp_path / "whole")
    assert [drawn[0][0] for _, drawn, _ in whole] != [drawn[1][0] for _, drawn, _ in whole]


@pytest.mark.process
def test_what_is_drawn_for_a_sample_does_not_depend_on_the_workers(tmp_path: Path) -> None:
    here, there = (
        {
            (epoch, index): noise
            for epoch, indices, noises, _ in train(tmp_path / str(number), noisy, workers=number)
            for index, noise in zip(indices, noises, strict=True)
        }
        for number in (0, 2)
    )

    assert here == there
    assert len({*here.values()}) == SAMPLES * EPOCHS


def test_a_stream_without_a_state_is_refused_before_the_first_step() -> None:
    with pytest.raises(TypeError, match=r"the stream \(Shuffled\) has no state.*type StatefulDataLoader\(Resumable"):
        train(None, lambda workers: StatefulDataLoader(Shuffled(), 4), goal=(4, "steps"))


@pytest.mark.process
def test_a_stream_that_gives_other_samples_after_a_restart_is_refused(tmp_path: Path) -> None:
    class Growing(IterableDataset):
        first = 0

        def __iter__(self):
            return ((number, 0.0) for number in range(self.first, 30))

    def make(workers):
        return StatefulDataLoader(ResumableStream(Growing()), 4)

    train(tmp_path, make, stop_at=3, goal=(7, "steps"))
    Growing.first = 1
    with pytest.raises(CheckpointError, match=r"the stream \(Growing\) gave other samples in epoch 0 than before"):
        train(tmp_path, make, goal=(7, "steps"))


def test_loaders_that_cannot_be_resumed_are_named() -> None:
    class OtherLoader(DataLoader):
        """As StreamingDataLoader of mosaicml-streaming: its state has another meaning."""

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Told(Counting):
        def set_epoch(self, epoch):
            pass

    class Empty(Counting):
        def __iter__(self):
            return iter(())

    empty, data = StatefulDataLoader(Empty(), 4), StatefulDataLoader(range(4))
    training = Training(state={"empty": empty, "data": data})
    endless = training.endless(empty)

    assert training.endless(empty) is endless
    with pytest.raises(TypeError, match="a OtherLoader is no StatefulDataLoader of torchdata; allowed"):
        Training(state={"data": OtherLoader(range(4))})
    with pytest.raises(TypeError, match="has batch_size=None; allowed: a number"):
        Training(state={"data": StatefulDataLoader(range(4), None)})
    with pytest.raises(TypeError, match="no worker hears of the data set's set_epoch"):
        Training(state={"data": StatefulDataLoader(Told(), num_workers=1, persistent_workers=True)})
    with pytest.raises(TypeError, match="a batch was drawn before the epoch's first batch"):
        next(training.endless(data))
    next(training.epochs(1))
    with pytest.raises(TypeError, match=r"is in endless\(\) already; type one loader for each"):
        next(training.batches(empty))
